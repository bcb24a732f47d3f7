//! The initial copy: a table's rows as of an exported snapshot, in the same bytes as the stream's.
//!
//! 1. [`open_copy_session`] imports the snapshot; from then on the exporting session may end.
//! 2. [`CopySession::copy`] locks the table against changes of its definition and makes sure that it
//!    is the one to be captured, as it was and as it is. The lock ends with the session.
//! 3. It reads `COPY … (FORMAT binary)` and hands on each row as a [`CopiedRow`], which decodes its
//!    values with the decoder the stream uses, so that both give the same by construction.

use flow_core::row::{Datum, RowBuilder, State};
use flow_core::schema::quote_identifier;

use crate::capture::CaptureTable;
use crate::error::SourceError;
use crate::options::SourceOptions;
use crate::session::{self, Kind, Session, TextRow};
use crate::slot::{quote_literal, require_system};
use crate::sql::SESSION_SETTINGS;
use crate::value::{Shape, ValueError, binary};

/// Holds a transaction that sees an exported snapshot.
#[derive(Debug)]
pub struct CopySession {
    session: Session,
}

/// Opens a session and imports the snapshot; when this returns, the snapshot may go.
///
/// # Errors
/// [`SourceError::SnapshotGone`] (retry with another snapshot), [`SourceError::OtherSystem`]
/// (resync), or as for any connection.
pub async fn open_copy_session(options: &SourceOptions, snapshot: &str) -> Result<CopySession, SourceError> {
    let mut session = session::open(options, Kind::Plain).await?;
    require_system(&mut session, options).await?;
    session.query("setting up a session", SESSION_SETTINGS).await?;
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    session.query("beginning a copy", begin).await?;
    let import = format!("SET TRANSACTION SNAPSHOT {}", quote_literal(snapshot));
    match session.query("importing the snapshot", &import).await {
        Ok(_) => Ok(CopySession { session }),
        // "snapshot does not exist" and "invalid snapshot identifier": it went with its session.
        Err(SourceError::Sql { error, .. }) if matches!(error.sqlstate.as_str(), "22023" | "42704" | "55000") => {
            Err(SourceError::SnapshotGone)
        }
        Err(other) => Err(other),
    }
}

impl CopySession {
    /// Copies a table: `on_row` gets each row in turn. Counts the rows.
    ///
    /// The callback is called from within this future; it may return an error to stop, which is
    /// handed back as is. After an error the session is spent.
    ///
    /// # Errors
    /// The callback's; [`SourceError::TableChanged`] (retry, with the table agreed again); connection errors (retry).
    pub async fn copy<E: From<SourceError>>(
        &mut self,
        table: &CaptureTable,
        mut on_row: impl FnMut(CopiedRow<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        self.hold(table).await?;
        let mut decoder = CopyDecoder::new(table);
        self.session
            .copy_out(&copy_sql(table), |data| decoder.take(data, &mut on_row))
            .await?;
        Ok(decoder.finish()?)
    }

    /// Locks the table and compares it with what is to be captured.
    ///
    /// The snapshot decides which rows COPY sees, but names are looked up as of now, and a file that
    /// was written anew since the snapshot has none of its rows.
    async fn hold(&mut self, table: &CaptureTable) -> Result<(), SourceError> {
        let changed = |reason: String| SourceError::TableChanged {
            table: table.name.clone(),
            reason,
        };
        let lock = format!(
            "SELECT {} FROM ONLY {} WHERE false",
            column_list(table),
            table.name.quoted()
        );
        match self.session.query("locking a table", &lock).await {
            Ok(_) => {}
            // undefined_table, undefined_column, invalid_schema_name.
            Err(SourceError::Sql { error, .. }) if matches!(error.sqlstate.as_str(), "42P01" | "42703" | "3F000") => {
                return Err(changed(error.message));
            }
            Err(other) => return Err(other),
        }
        let text = format!(
            "SELECT c.oid, c.relfilenode = pg_relation_filenode(c.oid), a.attnum, a.attname, a.atttypid, a.atttypmod \
             FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
             WHERE c.oid = {}::regclass",
            quote_literal(&table.name.quoted())
        );
        let rows = self.session.query("reading a table's columns", &text).await?;
        difference(table, &rows).map_or(Ok(()), |reason| Err(changed(reason)))
    }
}

/// Says how a table differs from what is to be captured; `None` if it does not.
fn difference(table: &CaptureTable, rows: &[TextRow]) -> Option<String> {
    let oid = table.oid.to_string();
    let own = |row: &TextRow| row.first() == Some(&Some(oid.clone()));
    if !rows.first().is_some_and(own) {
        return Some("it was dropped and made again".to_owned());
    }
    if rows.first().and_then(|row| row.get(1)?.as_deref()) != Some("t") {
        return Some("its rows were written anew after the snapshot".to_owned());
    }
    let mut columns = table.schema.columns.iter().zip(&table.columns);
    let lost = columns.find(|(column, arrives)| {
        let expected = [
            arrives.attnum.to_string(),
            column.name.clone(),
            arrives.type_oid.to_string(),
            arrives.type_mod.to_string(),
        ];
        let same = |row: &TextRow| row.iter().skip(2).flatten().eq(expected.iter());
        !rows.iter().any(same)
    });
    lost.map(|(column, _)| format!("column {} is no longer {}", column.name, column.source_type))
}

fn column_list(table: &CaptureTable) -> String {
    let columns: Vec<String> = table.schema.columns.iter().map(|c| quote_identifier(&c.name)).collect();
    columns.join(", ")
}

fn copy_sql(table: &CaptureTable) -> String {
    let filter = match &table.row_filter {
        Some(filter) => format!(" WHERE {filter}"),
        None => String::new(),
    };
    // ONLY: rows of tables that inherit are not this table's, and the stream does not send them as such.
    format!(
        "COPY (SELECT {} FROM ONLY {}{filter}) TO STDOUT (FORMAT binary)",
        column_list(table),
        table.name.quoted()
    )
}

/// Is one row as it arrived. Its values are decoded each time they are asked for.
#[derive(Debug)]
pub struct CopiedRow<'a> {
    table: &'a CaptureTable,
    /// Holds each column's length and bytes; [`CopyDecoder::item`] has checked the lengths.
    fields: &'a [u8],
    scratch: &'a mut Vec<u8>,
}

