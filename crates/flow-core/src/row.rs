//! One row as bytes: compact, self-delimiting given its schema, the same from copy and stream.
//!
//! Layout, for `n` columns: `⌈n/4⌉` bytes with two state bits per column (column 0 in the lowest
//! bits), then the present values in column order:
//!
//! | type | value bytes |
//! |---|---|
//! | boolean | 1 |
//! | int, float, date | 4, little-endian |
//! | long, double, time, timestamp, timestamptz | 8, little-endian |
//! | decimal | 16, the unscaled number, little-endian |
//! | uuid | 16, network order |
//! | string, binary | varint length, bytes |
//! | list | varint byte length of what follows, varint count, then per element 1 presence byte and its value |
//!
//! # Invariants
//! - A stored row (journal chunk's insert, hot row, data file) has no `Unchanged` column once resolved.
//! - Equal rows are equal bytes, except that floats compare by their bits.

use bytes::Bytes;

use crate::codec::{Malformed, Reader, put_prefixed, put_varint};
use crate::schema::{ColumnType, TableSchema};

/// Says whether a column of a row has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// SQL NULL.
    Null,
    /// A value follows.
    Present,
    /// PostgreSQL did not send the value because an update left it as it was (TOAST).
    Unchanged,
    /// Not part of this row: a column outside the key in a key-only old row, or not kept hot.
    Absent,
}

impl State {
    #[inline]
    fn bits(self) -> u8 {
        match self {
            State::Null => 0,
            State::Present => 1,
            State::Unchanged => 2,
            State::Absent => 3,
        }
    }

    #[inline]
    fn from_bits(bits: u8) -> State {
        match bits & 3 {
            0 => State::Null,
            1 => State::Present,
            2 => State::Unchanged,
            _ => State::Absent,
        }
    }
}

/// Is one value, borrowed from its row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Datum<'a> {
    /// `boolean`.
    Boolean(bool),
    /// `int`.
    Int(i32),
    /// `long`.
    Long(i64),
    /// `float`.
    Float(f32),
    /// `double`.
    Double(f64),
    /// Is the unscaled number of a decimal.
    Decimal(i128),
    /// Is days since 1970-01-01.
    Date(i32),
    /// Is microseconds since midnight.
    Time(i64),
    /// Is microseconds since 1970-01-01 00:00:00, without zone.
    Timestamp(i64),
    /// Is microseconds since 1970-01-01 00:00:00 UTC.
    Timestamptz(i64),
    /// `string`.
    String(&'a str),
    /// `binary`.
    Binary(&'a [u8]),
    /// `uuid`.
    Uuid([u8; 16]),
    /// Is a list; iterate with [`ListRef::iter`].
    List(ListRef<'a>),
}

/// Is a list value inside a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ListRef<'a> {
    bytes: &'a [u8],
    element: &'a ColumnType,
}

impl<'a> ListRef<'a> {
    /// Takes what [`encode_list`] wrote for elements of type `element`.
    pub fn new(bytes: &'a [u8], element: &'a ColumnType) -> Self {
        ListRef { bytes, element }
    }

    /// Reads the elements, `None` for NULL.
    pub fn elements(&self) -> Result<Vec<Option<Datum<'a>>>, Malformed> {
        let mut reader = Reader::new(self.bytes);
        let count = reader.varint("list length")?;
        let mut out = Vec::with_capacity(usize::try_from(count).unwrap_or(0).min(self.bytes.len()));
        for _ in 0..count {
            out.push(match reader.u8("element presence")? {
                0 => None,
                1 => Some(read_value(&mut reader, self.element)?),
                _ => return Err(reader.malformed("element presence")),
            });
        }
        if !reader.is_empty() {
            return Err(reader.malformed("list end"));
        }
        Ok(out)
    }
}

