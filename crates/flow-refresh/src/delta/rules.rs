//! Which of the engine's rewrites run before a plan becomes operators over changes.
//!
//! A full refresh runs them too, so what they do is what it does. They turn subqueries into joins,
//! find join keys, and drop columns. Values that they compute beforehand come from the same
//! expressions, ours among them. Rules that only make a whole computation faster are left out.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::eliminate_filter::EliminateFilter;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::{Optimizer, OptimizerRule};

use crate::pushdown::PushDown;
use crate::subquery_values::SubqueryValues;

/// Runs the chosen rules.
pub(super) fn run(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    let rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = vec![
        Arc::new(SimplifyExpressions::new()),
        Arc::new(DecorrelatePredicateSubquery::new()),
        Arc::new(SubqueryValues),
        Arc::new(ExtractEquijoinPredicate::new()),
        Arc::new(EliminateFilter::new()),
        Arc::new(EliminateCrossJoin::new()),
        Arc::new(PushDown::default()),
        Arc::new(OptimizeProjections::new()),
    ];
    Optimizer::with_rules(rules).optimize(plan, state, |_, _| {})
}
