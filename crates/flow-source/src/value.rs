//! One value from the wire into row bytes. Copy and stream both come through here.
//!
//! Owns no memory beyond the scratch it is given. Must never panic on bytes and never alter a
//! value: what a column cannot hold is an error that says so.

use flow_core::ColumnType;
use flow_core::row::{Datum, RowBuilder};

use crate::wire_types::{Target, Wire};

mod array;
mod datetime;
mod float;
mod numeric;
mod render;
mod text;

pub(crate) use text::push_text;

/// Says why bytes gave no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueError {
    /// The bytes break the type's form: the connection cannot be trusted.
    Malformed(&'static str),
    /// The value is good and its column cannot hold it.
    Unfit(&'static str),
}

/// Is how a column's bytes arrive and what they become.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape<'a> {
    /// Is the form on the wire.
    pub(crate) wire: &'a Wire,
    /// Says whether PostgreSQL's text is wanted.
    pub(crate) target: &'a Target,
    /// Is the type in the row.
    pub(crate) column_type: &'a ColumnType,
}

const NUL_TEXT: &str = "text that is not UTF-8";

/// Decodes one binary value and adds it to the row. `scratch` is working space.
pub(crate) fn push_binary(
    row: &mut RowBuilder,
    shape: Shape<'_>,
    bytes: &[u8],
    scratch: &mut Vec<u8>,
) -> Result<(), ValueError> {
    row.push(shape.column_type, &binary(shape, bytes, scratch)?);
    Ok(())
}

/// Decodes one binary value; `scratch` may come to hold what the value is made of.
pub(crate) fn binary<'a>(shape: Shape<'a>, bytes: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<Datum<'a>, ValueError> {
    match (shape.wire, shape.target) {
        (Wire::Array(element), Target::Native) => array::list(element, shape.column_type, bytes, scratch),
        (wire, Target::Native) => native(wire, shape.column_type, bytes, scratch),
        (wire, Target::Text) => {
            scratch.clear();
            render::render(wire, bytes, render::Place::Cast, scratch)?;
            Ok(Datum::String(utf8(scratch)?))
        }
    }
}

/// Decodes one scalar to its own type; `scratch` may come to hold the text of the result.
fn native<'a>(
    wire: &Wire,
    column_type: &ColumnType,
    bytes: &'a [u8],
    scratch: &'a mut Vec<u8>,
) -> Result<Datum<'a>, ValueError> {
    Ok(match wire {
        Wire::Bool => Datum::Boolean(boolean(bytes)?),
        Wire::Int2 => Datum::Int(i32::from(i16::from_be_bytes(fixed(bytes)?))),
        Wire::Int4 => Datum::Int(i32::from_be_bytes(fixed(bytes)?)),
        Wire::Int8 => Datum::Long(i64::from_be_bytes(fixed(bytes)?)),
        Wire::Float4 => Datum::Float(f32::from_be_bytes(fixed(bytes)?)),
        Wire::Float8 => Datum::Double(f64::from_be_bytes(fixed(bytes)?)),
        Wire::Numeric => match column_type {
            ColumnType::Decimal { precision, scale } => {
                Datum::Decimal(numeric::Numeric::parse(bytes)?.unscaled(*precision, *scale)?)
            }
            _ => {
                scratch.clear();
                numeric::Numeric::parse(bytes)?.render(scratch);
                Datum::String(utf8(scratch)?)
            }
        },
        Wire::Text | Wire::Bpchar => Datum::String(utf8(bytes)?),
        Wire::Jsonb => Datum::String(utf8(jsonb(bytes)?)?),
        Wire::Bytea => Datum::Binary(bytes),
        Wire::Date => Datum::Date(datetime::date(bytes)?),
        Wire::Time => match column_type {
            ColumnType::Time => Datum::Time(datetime::time_below_24h(bytes)?),
            _ => {
                scratch.clear();
                render::render(wire, bytes, render::Place::Cast, scratch)?;
                Datum::String(utf8(scratch)?)
            }
        },
        Wire::Timestamp => Datum::Timestamp(datetime::timestamp(bytes)?),
        Wire::Timestamptz => Datum::Timestamptz(datetime::timestamp(bytes)?),
        Wire::Uuid => Datum::Uuid(fixed(bytes)?),
        Wire::Array(_) => return Err(ValueError::Malformed("array inside an array")),
    })
}

/// Takes exactly `N` bytes.
fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N], ValueError> {
    bytes
        .try_into()
        .map_err(|_| ValueError::Malformed("value of a fixed size"))
}

fn boolean(bytes: &[u8]) -> Result<bool, ValueError> {
    match bytes {
        [0] => Ok(false),
        [1] => Ok(true),
        _ => Err(ValueError::Malformed("boolean")),
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, ValueError> {
    // A database in SQL_ASCII sends whatever was stored: good bytes, but no text for the lake.
    std::str::from_utf8(bytes).map_err(|_| ValueError::Unfit(NUL_TEXT))
}

fn jsonb(bytes: &[u8]) -> Result<&[u8], ValueError> {
    match bytes.split_first() {
        Some((1, text)) => Ok(text),
        _ => Err(ValueError::Malformed("jsonb version")),
    }
}

#[cfg(test)]
pub(crate) mod tests;