/// Reads one present value of type `column_type`.
#[inline]
fn read_value<'a>(reader: &mut Reader<'a>, column_type: &'a ColumnType) -> Result<Datum<'a>, Malformed> {
    Ok(match column_type {
        ColumnType::Boolean => match reader.u8("boolean")? {
            0 => Datum::Boolean(false),
            1 => Datum::Boolean(true),
            _ => return Err(reader.malformed("boolean")),
        },
        ColumnType::Int => Datum::Int(i32::from_le_bytes(reader.array("int")?)),
        ColumnType::Long => Datum::Long(i64::from_le_bytes(reader.array("long")?)),
        ColumnType::Float => Datum::Float(f32::from_le_bytes(reader.array("float")?)),
        ColumnType::Double => Datum::Double(f64::from_le_bytes(reader.array("double")?)),
        ColumnType::Decimal { .. } => Datum::Decimal(i128::from_le_bytes(reader.array("decimal")?)),
        ColumnType::Date => Datum::Date(i32::from_le_bytes(reader.array("date")?)),
        ColumnType::Time => Datum::Time(i64::from_le_bytes(reader.array("time")?)),
        ColumnType::Timestamp => Datum::Timestamp(i64::from_le_bytes(reader.array("timestamp")?)),
        ColumnType::Timestamptz => Datum::Timestamptz(i64::from_le_bytes(reader.array("timestamptz")?)),
        ColumnType::String => Datum::String(reader.text("string")?),
        ColumnType::Binary => Datum::Binary(reader.prefixed("binary")?),
        ColumnType::Uuid => Datum::Uuid(reader.array("uuid")?),
        ColumnType::List(element) => Datum::List(ListRef {
            bytes: reader.prefixed("list")?,
            element: element.as_ref(),
        }),
    })
}

/// Appends one value.
///
/// # Panics
/// If the datum is not of `column_type`: both sides are this program's.
#[inline]
fn write_value(out: &mut Vec<u8>, column_type: &ColumnType, datum: &Datum<'_>) {
    match (column_type, datum) {
        (ColumnType::Boolean, Datum::Boolean(v)) => out.push(u8::from(*v)),
        (ColumnType::Int, Datum::Int(v)) | (ColumnType::Date, Datum::Date(v)) => {
            out.extend_from_slice(&v.to_le_bytes())
        }
        (ColumnType::Float, Datum::Float(v)) => out.extend_from_slice(&v.to_le_bytes()),
        (ColumnType::Double, Datum::Double(v)) => out.extend_from_slice(&v.to_le_bytes()),
        (ColumnType::Long, Datum::Long(v))
        | (ColumnType::Time, Datum::Time(v))
        | (ColumnType::Timestamp, Datum::Timestamp(v))
        | (ColumnType::Timestamptz, Datum::Timestamptz(v)) => out.extend_from_slice(&v.to_le_bytes()),
        (ColumnType::Decimal { .. }, Datum::Decimal(v)) => out.extend_from_slice(&v.to_le_bytes()),
        (ColumnType::String, Datum::String(v)) => put_prefixed(out, v.as_bytes()),
        (ColumnType::Binary, Datum::Binary(v)) => put_prefixed(out, v),
        (ColumnType::Uuid, Datum::Uuid(v)) => out.extend_from_slice(v),
        (ColumnType::List(_), Datum::List(v)) => put_prefixed(out, v.bytes),
        (column_type, datum) => panic!("a {column_type} column was given {datum:?}"),
    }
}

