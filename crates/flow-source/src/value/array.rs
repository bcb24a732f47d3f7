//! Arrays in their binary form: as lists where they are plain vectors, as PostgreSQL's text where
//! the user chose `string`.
//!
//! Source: PostgreSQL's `array_send` and `array_out`.

use std::io::Write;

use flow_core::ColumnType;
use flow_core::row::{Datum, ListRef, encode_list};

use super::render::{self, Place};
use super::{ValueError, native, utf8};
use crate::wire_types::Wire;

/// Is PostgreSQL's limit on dimensions (`MAXDIM`).
const MAX_DIMENSIONS: usize = 6;

const BAD: ValueError = ValueError::Malformed("array");

/// Is an array's head, and its elements still encoded.
struct Array<'a> {
    /// Holds `(length, lower bound)` of each dimension.
    dimensions: Vec<(usize, i32)>,
    elements: Elements<'a>,
}

/// Walks the encoded elements; `None` is NULL.
#[derive(Clone, Copy)]
struct Elements<'a> {
    bytes: &'a [u8],
}

impl<'a> Elements<'a> {
    fn next(&mut self) -> Result<Option<&'a [u8]>, ValueError> {
        let (length, rest) = self.bytes.split_first_chunk::<4>().ok_or(BAD)?;
        let length = i32::from_be_bytes(*length);
        if length == -1 {
            self.bytes = rest;
            return Ok(None);
        }
        let length = usize::try_from(length).map_err(|_| BAD)?;
        let (value, rest) = rest.split_at_checked(length).ok_or(BAD)?;
        self.bytes = rest;
        Ok(Some(value))
    }
}

fn parse(bytes: &[u8]) -> Result<Array<'_>, ValueError> {
    let word = |at: usize| {
        let bytes: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(i32::from_be_bytes(bytes))
    };
    let count = usize::try_from(word(0).ok_or(BAD)?).map_err(|_| BAD)?;
    if count > MAX_DIMENSIONS {
        return Err(BAD);
    }
    let mut dimensions = Vec::with_capacity(count);
    for dimension in 0..count {
        let at = 12 + dimension * 8;
        let length = usize::try_from(word(at).ok_or(BAD)?).map_err(|_| BAD)?;
        dimensions.push((length, word(at + 4).ok_or(BAD)?));
    }
    let body = bytes.get(12 + count * 8..).ok_or(BAD)?;
    // Each element takes at least its length word, so no count can ask for more than was sent.
    let total = match count {
        0 => Some(0),
        _ => dimensions
            .iter()
            .try_fold(1usize, |all, (length, _)| all.checked_mul(*length)),
    };
    match total {
        Some(total) if total <= body.len() / 4 => {}
        _ => return Err(BAD),
    }
    Ok(Array {
        dimensions,
        elements: Elements { bytes: body },
    })
}

/// Decodes a one-dimensional array with lower bound 1 as a list, which `scratch` comes to hold.
pub(super) fn list<'a>(
    wire: &Wire,
    column_type: &'a ColumnType,
    bytes: &[u8],
    scratch: &'a mut Vec<u8>,
) -> Result<Datum<'a>, ValueError> {
    let ColumnType::List(element_type) = column_type else {
        return Err(BAD);
    };
    let array = parse(bytes)?;
    let length = match array.dimensions.as_slice() {
        [] => 0,
        [(length, 1)] => *length,
        [_] => return Err(ValueError::Unfit("an array whose lower bound is not 1")),
        _ => return Err(ValueError::Unfit("an array of several dimensions")),
    };
    let mut elements = array.elements;
    let mut encoded = Vec::with_capacity(length);
    for _ in 0..length {
        encoded.push(elements.next()?);
    }
    if !elements.bytes.is_empty() {
        return Err(BAD);
    }
    let mut body = Vec::new();
    if makes_text(wire, element_type) {
        // The texts are gathered first, since a datum borrows its text.
        scratch.clear();
        let mut ends = Vec::with_capacity(length);
        for value in &encoded {
            if let Some(value) = value {
                render::render(wire, value, Place::Element, scratch)?;
            }
            ends.push(scratch.len());
        }
        let text = utf8(scratch)?;
        let mut start = 0;
        let mut data = Vec::with_capacity(length);
        for (value, end) in encoded.iter().zip(ends) {
            data.push(value.map(|_| Datum::String(&text[start..end])));
            start = end;
        }
        encode_list(&mut body, element_type, &data);
    } else {
        let mut data = Vec::with_capacity(length);
        for value in encoded {
            data.push(match value {
                // Such an element never needs working space; see `makes_text`.
                Some(value) => Some(element(wire, element_type, value)?),
                None => None,
            });
        }
        encode_list(&mut body, element_type, &data);
    }
    *scratch = body;
    Ok(Datum::List(ListRef::new(scratch, element_type)))
}

