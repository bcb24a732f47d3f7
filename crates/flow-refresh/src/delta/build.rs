//! Fills state from whole inputs.
//!
//! The engine runs the plan below each operator that keeps state, and its rows go into the state
//! batch by batch. Memory is the engine's for that plan, and one batch; the groups of an aggregate
//! are folded in memory. Where they do not fit, they are folded in shares, by a hash of their key: a
//! share that is too large is cut in two, and its plan is run once for each half. So a build never
//! spills, and takes as many passes over an aggregate's input as its groups are larger than memory.
//! Only the different values of DISTINCT in one group must fit. Values of MIN and MAX are not held.

use std::sync::Arc;

use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::context::SessionState;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{SendableRecordBatchStream, execute_stream};
use flow_core::changes::ChangeBatch;
use flow_core::state::StateBuilder;
use futures::StreamExt;

use super::aggregate::{Aggregate, Gathered, Share};
use super::{DeltaPlan, Feed, Operator, rows};
use crate::source::SnapshotTable;

/// Is how many times a share is cut in two at most.
const CUTS_MAX: u32 = 16;

impl DeltaPlan {
    /// Fills the state of all operators; `tables` are the inputs as they are read now, and `state`
    /// is an engine over them.
    pub(crate) async fn build(
        &self,
        tables: &[SnapshotTable],
        state: &SessionState,
        builder: &mut dyn StateBuilder,
    ) -> Result<()> {
        let source = Source { tables, state };
        for feed in &self.feeds {
            let plan = source.over_tables(feed)?;
            let node = &self.nodes[feed.node];
            let schema = &self.nodes[node.inputs[feed.side]].schema;
            match &node.operator {
                Operator::Aggregate(aggregate) => source.fold(aggregate, &plan, builder).await?,
                operator => {
                    let mut counts = Default::default();
                    let mut batches = source.run(&plan).await?;
                    while let Some(batch) = batches.next().await {
                        let batch = batch?;
                        let batch = rows::batch(schema, batch.columns().to_vec(), batch.num_rows())?;
                        match (operator, feed.side) {
                            (Operator::Join(join), 0) => join.left.fill(batch, join.null_equal, builder)?,
                            (Operator::Join(join), _) => join.right.fill(batch, join.null_equal, builder)?,
                            (Operator::NotIn(not_in), 0) => not_in.join.left.fill(batch, true, builder)?,
                            (Operator::NotIn(not_in), _) => {
                                not_in.fill_counts(&mut counts, &batch)?;
                                not_in.join.right.fill(batch, true, builder)?;
                            }
                            (Operator::Again(again), _) => again.arrangement.fill(batch, true, builder)?,
                            (Operator::Top(top), _) => top.arrangement.fill(batch, true, builder)?,
                            _ => {}
                        }
                    }
                    if let (Operator::NotIn(not_in), 1) = (operator, feed.side) {
                        not_in.put_counts(counts, builder)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Runs plans over the inputs.
struct Source<'a> {
    tables: &'a [SnapshotTable],
    state: &'a SessionState,
}

impl Source<'_> {
    /// Puts the inputs into a plan that was compiled without their rows.
    fn over_tables(&self, feed: &Feed) -> Result<LogicalPlan> {
        let plan = feed.plan.clone().transform_up(|node| {
            let LogicalPlan::TableScan(mut scan) = node else {
                return Ok(Transformed::no(node));
            };
            let name = (scan.table_name.schema(), scan.table_name.table());
            let mut tables = self.tables.iter();
            let table = tables.find(|table| (Some(table.name.schema.as_str()), table.name.name.as_str()) == name);
            let table = table.ok_or_else(|| DataFusionError::Plan(format!("{} is no input", scan.table_name)))?;
            scan.source = provider_as_source(Arc::new(table.clone()));
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        })?;
        Ok(plan.data)
    }

    async fn run(&self, plan: &LogicalPlan) -> Result<SendableRecordBatchStream> {
        let plan = self.state.optimizer().optimize(plan.clone(), self.state, |_, _| {})?;
        let planner = self.state.query_planner();
        let physical = planner.create_physical_plan(&plan, self.state).await?;
        execute_stream(physical, self.state.task_ctx())
    }

    /// Folds an aggregate's input, in as many shares as memory asks for.
    async fn fold(&self, aggregate: &Aggregate, plan: &LogicalPlan, builder: &mut dyn StateBuilder) -> Result<()> {
        let pool = &self.state.runtime_env().memory_pool;
        let reservation = MemoryConsumer::new("groups").register(pool);
        let mut open = vec![Share { bits: 0, share: 0 }];
        while let Some(share) = open.pop() {
            match self.fold_share(aggregate, plan, share, builder, &reservation).await? {
                Some(gathered) => aggregate.fill(gathered, builder)?,
                None => {
                    let bits = share.bits + 1;
                    let other = share.share | 1 << share.bits;
                    open.push(Share { bits, share: other });
                    open.push(Share { bits, ..share });
                }
            }
            reservation.free();
        }
        Ok(())
    }

    /// Folds one share; `None` if it does not fit and can be cut.
    async fn fold_share(
        &self,
        aggregate: &Aggregate,
        plan: &LogicalPlan,
        share: Share,
        builder: &mut dyn StateBuilder,
        reservation: &MemoryReservation,
    ) -> Result<Option<Gathered>> {
        // Values are written once, however many passes their groups take.
        let firsts = share.bits == 0 && aggregate.has_firsts();
        let mut gathered = Some(Gathered::without_firsts());
        let chosen = (share.bits > 0).then_some(share);
        let mut batches = self.run(plan).await?;
        while let Some(batch) = batches.next().await {
            let batch = batch?;
            if firsts {
                aggregate.fill_firsts(&batch, builder)?;
            }
            if let Some(groups) = &mut gathered {
                aggregate.gather(&ChangeBatch::of(batch, 1), chosen, groups)?;
                match reservation.try_resize(groups.bytes) {
                    Ok(()) => {}
                    Err(_) if share.bits < CUTS_MAX && groups.len() > 1 => {
                        reservation.free();
                        gathered = None;
                    }
                    Err(error) => return Err(error),
                }
            }
            if gathered.is_none() && !firsts {
                break;
            }
        }
        Ok(gathered)
    }
}