impl CopiedRow<'_> {
    /// Hands each column's value to `each`, with its number; `None` is NULL.
    ///
    /// # Errors
    /// [`SourceError::Value`] (block the table) where a value does not fit;
    /// [`SourceError::Protocol`] (retry); the callback's error at once.
    pub fn values<E: From<SourceError>>(
        &mut self,
        mut each: impl FnMut(usize, Option<Datum<'_>>) -> Result<(), E>,
    ) -> Result<(), E> {
        let CaptureTable {
            schema, columns, name, ..
        } = self.table;
        let mut fields = self.fields;
        for (index, (column, arrives)) in schema.columns.iter().zip(columns).enumerate() {
            let unfit = |reason: &str| SourceError::Value {
                table: name.clone(),
                column: column.name.clone(),
                reason: reason.to_owned(),
            };
            let bad = || SourceError::Protocol("row of a binary copy".to_owned());
            let (length, rest) = fields.split_first_chunk::<4>().ok_or_else(bad)?;
            let length = i32::from_be_bytes(*length);
            if length == -1 {
                fields = rest;
                if column.required {
                    return Err(unfit("NULL in the key").into());
                }
                each(index, None)?;
                continue;
            }
            let (value, rest) = usize::try_from(length)
                .ok()
                .and_then(|length| rest.split_at_checked(length))
                .ok_or_else(bad)?;
            fields = rest;
            let shape = Shape {
                wire: &arrives.wire,
                target: &arrives.target,
                column_type: &column.column_type,
            };
            match binary(shape, value, self.scratch) {
                Ok(datum) => each(index, Some(datum))?,
                Err(ValueError::Malformed(what)) => return Err(SourceError::Protocol(what.to_owned()).into()),
                Err(ValueError::Unfit(what)) => return Err(unfit(what).into()),
            }
        }
        Ok(())
    }

    /// Encodes the row, in the bytes the stream's rows have.
    ///
    /// # Errors
    /// As [`CopiedRow::values`].
    pub fn encode(&mut self, row: &mut RowBuilder) -> Result<(), SourceError> {
        let columns = &self.table.schema.columns;
        row.start(columns.len());
        self.values(|index, value| {
            match value {
                Some(datum) => row.push(&columns[index].column_type, &datum),
                None => row.push_state(State::Null),
            }
            Ok(())
        })
    }
}

const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";

/// Are the bits of the header's flags that a reader which does not know one must not pass over
/// (PostgreSQL's manual, COPY, "File Header"). None is known: bit 16 said that rows have OIDs, which
/// no supported server sends.
const CRITICAL_FLAGS: u32 = 0xffff_0000;

/// Reads the binary COPY format, however it is cut into messages.
#[derive(Debug)]
pub(crate) struct CopyDecoder<'a> {
    table: &'a CaptureTable,
    scratch: Vec<u8>,
    /// Holds the piece of a row whose rest is yet to come. Servers send whole rows, so it is
    /// nearly always empty.
    rest: Vec<u8>,
    begun: bool,
    ended: bool,
    rows: u64,
}