/// Appends the elements of a list.
///
/// # Panics
/// If an element is not of type `element`.
pub fn encode_list(out: &mut Vec<u8>, element: &ColumnType, elements: &[Option<Datum<'_>>]) {
    put_varint(out, elements.len() as u64);
    for value in elements {
        out.push(u8::from(value.is_some()));
        if let Some(value) = value {
            write_value(out, element, value);
        }
    }
}

/// Counts the bytes of a row in which the states of its columns stand.
pub fn state_bytes(columns: usize) -> usize {
    columns.div_ceil(4)
}

/// Counts the bytes that a value takes in a row.
pub fn encoded_bytes(datum: &Datum<'_>) -> usize {
    let prefixed = |bytes: &[u8]| {
        let length_bits = (usize::BITS - bytes.len().leading_zeros()).max(1);
        length_bits.div_ceil(7) as usize + bytes.len()
    };
    match datum {
        Datum::Boolean(_) => 1,
        Datum::Int(_) | Datum::Float(_) | Datum::Date(_) => 4,
        Datum::Long(_) | Datum::Double(_) | Datum::Time(_) | Datum::Timestamp(_) | Datum::Timestamptz(_) => 8,
        Datum::Decimal(_) | Datum::Uuid(_) => 16,
        Datum::String(text) => prefixed(text.as_bytes()),
        Datum::Binary(bytes) => prefixed(bytes),
        Datum::List(list) => prefixed(list.bytes),
    }
}

/// Is one row, owned and cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Row(Bytes);

impl Row {
    /// Takes bytes that a [`RowBuilder`] made. Reading checks them.
    pub fn from_bytes(bytes: Bytes) -> Self {
        Row(bytes)
    }

    /// Is the encoded row.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Is the encoded row, sharing its memory.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Reads the row column by column.
    pub fn read<'a>(&'a self, schema: &'a TableSchema) -> Result<RowReader<'a>, Malformed> {
        RowReader::new(&self.0, schema)
    }

    /// Reads every column into a vector of states and values.
    pub fn decode<'a>(&'a self, schema: &'a TableSchema) -> Result<Vec<(State, Option<Datum<'a>>)>, Malformed> {
        decode(&self.0, schema)
    }

    /// Says whether a column has the given state, without reading values.
    pub fn has_state(&self, schema: &TableSchema, wanted: State) -> bool {
        has_state(&self.0, schema, wanted)
    }
}

/// Reads every column of encoded row bytes.
pub fn decode<'a>(bytes: &'a [u8], schema: &'a TableSchema) -> Result<Vec<(State, Option<Datum<'a>>)>, Malformed> {
    let mut reader = RowReader::new(bytes, schema)?;
    let mut out = Vec::with_capacity(schema.columns.len());
    while let Some(column) = reader.next_column()? {
        out.push(column);
    }
    Ok(out)
}

/// Says whether any column of encoded row bytes has the given state.
pub fn has_state(bytes: &[u8], schema: &TableSchema, wanted: State) -> bool {
    (0..schema.columns.len()).any(|column| {
        bytes
            .get(column / 4)
            .is_some_and(|b| State::from_bits(b >> ((column % 4) * 2)) == wanted)
    })
}

/// Walks a row's columns in order.
#[derive(Debug)]
pub struct RowReader<'a> {
    states: &'a [u8],
    values: Reader<'a>,
    schema: &'a TableSchema,
    column: usize,
}

impl<'a> RowReader<'a> {
    /// Starts before the first column.
    pub fn new(bytes: &'a [u8], schema: &'a TableSchema) -> Result<Self, Malformed> {
        let mut values = Reader::new(bytes);
        let states = values.bytes(state_bytes(schema.columns.len()), "row states")?;
        Ok(RowReader {
            states,
            values,
            schema,
            column: 0,
        })
    }

    /// Reads the next column; `None` after the last, when the row must end too.
    #[inline]
    pub fn next_column(&mut self) -> Result<Option<(State, Option<Datum<'a>>)>, Malformed> {
        let Some(column) = self.schema.columns.get(self.column) else {
            return if self.values.is_empty() {
                Ok(None)
            } else {
                Err(self.values.malformed("row end"))
            };
        };
        let state = State::from_bits(self.states[self.column / 4] >> ((self.column % 4) * 2));
        self.column += 1;
        let value = match state {
            State::Present => Some(read_value(&mut self.values, &column.column_type)?),
            State::Null | State::Unchanged | State::Absent => None,
        };
        Ok(Some((state, value)))
    }
}

/// Builds row bytes column by column, in column order. Reusable without allocating.
#[derive(Debug, Default)]
pub struct RowBuilder {
    bytes: Vec<u8>,
    columns: usize,
    column: usize,
}

impl RowBuilder {
    /// Makes an empty builder; call [`RowBuilder::start`] before each row.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a row of `columns` columns, forgetting the row before.
    pub fn start(&mut self, columns: usize) {
        self.bytes.clear();
        self.bytes.resize(state_bytes(columns), 0);
        self.columns = columns;
        self.column = 0;
    }

    /// Adds a column without a value.
    #[inline]
    pub fn push_state(&mut self, state: State) {
        debug_assert!(state != State::Present, "a present column has a value");
        self.mark(state);
    }

