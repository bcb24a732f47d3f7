//! Cells as text and as JSON, exact in both.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType};
use serde_json::{Map, Number, Value};

use crate::exit::{Exit, Failure};

/// Writes each row's cells as text; `None` is NULL.
pub(in crate::command) fn texts(batch: &RecordBatch) -> Result<Vec<Vec<Option<String>>>, Failure> {
    rows(batch, text)
}

/// Writes each row's cells as JSON. Integers, finite floats and booleans are JSON's own; decimals
/// and everything else are text, since JSON's numbers do not hold them exactly.
pub(in crate::command) fn json_values(batch: &RecordBatch) -> Result<Vec<Vec<Value>>, Failure> {
    rows(batch, json)
}

/// Writes rows as JSON objects, in the forms of [`json_values`].
pub(in crate::command) fn json_rows(batches: &[RecordBatch]) -> Result<Vec<Map<String, Value>>, Failure> {
    let mut rows = Vec::new();
    for batch in batches {
        let schema = batch.schema();
        let names = || schema.fields().iter().map(|field| field.name().clone());
        rows.extend(json_values(batch)?.into_iter().map(|row| names().zip(row).collect()));
    }
    Ok(rows)
}

fn rows<T>(
    batch: &RecordBatch,
    cell: impl Fn(&ArrayRef, usize) -> Result<T, ArrowError>,
) -> Result<Vec<Vec<T>>, Failure> {
    let row = |row| {
        batch
            .columns()
            .iter()
            .map(|column| cell(column, row))
            .collect::<Result<Vec<T>, _>>()
    };
    let rows = (0..batch.num_rows()).map(row).collect::<Result<_, _>>();
    rows.map_err(|error| Failure::new(Exit::Failure, format!("cannot show a value: {error}")))
}

/// Says whether a cell is NULL; a column of nothing but NULL has no marks that say so.
fn is_null(column: &ArrayRef, row: usize) -> bool {
    column.is_null(row) || column.data_type().is_null()
}

fn text(column: &ArrayRef, row: usize) -> Result<Option<String>, ArrowError> {
    if is_null(column, row) {
        return Ok(None);
    }
    let options = FormatOptions::new().with_null("NULL");
    let formatter = ArrayFormatter::try_new(column.as_ref(), &options)?;
    formatter.value(row).try_to_string().map(Some)
}

fn json(column: &ArrayRef, row: usize) -> Result<Value, ArrowError> {
    if is_null(column, row) {
        return Ok(Value::Null);
    }
    Ok(match column.data_type() {
        DataType::Boolean => Value::Bool(column.as_boolean().value(row)),
        kind if kind.is_integer() => {
            let text = text(column, row)?.unwrap_or_default();
            let number: Number = text
                .parse()
                .map_err(|_| ArrowError::CastError(format!("'{text}' is no integer")))?;
            Value::Number(number)
        }
        DataType::Float32 => float(f64::from(column.as_primitive::<Float32Type>().value(row)), column, row)?,
        DataType::Float64 => float(column.as_primitive::<Float64Type>().value(row), column, row)?,
        DataType::List(_) => list(&column.as_list::<i32>().value(row))?,
        DataType::LargeList(_) => list(&column.as_list::<i64>().value(row))?,
        _ => Value::from(text(column, row)?),
    })
}

fn list(items: &ArrayRef) -> Result<Value, ArrowError> {
    (0..items.len())
        .map(|item| json(items, item))
        .collect::<Result<Vec<_>, _>>()
        .map(Value::Array)
}

/// Is a number if JSON has it, else its text: `NaN`, `inf`.
fn float(value: f64, column: &ArrayRef, row: usize) -> Result<Value, ArrowError> {
    match Number::from_f64(value) {
        Some(number) => Ok(Value::Number(number)),
        None => Ok(Value::from(text(column, row)?)),
    }
}

/// Replaces control characters, which would move the cursor of a terminal.
pub(super) fn printable(text: &str) -> String {
    match text.contains(char::is_control) {
        true => text
            .chars()
            .map(|c| {
                if c.is_control() {
                    c.escape_default().to_string()
                } else {
                    c.into()
                }
            })
            .collect(),
        false => text.to_owned(),
    }
}
