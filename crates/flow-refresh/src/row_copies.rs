//! Rows of an input as bytes: the copies that state keeps of them, with the columns that a plan reads.

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{Schema, SchemaRef};
use datafusion::common::DataFusionError;

use crate::delta::DeltaInput;
use crate::error::RefreshError;
use crate::plan::PlannedTable;
use crate::source::conform;

/// Makes copies of one input's rows, and rows of copies.
#[derive(Debug)]
pub struct RowCopies {
    table: String,
    schema: SchemaRef,
    converter: RowConverter,
}

impl RowCopies {
    /// Makes copies of the columns that `input` names; their types are those of the plan.
    ///
    /// # Errors
    /// BlockTable: a column's type has no bytes, or the plan does not know the column.
    pub fn new(table: &PlannedTable, input: &DeltaInput) -> Result<RowCopies, RefreshError> {
        let name = table.name.to_string();
        let fail = |error: DataFusionError| failed(&name, error);
        let known = table.input_schemas.get(&input.name);
        let whole = known.ok_or_else(|| fail(DataFusionError::Plan(format!("{} is no input", input.name))))?;
        let fields = input
            .columns
            .iter()
            .map(|column| Ok(whole.field_with_name(column)?.clone()));
        let schema = Schema::new(fields.collect::<Result<Vec<_>, DataFusionError>>().map_err(fail)?);
        let sorts = schema
            .fields()
            .iter()
            .map(|field| SortField::new(field.data_type().clone()));
        let converter = RowConverter::new(sorts.collect()).map_err(|error| fail(error.into()))?;
        Ok(RowCopies {
            table: name,
            schema: schema.into(),
            converter,
        })
    }

    /// Makes a copy of each row.
    ///
    /// # Errors
    /// BlockTable: the batch has other columns.
    pub fn copy(&self, batch: &RecordBatch) -> Result<Copies, RefreshError> {
        let copied = || -> Result<Rows, DataFusionError> {
            let rows = conform(batch, &self.schema)?;
            Ok(self.converter.convert_columns(rows.columns())?)
        };
        // The converter takes no columns for no rows.
        let rows = (!self.schema.fields().is_empty()).then(copied).transpose();
        Ok(Copies(rows.map_err(|error| failed(&self.table, error))?))
    }

    /// Makes rows of copies.
    ///
    /// # Errors
    /// BlockTable: bytes that are no copies.
    pub fn rows<'a>(&self, copies: impl Iterator<Item = &'a [u8]>) -> Result<RecordBatch, RefreshError> {
        let parser = self.converter.parser();
        let mut count = 0;
        let copies = copies.inspect(|_| count += 1).map(|copy| parser.parse(copy));
        let columns = if self.schema.fields().is_empty() {
            copies.for_each(drop);
            Ok(Vec::new())
        } else {
            self.converter.convert_rows(copies)
        };
        let made = |columns: Vec<ArrayRef>| {
            let options = RecordBatchOptions::new().with_row_count(Some(count));
            RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
        };
        columns
            .and_then(made)
            .map_err(|error| failed(&self.table, error.into()))
    }
}

fn failed(table: &str, error: DataFusionError) -> RefreshError {
    RefreshError::from_engine(table, 0, &error)
}

/// Is the copies of a batch's rows, in order.
#[derive(Debug)]
pub struct Copies(Option<Rows>);

impl Copies {
    /// Is one row's copy.
    pub fn of(&self, row: usize) -> &[u8] {
        self.0.as_ref().map_or(&[], |rows| rows.row(row).data())
    }
}
