//! The compare-and-swap of several tables in one SQLite transaction.

use flow_core::clock::UnixMicros;
use flow_core::{Epoch, Lsn, TableName};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::{CATALOG_NAME, Catalog, advance, committed};
use crate::error::LakeError;

/// Is one table's step from a base to the next metadata file.
#[derive(Debug)]
pub(crate) struct Swap<'a> {
    pub(crate) table: &'a TableName,
    pub(crate) base: &'a str,
    pub(crate) next: &'a str,
    /// Holds table UUID, attempt and snapshot; absent where only properties change.
    pub(crate) marker: Option<(&'a str, &'a str, i64)>,
    /// Holds the metadata files that leave the metadata log with this step.
    pub(crate) expired: &'a [String],
}

/// Is what is recorded in the same transaction.
#[derive(Debug)]
pub(crate) struct SwapRecord<'a> {
    pub(crate) operation_id: &'a str,
    pub(crate) source_id: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) epoch: Epoch,
    pub(crate) from_lsn: Lsn,
    pub(crate) to_lsn: Lsn,
    pub(crate) advance: Option<(Lsn, Epoch)>,
}

/// Is what became of a transaction that was begun.
#[derive(Debug)]
pub(crate) enum SwapOutcome {
    Committed,
    /// Holds the indexes of the swaps whose base has moved; nothing was changed.
    Conflict(Vec<usize>),
    /// COMMIT was sent and failed.
    Unknown(LakeError),
}

impl Catalog {
    /// Swaps all tables or none. A swap whose marker is recorded already counts as done.
    ///
    /// An error means that COMMIT was not sent: nothing has changed.
    pub(crate) fn swap(
        &self,
        swaps: &[Swap<'_>],
        record: Option<&SwapRecord<'_>>,
        now: UnixMicros,
    ) -> Result<SwapOutcome, LakeError> {
        let mut connection = self.lock();
        let staged = stage(&mut connection, swaps, record, now);
        let (tx, conflicts) = staged.map_err(self.failed("stage a commit"))?;
        if !conflicts.is_empty() {
            tx.rollback().map_err(self.failed("roll back a commit"))?;
            return Ok(SwapOutcome::Conflict(conflicts));
        }
        Ok(match tx.commit() {
            Ok(()) => SwapOutcome::Committed,
            Err(error) => SwapOutcome::Unknown(self.failed("commit")(error)),
        })
    }
}

fn stage<'c>(
    connection: &'c mut Connection,
    swaps: &[Swap<'_>],
    record: Option<&SwapRecord<'_>>,
    now: UnixMicros,
) -> rusqlite::Result<(Transaction<'c>, Vec<usize>)> {
    // Immediate: the write lock is taken before the first comparison, so no base can move between
    // comparing and swapping.
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut conflicts = Vec::new();
    for (index, swap) in swaps.iter().enumerate() {
        if !swap_one(&tx, swap, now)? {
            conflicts.push(index);
        }
    }
    if let (true, Some(record)) = (conflicts.is_empty(), record) {
        tx.prepare_cached("INSERT OR IGNORE INTO flow_operations VALUES (?, ?, ?, ?, ?, ?, ?)")?
            .execute(params![
                record.operation_id,
                record.source_id,
                record.kind,
                record.epoch.0,
                record.from_lsn.to_string(),
                record.to_lsn.to_string(),
                now
            ])?;
        if let Some((lsn, epoch)) = record.advance {
            advance(&tx, record.source_id, lsn, epoch)?;
        }
    }
    Ok((tx, conflicts))
}

/// Moves one pointer; `false` if it does not stand on the base.
pub(crate) fn swap_one(tx: &Transaction<'_>, swap: &Swap<'_>, now: UnixMicros) -> rusqlite::Result<bool> {
    if let Some((table_uuid, attempt_id, _)) = swap.marker
        && committed(tx, table_uuid, attempt_id)?.is_some()
    {
        return Ok(true);
    }
    let moved = tx
        .prepare_cached(
            "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ?
             WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? AND metadata_location = ?
               AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)",
        )?
        .execute(params![
            swap.next,
            swap.base,
            CATALOG_NAME,
            swap.table.schema,
            swap.table.name,
            swap.base
        ])?;
    if moved == 0 {
        return Ok(false);
    }
    if let Some((table_uuid, attempt_id, snapshot_id)) = swap.marker {
        tx.prepare_cached("INSERT INTO flow_commits VALUES (?, ?, ?, ?)")?
            .execute(params![table_uuid, attempt_id, snapshot_id, now])?;
    }
    for location in swap.expired {
        tx.prepare_cached("INSERT OR IGNORE INTO flow_expired_metadata VALUES (?, ?)")?
            .execute(params![location, now])?;
    }
    Ok(true)
}
