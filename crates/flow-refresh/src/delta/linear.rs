//! Operators whose change is that of their input's rows, one by one: they keep no state.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_schema::SchemaRef;
use arrow_select::filter::prep_null_mask_filter;
use datafusion::common::{DataFusionError, Result};
use datafusion::physical_expr::PhysicalExpr;
use flow_core::changes::ChangeBatch;

use super::arrangement::evaluate;
use super::rows;

/// Computes columns.
pub(super) fn project(
    exprs: &[Arc<dyn PhysicalExpr>],
    schema: &SchemaRef,
    changes: &ChangeBatch,
) -> Result<ChangeBatch> {
    let columns = evaluate(exprs, &changes.rows)?;
    Ok(ChangeBatch {
        rows: rows::batch(schema, columns, changes.weights.len())?,
        weights: changes.weights.clone(),
    })
}

/// Says of each row whether a condition is true; NULL is not.
pub(super) fn passes(condition: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Result<BooleanArray> {
    let mask = condition.evaluate(rows)?.into_array(rows.num_rows())?;
    let mask = mask
        .as_boolean_opt()
        .ok_or_else(|| DataFusionError::Internal("a condition is not boolean".to_owned()))?;
    Ok(match mask.nulls() {
        Some(_) => prep_null_mask_filter(mask),
        None => mask.clone(),
    })
}

/// Keeps the rows for which a condition is true.
pub(super) fn filter(condition: &Arc<dyn PhysicalExpr>, changes: &ChangeBatch) -> Result<ChangeBatch> {
    let mask = passes(condition, &changes.rows)?;
    let kept: Vec<u32> = mask.values().set_indices().map(|at| at as u32).collect();
    Ok(ChangeBatch {
        weights: kept.iter().map(|at| changes.weights[*at as usize]).collect(),
        rows: rows::take(&changes.rows, kept)?,
    })
}

/// Puts the changes of all inputs together, under one schema.
pub(super) fn union(schema: &SchemaRef, inputs: &[&ChangeBatch]) -> Result<ChangeBatch> {
    let parts = inputs.iter().map(|input| {
        let columns = input.rows.columns().to_vec();
        Ok(ChangeBatch {
            rows: rows::batch(schema, columns, input.weights.len())?,
            weights: input.weights.clone(),
        })
    });
    rows::concat(schema, &parts.collect::<Result<Vec<_>>>()?)
}
