//! The engine's optimiser, less what it gets wrong where an aggregate has one group.
//!
//! An aggregate without keys gives a row even over no rows.
//! - A condition without columns must stay above it: below, it would take away rows but not that one.
//!   The engine takes such a condition for one about keys.
//! - An aggregate over constant keys gives no row over no rows, so its keys must stay.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{ApplyOrder, Optimizer, OptimizerConfig, OptimizerRule};

use crate::subquery_values::SubqueryValues;

/// Is the rule that makes groups by constants one group.
const CONSTANT_KEYS: &str = "eliminate_group_by_constant";

/// Lists the rules that a whole computation is optimised by.
pub(crate) fn rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let rules = Optimizer::new().rules.into_iter();
    let rules = rules.filter(|rule| rule.name() != CONSTANT_KEYS);
    let ours: [Arc<dyn OptimizerRule + Send + Sync>; 2] = [Arc::new(PushDown::default()), Arc::new(SubqueryValues)];
    rules
        .map(|rule| match ours.iter().find(|own| own.name() == rule.name()) {
            Some(own) => own.clone(),
            None => rule,
        })
        .collect()
}

/// Pushes conditions down, but not below an aggregate without keys.
#[derive(Debug, Default)]
pub(crate) struct PushDown(PushDownFilter);

impl OptimizerRule for PushDown {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match stands_over_one_group(&plan) {
            true => Ok(Transformed::no(plan)),
            false => self.0.rewrite(plan, config),
        }
    }
}

/// Says whether a plan is conditions right above an aggregate without keys.
fn stands_over_one_group(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Filter(filter) => match filter.input.as_ref() {
            LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
            below => stands_over_one_group(below),
        },
        _ => false,
    }
}