/// Says whether an element becomes a text that is not among its bytes.
fn makes_text(wire: &Wire, element_type: &ColumnType) -> bool {
    element_type == &ColumnType::String && matches!(wire, Wire::Numeric | Wire::Time)
}

fn element<'a>(wire: &Wire, element_type: &ColumnType, bytes: &'a [u8]) -> Result<Datum<'a>, ValueError> {
    let mut unused = Vec::new();
    match native(wire, element_type, bytes, &mut unused)? {
        Datum::String(_) => Ok(Datum::String(utf8(match wire {
            Wire::Jsonb => super::jsonb(bytes)?,
            _ => bytes,
        })?)),
        Datum::Binary(_) => Ok(Datum::Binary(bytes)),
        Datum::Boolean(v) => Ok(Datum::Boolean(v)),
        Datum::Int(v) => Ok(Datum::Int(v)),
        Datum::Long(v) => Ok(Datum::Long(v)),
        Datum::Float(v) => Ok(Datum::Float(v)),
        Datum::Double(v) => Ok(Datum::Double(v)),
        Datum::Decimal(v) => Ok(Datum::Decimal(v)),
        Datum::Date(v) => Ok(Datum::Date(v)),
        Datum::Time(v) => Ok(Datum::Time(v)),
        Datum::Timestamp(v) => Ok(Datum::Timestamp(v)),
        Datum::Timestamptz(v) => Ok(Datum::Timestamptz(v)),
        Datum::Uuid(v) => Ok(Datum::Uuid(v)),
        Datum::List(_) => Err(BAD),
    }
}

/// Writes an array of any shape as PostgreSQL's output function does.
pub(super) fn render(wire: &Wire, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
    let array = parse(bytes)?;
    if array.dimensions.iter().any(|(length, _)| *length == 0) || array.dimensions.is_empty() {
        out.extend_from_slice(b"{}");
        return Ok(());
    }
    if array.dimensions.iter().any(|(_, lower)| *lower != 1) {
        for (length, lower) in &array.dimensions {
            let upper = i64::from(*lower) + *length as i64 - 1;
            write!(out, "[{lower}:{upper}]").expect("a vector takes every write");
        }
        out.push(b'=');
    }
    let mut elements = array.elements;
    put_dimension(wire, &array.dimensions, &mut elements, out)?;
    match elements.bytes {
        [] => Ok(()),
        _ => Err(BAD),
    }
}

fn put_dimension(
    wire: &Wire,
    dimensions: &[(usize, i32)],
    elements: &mut Elements<'_>,
    out: &mut Vec<u8>,
) -> Result<(), ValueError> {
    let Some(((length, _), inner)) = dimensions.split_first() else {
        return put_element(wire, elements.next()?, out);
    };
    out.push(b'{');
    for index in 0..*length {
        if index > 0 {
            out.push(b',');
        }
        put_dimension(wire, inner, elements, out)?;
    }
    out.push(b'}');
    Ok(())
}

fn put_element(wire: &Wire, value: Option<&[u8]>, out: &mut Vec<u8>) -> Result<(), ValueError> {
    let Some(value) = value else {
        out.extend_from_slice(b"NULL");
        return Ok(());
    };
    let mut text = Vec::new();
    render::render(wire, value, Place::Element, &mut text)?;
    let special = |b: &u8| {
        matches!(
            b,
            b'"' | b'\\' | b'{' | b'}' | b',' | b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c
        )
    };
    if !text.is_empty() && !text.eq_ignore_ascii_case(b"NULL") && !text.iter().any(special) {
        out.extend_from_slice(&text);
        return Ok(());
    }
    out.push(b'"');
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
    Ok(())
}
