//! A refresh's changes as rows to write, and rows of the table known by their content.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, UInt64Array};
use arrow_row::{RowConverter, SortField};
use arrow_schema::{Fields, Schema};
use datafusion::common::DataFusionError;
use flow_core::changes::ChangeBatch;
use sha2::{Digest, Sha256};

use crate::error::RefreshError;
use crate::output::cast_columns;
use crate::plan::{Mode, PlannedTable};
use crate::refresh::{RefreshContext, RefreshInput, first_snapshot, stored_columns, with_lineage};

/// Is how many rows an inserted batch holds at most.
const BATCH_ROWS_MAX: usize = 8192;

/// Names a row by its content: the first half of the SHA-256 of its bytes, in which equal rows are
/// equal, bit for bit, NULL equal to NULL.
pub type RowDigest = [u8; 16];

/// Makes digests of a dynamic table's rows.
#[derive(Debug)]
pub struct RowDigests {
    fields: Fields,
    converter: RowConverter,
}

impl RowDigests {
    /// Makes digests over the user's columns of a table.
    ///
    /// # Errors
    /// BlockTable: a column's type has no order of bytes.
    pub fn new(table: &PlannedTable) -> Result<Self, RefreshError> {
        let arrow = flow_core::arrow::arrow_schema(&table.output);
        let fields: Fields = arrow.fields()[..table.user_columns].to_vec().into();
        let sorts = fields.iter().map(|field| SortField::new(field.data_type().clone()));
        let converter = RowConverter::new(sorts.collect()).map_err(|error| failed(table, error.into()))?;
        Ok(RowDigests { fields, converter })
    }

    /// Gives a digest for each stored row, of whose columns the lineage takes no part.
    ///
    /// # Errors
    /// BlockTable: the table has other columns.
    pub fn of_stored(&self, table: &PlannedTable, batch: &RecordBatch) -> Result<Vec<RowDigest>, RefreshError> {
        self.of(&stored_columns(table, batch)?)
            .map_err(|error| failed(table, error))
    }

    fn of(&self, columns: &[ArrayRef]) -> Result<Vec<RowDigest>, DataFusionError> {
        let columns = cast_columns(columns, &self.fields)?;
        let rows = self.converter.convert_columns(&columns)?;
        let digest = |row: arrow_row::Row<'_>| {
            let whole = Sha256::digest(row.data());
            let mut half = RowDigest::default();
            half.copy_from_slice(&whole[..16]);
            half
        };
        Ok(rows.iter().map(digest).collect())
    }
}

/// Is what a change of content asks of the table's files.
#[derive(Clone, Debug, Default)]
pub struct RowsToWrite {
    /// Holds the rows to insert, lineage columns included, in the types of
    /// `flow_core::arrow::arrow_schema(output)`.
    pub inserted: Vec<RecordBatch>,
    /// Names each inserted row, in order.
    pub inserted_digests: Vec<RowDigest>,
    /// Names the rows that go, each once, with the number of copies.
    pub deleted: Vec<(RowDigest, u64)>,
}

/// Turns a consolidated change of a table's content into rows to insert and rows to find and delete.
///
/// # Errors
/// BlockTable: too little memory.
pub fn rows_to_write(
    table: &PlannedTable,
    change: &ChangeBatch,
    inputs: &[RefreshInput],
    context: &RefreshContext,
) -> Result<RowsToWrite, RefreshError> {
    let engine = |error: DataFusionError| failed(table, error);
    let digests = RowDigests::new(table)?.of(change.rows.columns()).map_err(engine)?;
    let arrow = flow_core::arrow::arrow_schema(&table.output);
    let user = Arc::new(Schema::new(arrow.fields()[..table.user_columns].to_vec()));
    let first_input = first_snapshot(table, inputs);
    let mut rows = RowsToWrite::default();
    let mut taken: Vec<u64> = Vec::new();
    for (row, (weight, digest)) in (0_u64..).zip(change.weights.iter().zip(&digests)) {
        match u64::try_from(*weight) {
            Ok(copies) => {
                for _ in 0..copies {
                    taken.push(row);
                    rows.inserted_digests.push(*digest);
                }
            }
            Err(_) => rows.deleted.push((*digest, weight.unsigned_abs())),
        }
    }
    for chunk in taken.chunks(BATCH_ROWS_MAX) {
        let picks = UInt64Array::from(chunk.to_vec());
        let columns = change.rows.columns().iter();
        let columns = columns.map(|column| arrow_select::take::take(column, &picks, None));
        let columns = columns
            .collect::<Result<Vec<ArrayRef>, _>>()
            .map_err(|error| engine(error.into()))?;
        let columns = cast_columns(&columns, user.fields()).map_err(engine)?;
        debug_assert!(columns.iter().all(|column| column.len() == chunk.len()));
        let columns = with_lineage(columns, Mode::Incremental, first_input, context);
        let batch = RecordBatch::try_new(arrow.clone(), columns).map_err(|error| engine(error.into()))?;
        rows.inserted.push(batch);
    }
    Ok(rows)
}

fn failed(table: &PlannedTable, error: DataFusionError) -> RefreshError {
    RefreshError::from_engine(&table.name.to_string(), 0, &error)
}
