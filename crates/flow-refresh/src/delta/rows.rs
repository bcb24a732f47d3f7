//! Rows as bytes: equal bytes are equal rows, and their order is the columns' order.
//!
//! The bytes of one row never begin those of another, so what follows a key in a longer key cannot
//! be taken for a part of it. NULL equals NULL here; floats are equal when their bits are.

use std::collections::HashMap;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_row::{RowConverter, RowParser, Rows, SortField};
use arrow_schema::{Schema, SchemaRef};
use arrow_select::take::take_record_batch;
use datafusion::common::Result;
use flow_core::changes::ChangeBatch;

use super::faults::too_many;

/// Turns columns into the bytes of rows, and back.
#[derive(Debug)]
pub(super) struct RowCodec {
    converter: RowConverter,
    parser: RowParser,
    columns: usize,
}

/// Holds the bytes of a batch's rows.
pub(super) struct RowBytes(Option<Rows>);

impl RowBytes {
    /// Is one row's bytes; none if it has no columns.
    pub(super) fn row(&self, index: usize) -> &[u8] {
        self.0.as_ref().map_or(&[], |rows| rows.row(index).data())
    }
}

impl RowCodec {
    /// Makes a codec for columns in their order.
    pub(super) fn new(fields: Vec<SortField>) -> Result<RowCodec> {
        let columns = fields.len();
        let converter = RowConverter::new(fields)?;
        Ok(RowCodec {
            parser: converter.parser(),
            converter,
            columns,
        })
    }

    /// Makes a codec for all columns of a schema.
    pub(super) fn of(schema: &Schema) -> Result<RowCodec> {
        let fields = schema.fields().iter();
        RowCodec::new(fields.map(|field| SortField::new(field.data_type().clone())).collect())
    }

    /// Encodes a batch's columns.
    pub(super) fn encode(&self, columns: &[ArrayRef]) -> Result<RowBytes> {
        match self.columns {
            0 => Ok(RowBytes(None)),
            _ => Ok(RowBytes(Some(self.converter.convert_columns(columns)?))),
        }
    }

    /// Decodes rows that this codec encoded.
    pub(super) fn decode<'a>(&'a self, rows: impl Iterator<Item = &'a [u8]>) -> Result<Vec<ArrayRef>> {
        match self.columns {
            0 => Ok(Vec::new()),
            _ => Ok(self.converter.convert_rows(rows.map(|row| self.parser.parse(row)))?),
        }
    }
}

/// Puts columns under a schema; works for no columns, too.
pub(super) fn batch(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}

/// Is a batch without rows.
pub(super) fn none(schema: &SchemaRef) -> ChangeBatch {
    ChangeBatch::of(RecordBatch::new_empty(schema.clone()), 0)
}

/// Takes rows by number.
pub(super) fn take(rows: &RecordBatch, indices: Vec<u32>) -> Result<RecordBatch> {
    if rows.num_columns() == 0 {
        return batch(rows.schema_ref(), Vec::new(), indices.len());
    }
    Ok(take_record_batch(rows, &UInt32Array::from(indices))?)
}

/// Puts batches of one schema together.
pub(super) fn concat(schema: &SchemaRef, parts: &[ChangeBatch]) -> Result<ChangeBatch> {
    if let [one] = parts {
        return Ok(one.clone());
    }
    let rows = parts.iter().map(|part| &part.rows);
    let count = parts.iter().map(|part| part.weights.len()).sum();
    let rows = match schema.fields().is_empty() {
        true => batch(schema, Vec::new(), count)?,
        false => arrow_select::concat::concat_batches(schema, rows)?,
    };
    let weights = parts.iter().flat_map(|part| part.weights.iter().copied()).collect();
    Ok(ChangeBatch { rows, weights })
}

/// Adds up the weights of equal rows, given by their bytes; gives first places and sums, in order of
/// first places, zeros left out.
pub(super) fn sums<'a>(rows: impl Iterator<Item = &'a [u8]>, weights: &[i64]) -> Result<(Vec<u32>, Vec<i64>)> {
    let mut known: HashMap<&[u8], usize> = HashMap::with_capacity(weights.len());
    let mut firsts = Vec::new();
    let mut sums: Vec<i64> = Vec::new();
    for (at, (row, weight)) in rows.zip(weights).enumerate() {
        let place = *known.entry(row).or_insert(sums.len());
        if place == sums.len() {
            firsts.push(u32::try_from(at).map_err(|_| too_many())?);
            sums.push(0);
        }
        sums[place] = sums[place].checked_add(*weight).ok_or_else(too_many)?;
    }
    let kept = firsts.into_iter().zip(sums).filter(|(_, sum)| *sum != 0);
    Ok(kept.unzip())
}

/// Adds up equal rows, drops those that cancel, and puts the rest in order of their bytes.
pub(super) fn consolidate(codec: &RowCodec, changes: ChangeBatch) -> Result<ChangeBatch> {
    let bytes = codec.encode(changes.rows.columns())?;
    let rows = (0..changes.weights.len()).map(|at| bytes.row(at));
    let (firsts, sums) = sums(rows, &changes.weights)?;
    let mut kept: Vec<(u32, i64)> = firsts.into_iter().zip(sums).collect();
    kept.sort_unstable_by(|a, b| bytes.row(a.0 as usize).cmp(bytes.row(b.0 as usize)));
    let (indices, weights) = kept.into_iter().unzip();
    Ok(ChangeBatch {
        rows: take(&changes.rows, indices)?,
        weights,
    })
}
