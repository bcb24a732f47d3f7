//! GROUPING SETS, ROLLUP and CUBE as a union of plain GROUP BYs, one for each set.
//!
//! PostgreSQL gives a row for the empty set even where there are no rows, and the rows of a set as
//! often as the set is written. The engine's own operator over several sets does neither.

use std::sync::Arc;

use datafusion::common::{Column, DFSchema, Result, ScalarValue, plan_err};
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{Aggregate, EmptyRelation, Expr, GroupingSet, LogicalPlan, Projection, Union};

/// Is how many grouping sets one GROUP BY has at most, as in PostgreSQL.
const SETS_MAX: usize = 4096;

/// Makes one GROUP BY for each grouping set, given as an aggregate by `plain`; names and types of
/// columns stay what they are. What has no sets is `plain` alone.
pub(super) fn apart(aggregate: Aggregate, plain: impl Fn(LogicalPlan) -> Result<LogicalPlan>) -> Result<LogicalPlan> {
    let [Expr::GroupingSet(sets)] = &aggregate.group_expr[..] else {
        return plain(LogicalPlan::Aggregate(aggregate));
    };
    let keys = grouping_set_to_exprlist(&aggregate.group_expr)?;
    let mut branches = Vec::new();
    for kept in kept(sets, &keys)? {
        branches.push(Arc::new(one_set(&aggregate, &keys, &kept, &plain)?));
    }
    let rows = match <[Arc<LogicalPlan>; 1]>::try_from(branches) {
        Ok([one]) => one,
        Err(several) => Arc::new(LogicalPlan::Union(Union::try_new(several)?)),
    };
    let named = aggregate.schema.iter().enumerate().map(|(at, (relation, field))| {
        Expr::Column(Column::from_name(name(at))).alias_qualified(relation.cloned(), field.name())
    });
    Ok(LogicalPlan::Projection(Projection::try_new(named.collect(), rows)?))
}

/// Names a column within the union: those of the aggregate need not differ without their tables.
fn name(at: usize) -> String {
    format!("__set_{at}")
}

/// Says for each set which of the keys it keeps.
fn kept(sets: &GroupingSet, keys: &[&Expr]) -> Result<Vec<Vec<bool>>> {
    let count = match sets {
        GroupingSet::Rollup(_) => keys.len() + 1,
        GroupingSet::Cube(_) => 1usize.checked_shl(keys.len() as u32).unwrap_or(usize::MAX),
        GroupingSet::GroupingSets(sets) => sets.len(),
    };
    if count > SETS_MAX {
        return plan_err!("a GROUP BY has more than {SETS_MAX} grouping sets");
    }
    let places = 0..keys.len();
    Ok(match sets {
        GroupingSet::Rollup(_) => (0..count)
            .map(|first| places.clone().map(|at| at < first).collect())
            .collect(),
        GroupingSet::Cube(_) => (0..count)
            .map(|set| places.clone().map(|at| set >> at & 1 == 1).collect())
            .collect(),
        GroupingSet::GroupingSets(sets) => sets
            .iter()
            .map(|set| keys.iter().map(|key| set.contains(key)).collect())
            .collect(),
    })
}

/// Groups by the keys of one set: the others are NULL, and the set's number has a bit for each of
/// them, the last key's the lowest.
fn one_set(
    aggregate: &Aggregate,
    keys: &[&Expr],
    kept: &[bool],
    plain: &impl Fn(LogicalPlan) -> Result<LogicalPlan>,
) -> Result<LogicalPlan> {
    let own = keys.iter().zip(kept).filter(|(_, kept)| **kept);
    let own: Vec<Expr> = own.map(|(key, _)| (*key).clone()).collect();
    let rows = if own.is_empty() && aggregate.aggr_expr.is_empty() {
        one_row()
    } else {
        let (input, functions) = (aggregate.input.clone(), aggregate.aggr_expr.clone());
        plain(LogicalPlan::Aggregate(Aggregate::try_new(input, own, functions)?))?
    };
    let type_of = |at: usize| aggregate.schema.field(at).data_type();
    let mut given = rows.schema().columns().into_iter().map(Expr::Column);
    let mut columns: Vec<Expr> = Vec::with_capacity(aggregate.schema.fields().len());
    let mut number = 0u64;
    for (at, kept) in kept.iter().enumerate() {
        number = (number << 1) | u64::from(!kept);
        match kept {
            true => columns.extend(given.next()),
            false => columns.push(Expr::Literal(ScalarValue::try_from(type_of(at))?, None)),
        }
    }
    let number = ScalarValue::UInt64(Some(number)).cast_to(type_of(keys.len()))?;
    columns.push(Expr::Literal(number, None));
    columns.extend(given);
    let columns = columns.into_iter().enumerate();
    let columns = columns.map(|(at, column)| column.alias(name(at))).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(rows))?))
}

/// Is the one group of the empty set where nothing is computed of it.
fn one_row() -> LogicalPlan {
    LogicalPlan::EmptyRelation(EmptyRelation {
        produce_one_row: true,
        schema: Arc::new(DFSchema::empty()),
    })
}