    /// Adds a column with a value.
    ///
    /// # Panics
    /// If the datum is not of `column_type`.
    #[inline]
    pub fn push(&mut self, column_type: &ColumnType, datum: &Datum<'_>) {
        self.mark(State::Present);
        write_value(&mut self.bytes, column_type, datum);
    }

    /// Adds a column copied from another row.
    pub fn push_column(&mut self, column_type: &ColumnType, column: &(State, Option<Datum<'_>>)) {
        match (column.0, &column.1) {
            (State::Present, Some(datum)) => self.push(column_type, datum),
            (state, _) => self.push_state(state),
        }
    }

    /// Adds a list column from its elements.
    ///
    /// # Panics
    /// If an element is not of type `element`.
    pub fn push_list(&mut self, element: &ColumnType, elements: &[Option<Datum<'_>>]) {
        self.mark(State::Present);
        let mut body = Vec::new();
        encode_list(&mut body, element, elements);
        put_prefixed(&mut self.bytes, &body);
    }

    #[inline]
    fn mark(&mut self, state: State) {
        assert!(self.column < self.columns, "row has {} columns", self.columns);
        self.bytes[self.column / 4] |= state.bits() << ((self.column % 4) * 2);
        self.column += 1;
    }

    /// Is the finished row, valid until the next [`RowBuilder::start`].
    ///
    /// # Panics
    /// If a column is missing.
    pub fn finish(&self) -> &[u8] {
        assert!(
            self.column == self.columns,
            "row has {} of {} columns",
            self.column,
            self.columns
        );
        &self.bytes
    }

    /// Is the finished row as an owned value.
    pub fn finish_row(&self) -> Row {
        Row(Bytes::copy_from_slice(self.finish()))
    }
}

/// Fills the unchanged columns of `new` from `old`; `None` if `old` lacks one of them.
///
/// A column that `old` has as NULL resolves to NULL; one that is absent or itself unchanged in
/// `old` cannot be resolved.
pub fn resolve_unchanged(new: &[u8], old: &[u8], schema: &TableSchema) -> Result<Option<Row>, Malformed> {
    let old = decode(old, schema)?;
    let mut reader = RowReader::new(new, schema)?;
    let mut builder = RowBuilder::new();
    builder.start(schema.columns.len());
    let mut index = 0;
    while let Some(column) = reader.next_column()? {
        let column_type = &schema.columns[index].column_type;
        let column = match (column.0, old[index].0) {
            (State::Unchanged, State::Null | State::Present) => old[index],
            (State::Unchanged, State::Unchanged | State::Absent) => return Ok(None),
            _ => column,
        };
        builder.push_column(column_type, &column);
        index += 1;
    }
    Ok(Some(builder.finish_row()))
}

/// Fills the unchanged columns of `new` that `old` has, and leaves the others unchanged.
pub fn fill_unchanged(new: &[u8], old: &[u8], schema: &TableSchema) -> Result<Row, Malformed> {
    let old = decode(old, schema)?;
    let mut reader = RowReader::new(new, schema)?;
    let mut builder = RowBuilder::new();
    builder.start(schema.columns.len());
    let mut index = 0;
    while let Some(column) = reader.next_column()? {
        let column = match (column.0, old[index].0) {
            (State::Unchanged, State::Null | State::Present) => old[index],
            _ => column,
        };
        builder.push_column(&schema.columns[index].column_type, &column);
        index += 1;
    }
    Ok(builder.finish_row())
}

/// Keeps only the columns in `kept`; the others become absent.
pub fn project(row: &[u8], kept: &[usize], schema: &TableSchema) -> Result<Row, Malformed> {
    let mut reader = RowReader::new(row, schema)?;
    let mut builder = RowBuilder::new();
    builder.start(schema.columns.len());
    let mut index = 0;
    while let Some(column) = reader.next_column()? {
        if kept.contains(&index) {
            builder.push_column(&schema.columns[index].column_type, &column);
        } else {
            builder.push_state(State::Absent);
        }
        index += 1;
    }
    Ok(builder.finish_row())
}

#[cfg(test)]
mod tests;
