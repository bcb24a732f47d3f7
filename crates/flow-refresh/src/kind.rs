//! PostgreSQL's families of types, as far as columns and expressions have them.

use arrow_schema::DataType;
use datafusion::logical_expr::Expr;

/// Is the type of a number that no decimal holds, as a syntax tree names it. Nobody else writes it.
pub(crate) const WIDE_NUMBER: &str = "__wide_number";

/// Is that type in a plan: no column has it.
pub(crate) const WIDE_NUMBER_TYPE: DataType = DataType::Decimal256(76, 0);

/// Is the text of a number that no decimal holds.
pub(crate) fn wide_number(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Cast(cast) if cast.data_type == WIDE_NUMBER_TYPE => cast.expr.as_literal()?.try_as_str()?,
        _ => None,
    }
}

/// Is a family of types that PostgreSQL treats alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Boolean,
    Integer,
    Decimal,
    Float,
    Text,
    Date,
    Timestamp,
    Timestamptz,
    Time,
    Interval,
    Uuid,
    Binary,
    Array,
    /// Is a NULL without a type, or a type that cannot be told yet; it meets everything.
    Unknown,
    /// Is a type that PostgreSQL does not have.
    Other,
}

impl Kind {
    /// Is the family of an engine's type.
    pub(crate) fn of(data_type: &DataType) -> Kind {
        match data_type {
            DataType::Boolean => Kind::Boolean,
            integer if integer.is_integer() => Kind::Integer,
            DataType::Decimal128(_, _) | DataType::Decimal256(_, _) => Kind::Decimal,
            float if float.is_floating() => Kind::Float,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Kind::Text,
            DataType::Date32 => Kind::Date,
            DataType::Timestamp(_, None) => Kind::Timestamp,
            DataType::Timestamp(_, Some(_)) => Kind::Timestamptz,
            DataType::Time32(_) | DataType::Time64(_) => Kind::Time,
            DataType::Interval(_) | DataType::Duration(_) => Kind::Interval,
            DataType::FixedSizeBinary(16) => Kind::Uuid,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
                Kind::Binary
            }
            DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(_, _) => Kind::Array,
            DataType::Dictionary(_, value) => Kind::of(value),
            DataType::Null => Kind::Unknown,
            _ => Kind::Other,
        }
    }

    /// Is the name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Boolean => "boolean",
            Kind::Integer => "integer",
            Kind::Decimal => "numeric",
            Kind::Float => "double precision",
            Kind::Text => "text",
            Kind::Date => "date",
            Kind::Timestamp => "timestamp",
            Kind::Timestamptz => "timestamptz",
            Kind::Time => "time",
            Kind::Interval => "interval",
            Kind::Uuid => "uuid",
            Kind::Binary => "bytea",
            Kind::Array => "array",
            Kind::Unknown => "unknown",
            Kind::Other => "a type that PostgreSQL does not have",
        }
    }

    /// Says whether it is an integer, a decimal or a float.
    pub(crate) fn is_number(self) -> bool {
        matches!(self, Kind::Integer | Kind::Decimal | Kind::Float)
    }

    /// Says whether PostgreSQL has a common type for both without a cast.
    pub(crate) fn meets(self, other: Kind) -> bool {
        let moment = |kind| matches!(kind, Kind::Date | Kind::Timestamp | Kind::Timestamptz);
        self == other
            || self == Kind::Unknown
            || other == Kind::Unknown
            || (self.is_number() && other.is_number())
            || (moment(self) && moment(other))
    }
}
