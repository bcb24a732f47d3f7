//! Any value as PostgreSQL's text, from its binary form: what `value::text` gives with ISO dates
//! in UTC.

use std::io::Write;

use super::{ValueError, array, boolean, datetime, fixed, float, jsonb, numeric};
use crate::wire_types::Wire;

/// Says where a text stands, since a cast and an output function differ for some types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// On its own, as `::text` gives it: booleans spelled out, `character(n)` without its padding.
    Cast,
    /// Inside an array, as the type's output function gives it.
    Element,
}

/// Appends the text of a value.
pub(super) fn render(wire: &Wire, bytes: &[u8], place: Place, out: &mut Vec<u8>) -> Result<(), ValueError> {
    match wire {
        Wire::Bool => out.extend_from_slice(match (boolean(bytes)?, place) {
            (true, Place::Cast) => b"true",
            (false, Place::Cast) => b"false",
            (true, Place::Element) => b"t",
            (false, Place::Element) => b"f",
        }),
        Wire::Int2 => put(out, i16::from_be_bytes(fixed(bytes)?)),
        Wire::Int4 => put(out, i32::from_be_bytes(fixed(bytes)?)),
        Wire::Int8 => put(out, i64::from_be_bytes(fixed(bytes)?)),
        Wire::Float4 => float::render_single(f32::from_be_bytes(fixed(bytes)?), out),
        Wire::Float8 => float::render_double(f64::from_be_bytes(fixed(bytes)?), out),
        Wire::Numeric => numeric::Numeric::parse(bytes)?.render(out),
        Wire::Text => out.extend_from_slice(bytes),
        Wire::Bpchar => {
            let padding = match place {
                Place::Cast => bytes.iter().rev().take_while(|b| **b == b' ').count(),
                Place::Element => 0,
            };
            out.extend_from_slice(&bytes[..bytes.len() - padding]);
        }
        Wire::Jsonb => out.extend_from_slice(jsonb(bytes)?),
        Wire::Bytea => {
            out.extend_from_slice(b"\\x");
            put_hex(out, bytes);
        }
        Wire::Date => datetime::render_date(bytes, out)?,
        Wire::Time => datetime::render_time(bytes, out)?,
        Wire::Timestamp => datetime::render_timestamp(bytes, false, out)?,
        Wire::Timestamptz => datetime::render_timestamp(bytes, true, out)?,
        Wire::Uuid => {
            let uuid: [u8; 16] = fixed(bytes)?;
            for (index, part) in [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]]
                .into_iter()
                .enumerate()
            {
                if index > 0 {
                    out.push(b'-');
                }
                put_hex(out, part);
            }
        }
        Wire::Array(element) => array::render(element, bytes, out)?,
    }
    Ok(())
}

fn put(out: &mut Vec<u8>, number: impl std::fmt::Display) {
    write!(out, "{number}").expect("a vector takes every write");
}

fn put_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(HEX[usize::from(byte >> 4)]);
        out.push(HEX[usize::from(byte & 15)]);
    }
}
