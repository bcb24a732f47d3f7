//! The engine's own operators, planned once and run over rows at hand.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchemaRef, Result};
use datafusion::execution::context::SessionState;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, collect};
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};

use super::rows;

/// Is an operator of the engine whose input is given when it runs.
#[derive(Debug)]
pub(super) struct Template {
    plan: Arc<dyn ExecutionPlan>,
    input: SchemaRef,
}

impl Template {
    /// Plans an operator over one input.
    pub(super) async fn new(operator: &LogicalPlan, state: &SessionState) -> Result<Template> {
        let schema = operator.inputs()[0].schema().clone();
        let input = Arc::new(schema.as_arrow().clone());
        let node: Arc<dyn UserDefinedLogicalNode> = Arc::new(Slot(schema));
        let slot = LogicalPlan::Extension(Extension { node });
        let operator = operator.with_new_exprs(operator.expressions(), vec![slot])?;
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(SlotPlanner)]);
        let plan = planner.create_physical_plan(&operator, state).await?;
        Ok(Template { plan, input })
    }

    /// Runs the operator over rows; gives its batches' columns.
    pub(super) async fn run(&self, rows: &RecordBatch, task: Arc<TaskContext>) -> Result<Vec<Vec<ArrayRef>>> {
        let batch = rows::batch(&self.input, rows.columns().to_vec(), rows.num_rows())?;
        let filled: Arc<dyn ExecutionPlan> = Arc::new(SlotExec::new(self.input.clone(), vec![batch]));
        let plan = self.plan.clone().transform_up(|node| {
            Ok(match node.as_any().is::<SlotExec>() {
                true => Transformed::yes(filled.clone()),
                false => Transformed::no(node),
            })
        })?;
        let batches = collect(plan.data, task).await?;
        Ok(batches.iter().map(|batch| batch.columns().to_vec()).collect())
    }
}

/// Stands for an operator's input in its logical plan.
#[derive(Debug, PartialEq, Eq)]
struct Slot(DFSchemaRef);

impl Hash for Slot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialOrd for Slot {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        (self == other).then_some(std::cmp::Ordering::Equal)
    }
}

impl UserDefinedLogicalNodeCore for Slot {
    fn name(&self) -> &str {
        "Slot"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        Vec::new()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.0
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("Slot")
    }

    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, _inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Slot(self.0.clone()))
    }
}

struct SlotPlanner;

#[async_trait]
impl ExtensionPlanner for SlotPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        _physical_inputs: &[Arc<dyn ExecutionPlan>],
        _state: &SessionState,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let slot = node.as_any().downcast_ref::<Slot>();
        Ok(slot.map(|Slot(schema)| {
            let schema = Arc::new(schema.as_arrow().clone());
            Arc::new(SlotExec::new(schema, Vec::new())) as Arc<dyn ExecutionPlan>
        }))
    }
}

/// Gives batches that it holds.
#[derive(Debug)]
struct SlotExec {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    properties: Arc<PlanProperties>,
}

impl SlotExec {
    fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> SlotExec {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        SlotExec {
            schema,
            batches,
            properties: Arc::new(properties),
        }
    }
}

impl DisplayAs for SlotExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("SlotExec")
    }
}

impl ExecutionPlan for SlotExec {
    fn name(&self) -> &'static str {
        "SlotExec"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _partition: usize, _task: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let stream = MemoryStream::try_new(self.batches.clone(), self.schema.clone(), None)?;
        Ok(Box::pin(stream))
    }
}