/// Is what a piece of data begins with.
enum Item {
    Head,
    Row,
    End,
}

impl<'a> CopyDecoder<'a> {
    pub(crate) fn new(table: &'a CaptureTable) -> Self {
        CopyDecoder {
            table,
            scratch: Vec::new(),
            rest: Vec::new(),
            begun: false,
            ended: false,
            rows: 0,
        }
    }

    /// Takes a piece of the format and hands on each row it completes.
    pub(crate) fn take<E: From<SourceError>>(
        &mut self,
        data: &[u8],
        on_row: &mut impl FnMut(CopiedRow<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.rest.is_empty() {
            let used = self.items(data, on_row)?;
            self.rest.extend_from_slice(&data[used..]);
        } else {
            let mut joined = std::mem::take(&mut self.rest);
            joined.extend_from_slice(data);
            let used = self.items(&joined, on_row)?;
            joined.drain(..used);
            self.rest = joined;
        }
        Ok(())
    }

    /// Reads as many whole items as there are; gives how many bytes they took.
    fn items<E: From<SourceError>>(
        &mut self,
        data: &[u8],
        on_row: &mut impl FnMut(CopiedRow<'_>) -> Result<(), E>,
    ) -> Result<usize, E> {
        let mut used = 0;
        while let Some((item, length)) = self.item(&data[used..])? {
            match item {
                Item::Head => self.begun = true,
                Item::End => self.ended = true,
                Item::Row => {
                    on_row(CopiedRow {
                        table: self.table,
                        fields: &data[used + 2..used + length],
                        scratch: &mut self.scratch,
                    })?;
                    self.rows += 1;
                }
            }
            used += length;
        }
        Ok(used)
    }

    /// Measures the next item; `None` if it is not whole.
    fn item(&self, data: &[u8]) -> Result<Option<(Item, usize)>, SourceError> {
        let bad = |what: &str| SourceError::Protocol(what.to_owned());
        if !self.begun {
            let Some((head, rest)) = data.split_first_chunk::<19>() else {
                return Ok(None);
            };
            if &head[..11] != SIGNATURE {
                return Err(bad("head of a binary copy"));
            }
            let flags = u32::from_be_bytes([head[11], head[12], head[13], head[14]]);
            if flags & CRITICAL_FLAGS != 0 {
                return Err(bad("binary copy with a flag that changes its format"));
            }
            let extension = u32::from_be_bytes([head[15], head[16], head[17], head[18]]) as usize;
            return Ok((rest.len() >= extension).then_some((Item::Head, 19 + extension)));
        }
        let Some((count, _)) = data.split_first_chunk::<2>() else {
            return Ok(None);
        };
        if self.ended {
            return Err(bad("bytes after the end of a binary copy"));
        }
        let count = i16::from_be_bytes(*count);
        if count == -1 {
            return Ok(Some((Item::End, 2)));
        }
        if usize::try_from(count) != Ok(self.table.schema.columns.len()) {
            return Err(bad("column count in a binary copy"));
        }
        let mut at = 2;
        for _ in 0..count {
            let Some(length) = data.get(at..at + 4) else {
                return Ok(None);
            };
            let length = i32::from_be_bytes([length[0], length[1], length[2], length[3]]);
            at += 4;
            if length != -1 {
                at += usize::try_from(length).map_err(|_| bad("column length in a binary copy"))?;
            }
        }
        Ok((data.len() >= at).then_some((Item::Row, at)))
    }

    /// Ends the copy and counts its rows.
    pub(crate) fn finish(self) -> Result<u64, SourceError> {
        match self.ended && self.rest.is_empty() {
            true => Ok(self.rows),
            false => Err(SourceError::Protocol("a binary copy without its end".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::{copy, table};

    /// Decodes a copy without rows whose header has these flags.
    fn with_flags(flags: u32) -> Result<(), SourceError> {
        let mut wire = SIGNATURE.to_vec();
        wire.extend_from_slice(&flags.to_be_bytes());
        wire.extend_from_slice(&0_u32.to_be_bytes());
        wire.extend_from_slice(&(-1_i16).to_be_bytes());
        copy(&table(), &wire, 7).1
    }

    #[test]
    fn a_critical_flag_that_is_not_known_is_refused() {
        for bit in 0..16 {
            with_flags(1 << bit).expect("a reader may pass over it");
        }
        for bit in 16..32 {
            let refused = with_flags(1 << bit);
            assert!(
                matches!(refused, Err(SourceError::Protocol(_))),
                "bit {bit}: {refused:?}"
            );
        }
    }
}
