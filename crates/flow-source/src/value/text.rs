//! Values that the server sent in text form.
//!
//! The server does so only for a type without a send function, and none of the captured types is
//! such; the forms that do not depend on a setting are read all the same, and the others refused.

use flow_core::ColumnType;
use flow_core::row::{Datum, RowBuilder};

use super::{Shape, ValueError, utf8};
use crate::wire_types::{Target, Wire};

const UNREADABLE: ValueError = ValueError::Unfit("a value the server sent in text form");

/// Decodes one text value and adds it to the row.
pub(crate) fn push_text(row: &mut RowBuilder, shape: Shape<'_>, bytes: &[u8]) -> Result<(), ValueError> {
    let text = utf8(bytes)?;
    fn number<T: std::str::FromStr>(text: &str) -> Result<T, ValueError> {
        text.parse().map_err(|_| ValueError::Malformed("number in text form"))
    }
    let datum = match (shape.wire, shape.target, shape.column_type) {
        (Wire::Text | Wire::Bpchar | Wire::Jsonb | Wire::Numeric, Target::Native, ColumnType::String) => {
            Datum::String(text)
        }
        (Wire::Text, Target::Text, ColumnType::String) => Datum::String(text),
        (Wire::Bool, Target::Native, _) => match text {
            "t" => Datum::Boolean(true),
            "f" => Datum::Boolean(false),
            _ => return Err(ValueError::Malformed("boolean in text form")),
        },
        (Wire::Int2 | Wire::Int4, Target::Native, _) => Datum::Int(number(text)?),
        (Wire::Int8, Target::Native, _) => Datum::Long(number(text)?),
        (Wire::Float4, Target::Native, _) => Datum::Float(number(text)?),
        (Wire::Float8, Target::Native, _) => Datum::Double(number(text)?),
        _ => return Err(UNREADABLE),
    };
    row.push(shape.column_type, &datum);
    Ok(())
}
