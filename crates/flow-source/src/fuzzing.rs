//! The entries of the fuzz targets, and what the decoder tests share with them.
//!
//! There in tests and with the feature `fuzzing` only. Bytes may be refused; they must never make a
//! decoder panic, and what comes out before the refusal keeps every promise.
//!
//! 1. [`check_stream`] takes messages of `pgoutput`, each after its length, and judges the events.
//! 2. [`check_copy`] takes a binary COPY, whole and in pieces, and judges the rows.
//! 3. Both decode into the same [`tables`], which hold every type and every form it can take.

use std::sync::{Arc, LazyLock};

use flow_core::Lsn;
use flow_core::arrow::BatchBuilder;
use flow_core::key::{KeyBuilder, encode_key};
use flow_core::row::{RowBuilder, encoded_bytes, state_bytes};

use crate::assemble::Assembler;
use crate::capture::CaptureTable;
use crate::copy::{CopiedRow, CopyDecoder};
use crate::error::SourceError;

mod judge;
mod tables;

pub use tables::{table, tables};

use judge::{Judge, check_row};

static TABLES: LazyLock<Vec<CaptureTable>> = LazyLock::new(tables);

/// Cuts a file of `corpus/` into its messages: each stands after its length in four bytes,
/// big-endian. A length that says more than there is means the rest.
pub fn messages(bytes: &[u8]) -> Vec<&[u8]> {
    let mut rest = bytes;
    let mut messages = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        let (message, after) = after.split_at(length.min(after.len()));
        messages.push(message);
        rest = after;
    }
    messages
}

/// Decodes messages of the stream into [`tables`]. Beside those of `pgoutput` there is one that
/// begins with `k`: a keepalive with its WAL end. Counts the tables that were blocked.
///
/// # Errors
/// As the decoder's, which end the stream.
///
/// # Panics
/// If an event breaks a promise.
pub fn check_stream(bytes: &[u8]) -> Result<usize, SourceError> {
    let mut assembler = Assembler::new(Lsn::ZERO, TABLES.clone());
    let mut judge = Judge::new(&TABLES, Lsn::ZERO);
    let mut events = Vec::new();
    for message in messages(bytes) {
        let taken = match keepalive(message) {
            Some(wal_end) => {
                assembler.keepalive(wal_end, &mut events);
                Ok(())
            }
            None => assembler.message(message, &mut events),
        };
        events.drain(..).for_each(|event| judge.take(event));
        assert_eq!(
            assembler.position(),
            judge.position(),
            "the position is what was delivered"
        );
        taken?;
    }
    Ok(judge.blocked())
}

fn keepalive(message: &[u8]) -> Option<Lsn> {
    let wal_end = message.strip_prefix(b"k")?.first_chunk()?;
    Some(Lsn(u64::from_be_bytes(*wal_end)))
}

/// Decodes a binary COPY twice: at once and cut into pieces. The first byte picks one of [`tables`],
/// the second is the size of the pieces, the rest is the COPY.
///
/// # Panics
/// If a row breaks a promise, or the pieces make a difference.
pub fn check_copy(bytes: &[u8]) {
    let [table, step, wire @ ..] = bytes else {
        return;
    };
    let table = &TABLES[usize::from(*table) % TABLES.len()];
    let (rows, end) = copy(table, wire, wire.len());
    for row in &rows {
        check_row(row, table, &[]);
    }
    let (pieces_rows, pieces_end) = copy(table, wire, usize::from(*step));
    assert_eq!(rows, pieces_rows, "the same rows however the copy is cut");
    assert_eq!(
        format!("{end:?}"),
        format!("{pieces_end:?}"),
        "the same end however the copy is cut"
    );
}

/// Decodes a binary COPY in pieces of `step` bytes. Gives the rows, and how it ended.
pub fn copy(table: &CaptureTable, wire: &[u8], step: usize) -> (Vec<Vec<u8>>, Result<(), SourceError>) {
    let mut decoder = CopyDecoder::new(table);
    let mut rows = Vec::new();
    let mut builder = RowBuilder::new();
    let mut on_row = |mut row: CopiedRow<'_>| -> Result<(), SourceError> {
        row.encode(&mut builder)?;
        check_values(&mut row, builder.finish(), table);
        rows.push(builder.finish().to_vec());
        Ok(())
    };
    let end = wire
        .chunks(step.max(1))
        .try_for_each(|piece| decoder.take(piece, &mut on_row))
        .and_then(|()| decoder.finish());
    let end = end.map(|count| assert_eq!(count, rows.len() as u64, "the count is that of the rows"));
    (rows, end)
}

/// Takes a row value by value: the same size, key and columns as from its bytes.
fn check_values(row: &mut CopiedRow<'_>, encoded: &[u8], table: &CaptureTable) {
    let schema = &table.schema;
    let mut bytes = state_bytes(schema.columns.len());
    let mut key = KeyBuilder::new(schema);
    let arrow = Arc::new(schema.clone());
    let (mut by_value, mut by_row) = (BatchBuilder::new(arrow.clone()), BatchBuilder::new(arrow));
    row.values(|column, value| -> Result<(), SourceError> {
        bytes += value.as_ref().map_or(0, encoded_bytes);
        key.value(schema, column, value.as_ref()).expect("a key has no NULL");
        by_value.append_value(column, value).expect("its own type");
        Ok(())
    })
    .expect("it was decoded before");
    by_value.end_row(bytes);
    assert_eq!(bytes, encoded.len(), "the size is told before the row is encoded");
    let mut expected = Vec::new();
    encode_key(encoded, schema, &mut expected).expect("a key has no NULL");
    assert_eq!(key.finish(), expected, "the same key");
    by_row.append(encoded).expect("its own bytes");
    assert_eq!(by_value.bytes(), by_row.bytes());
    let batches = (by_value.finish().expect("a batch"), by_row.finish().expect("a batch"));
    // Debug shows NaN as equal to itself.
    assert_eq!(
        format!("{:?}", batches.0),
        format!("{:?}", batches.1),
        "the same columns"
    );
}

#[cfg(test)]
pub(crate) mod tests;
