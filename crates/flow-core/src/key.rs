//! Keys as bytes: equal in PostgreSQL exactly when equal here, and sorted the same for most types.
//!
//! Sorted keys give the row index locality (`BIGSERIAL` keys arrive in order); only equality is
//! relied on. Where PostgreSQL's `=` is coarser than the stored value, the key is normalised: `-0.0`
//! is `0.0`, every NaN is one, and a numeric kept as exact text loses trailing zeros.

use crate::codec::Malformed;
use crate::row::{Datum, RowReader, State, decode};
use crate::schema::{Column, ColumnType, TableSchema};

/// Says why row bytes give no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The row's bytes are broken.
    #[error("row cannot be read")]
    Malformed(#[from] Malformed),
    /// A key column has no value in the row.
    #[error("key column {0} has no value")]
    Missing(usize),
}

/// Encodes the key of a row into `out`, which is cleared first.
///
/// # Errors
/// [`KeyError::Missing`] where a key column is NULL, unchanged or absent.
pub fn encode_key(row: &[u8], schema: &TableSchema, out: &mut Vec<u8>) -> Result<(), KeyError> {
    out.clear();
    if !schema.key.is_sorted() {
        let columns = decode(row, schema)?;
        return schema
            .key
            .iter()
            .try_for_each(|&index| put_column(out, schema, index, columns[index]));
    }
    // Keys mostly come first: what follows the last key column is not read.
    let mut reader = RowReader::new(row, schema)?;
    let mut read = 0;
    for &index in &schema.key {
        while let Some(column) = reader.next_column()? {
            read += 1;
            if read > index {
                put_column(out, schema, index, column)?;
                break;
            }
        }
    }
    Ok(())
}

/// Makes the key of a row that is given value by value, in the same bytes as [`encode_key`].
#[derive(Debug)]
pub struct KeyBuilder {
    /// Holds each key column's part, in key order.
    parts: Vec<Vec<u8>>,
    /// Holds, for each column of the table, its place in the key.
    places: Vec<Option<usize>>,
    key: Vec<u8>,
}

impl KeyBuilder {
    /// Makes keys of the table.
    pub fn new(schema: &TableSchema) -> Self {
        let place = |column| schema.key.iter().position(|&index| index == column);
        KeyBuilder {
            parts: vec![Vec::new(); schema.key.len()],
            places: (0..schema.columns.len()).map(place).collect(),
            key: Vec::new(),
        }
    }

    /// Takes a column's value; one that is no part of the key is passed over.
    ///
    /// # Errors
    /// [`KeyError::Missing`] where a key column is NULL.
    #[inline]
    pub fn value(&mut self, schema: &TableSchema, column: usize, value: Option<&Datum<'_>>) -> Result<(), KeyError> {
        let Some(place) = self.places[column] else {
            return Ok(());
        };
        let part = &mut self.parts[place];
        part.clear();
        match value {
            Some(datum) => Ok(put_datum(part, &schema.columns[column], datum)?),
            None => Err(KeyError::Missing(column)),
        }
    }

    /// Is the key of the row whose values were taken last.
    pub fn finish(&mut self) -> &[u8] {
        if let [only] = &self.parts[..] {
            return only;
        }
        self.key.clear();
        self.parts.iter().for_each(|part| self.key.extend_from_slice(part));
        &self.key
    }
}

fn put_column(
    out: &mut Vec<u8>,
    schema: &TableSchema,
    index: usize,
    column: (State, Option<Datum<'_>>),
) -> Result<(), KeyError> {
    match column {
        (State::Present, Some(datum)) => Ok(put_datum(out, &schema.columns[index], &datum)?),
        _ => Err(KeyError::Missing(index)),
    }
}

fn put_datum(out: &mut Vec<u8>, column: &Column, datum: &Datum<'_>) -> Result<(), Malformed> {
    match datum {
        Datum::Boolean(v) => out.push(u8::from(*v)),
        Datum::Int(v) | Datum::Date(v) => out.extend_from_slice(&((*v as u32) ^ (1 << 31)).to_be_bytes()),
        Datum::Long(v) | Datum::Time(v) | Datum::Timestamp(v) | Datum::Timestamptz(v) => {
            out.extend_from_slice(&((*v as u64) ^ (1 << 63)).to_be_bytes());
        }
        Datum::Float(v) => out.extend_from_slice(&sortable_float(f64::from(*v)).to_be_bytes()),
        Datum::Double(v) => out.extend_from_slice(&sortable_float(*v).to_be_bytes()),
        Datum::Decimal(v) => out.extend_from_slice(&((*v as u128) ^ (1 << 127)).to_be_bytes()),
        Datum::String(v) if is_number_text(column) => put_escaped(out, canonical_number(v).as_bytes()),
        Datum::String(v) => put_escaped(out, v.as_bytes()),
        Datum::Binary(v) => put_escaped(out, v),
        Datum::Uuid(v) => out.extend_from_slice(v),
        Datum::List(list) => {
            for element in list.elements()? {
                match element {
                    Some(datum) => {
                        out.push(1);
                        put_datum(out, column, &datum)?;
                    }
                    None => out.push(2),
                }
            }
            out.push(0);
        }
    }
    Ok(())
}

/// Says whether the column holds PostgreSQL numerics as exact text.
fn is_number_text(column: &Column) -> bool {
    let text = match &column.column_type {
        ColumnType::List(element) => element.as_ref() == &ColumnType::String,
        other => other == &ColumnType::String,
    };
    text && column.source_type.starts_with("numeric")
}

/// Removes what PostgreSQL's numeric `=` does not see: trailing zeros and the sign of zero.
fn canonical_number(text: &str) -> String {
    let trimmed = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    };
    match trimmed {
        "-0" | "" | "-" => "0".to_owned(),
        other => other.to_owned(),
    }
}

/// Orders floats as PostgreSQL does: one NaN above all, one zero.
fn sortable_float(value: f64) -> u64 {
    let value = if value.is_nan() {
        f64::NAN.copysign(1.0)
    } else if value == 0.0 {
        0.0
    } else {
        value
    };
    let bits = value.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | (1 << 63) }
}

/// Appends bytes so that no key is a prefix of another: `00` becomes `00 ff`, the end is `00 00`.
fn put_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

#[cfg(test)]
mod tests;
