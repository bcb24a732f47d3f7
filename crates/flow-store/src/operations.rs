//! Operations: durable intentions to publish, and what they will do to the row index or to a dynamic
//! table's state.
//!
//! Owns the families `operation` and `operation.block`. Knows nothing of files or catalogs: a plan
//! is bytes.
//!
//! 1. `begin` makes the intention durable (D2).
//! 2. `stage_block` and `stage_state` write the delta, block by block, while files are written. A
//!    share's blocks are all of one kind.
//! 3. `seal` makes plans and blocks durable (D3).
//! 4. `proof` records what the catalog answered (D5).
//! 5. `apply_block` moves the row index or the state, one block at a time, together with its cursor (D6).
//! 6. `complete` ends the operation: table records, ledger and refresh progress in one batch.
//!
//! # Invariants
//! - Phases move by `flow_core::operation::step` only; `Unknown` is stored as `Sealed`.
//! - A number (`seq`) is never given twice.
//! - A block and the cursor that counts it are written together: applying again after a crash
//!   continues, it never repeats.

mod record;

use std::sync::Arc;

use flow_core::codec::Malformed;
use flow_core::operation::{Event, Phase};
use flow_core::state::StateDelta;
use flow_core::{Attempt, Generation, OperationId, TableId};
use rocksdb::{ReadOptions, WriteBatch};
use serde::{Deserialize, Serialize};

pub use self::record::{Kind, NewShare, OperationRecord, Share};

use crate::database::{Database, Durability};
use crate::delta::{DeltaEntries, DeltaEntry, IndexDelta};
use crate::error::StoreError;
use crate::facts::{self, Facts, LedgerPosition};
use crate::index::IndexBatch;
use crate::layout::{FactKey, Family, OperationPart, block_key, operation_key, parse_operation_key};
use crate::record as wrapping;
use crate::refreshes::{RefreshCompletion, Refreshes};
use crate::state::{self, StateId};
use crate::tables::{self, TableRecord};

/// Is the part of an operation that never changes.
#[derive(Serialize, Deserialize)]
struct Header {
    id: OperationId,
    #[serde(flatten)]
    kind: Kind,
    shares: u32,
}

/// Is where a share's blocks go.
#[derive(Clone, Copy)]
enum Target {
    Index(TableId, Generation),
    State(StateId),
}

impl Target {
    fn of(share: &Share) -> Target {
        match (share.table, share.state) {
            (Some(table), None) => Target::Index(table, share.generation),
            (None, Some(id)) => Target::State(id),
            (None, None) => panic!("a dynamic table without state has no blocks"),
            (Some(_), Some(_)) => panic!("a captured table has no state"),
        }
    }
}

/// Is what the completion of an operation writes beside its own end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompletionWrites {
    /// Holds the captured tables whose records change.
    pub tables: Vec<TableRecord>,
    /// Is from where epochs continue; for the epoch operations alone.
    pub ledger: Option<LedgerPosition>,
    /// Is the dynamic table that was refreshed.
    pub refresh: Option<RefreshCompletion>,
}

/// Reads and writes operations.
#[derive(Clone, Debug)]
pub struct Operations {
    database: Arc<Database>,
    facts: Facts,
    refreshes: Refreshes,
}

impl Operations {
    pub(crate) fn new(database: Arc<Database>, facts: Facts, refreshes: Refreshes) -> Self {
        Operations {
            database,
            facts,
            refreshes,
        }
    }

    /// Begins an operation; every share is `Building`, attempt 1. `id` makes its id from its number.
    ///
    /// # Durability
    /// Synced (D2).
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn begin(
        &self,
        id: impl FnOnce(u64) -> OperationId,
        kind: Kind,
        shares: Vec<NewShare>,
    ) -> Result<OperationRecord, StoreError> {
        let _held = self.database.exclusive();
        let last: Option<u64> = self.database.get_json(Family::Facts, FactKey::OperationSeq.bytes())?;
        let seq = last.unwrap_or(0) + 1;
        let shares = shares.into_iter().map(|share| Share {
            target: share.target,
            table: share.table,
            generation: share.generation,
            phase: Phase::Building { attempt: Attempt(1) },
            base_snapshot: share.base_snapshot,
            plan: None,
            blocks: 0,
            state: None,
        });
        let operation = OperationRecord {
            seq,
            id: id(seq),
            kind,
            shares: shares.collect(),
        };
        let mut batch = WriteBatch::default();
        facts::stage(&self.database, &mut batch, FactKey::OperationSeq, &seq);
        let header = Header {
            id: operation.id.clone(),
            kind: operation.kind.clone(),
            shares: u32::try_from(operation.shares.len()).expect("an operation has fewer than 2^32 tables"),
        };
        let key = operation_key(seq, OperationPart::Header);
        let family = self.database.family(Family::Operation);
        batch.put_cf(family, key, wrapping::seal_json(&key, &header));
        (0..operation.shares.len()).for_each(|share| self.stage_share(&mut batch, &operation, share));
        self.database.write(batch, Durability::Synced)?;
        Ok(operation)
    }

    /// Writes every share as it stands: phases, bases, counts and plans.
    ///
    /// # Durability
    /// Synced if asked; else durable with the next synced write.
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn update(&self, operation: &OperationRecord, sync: bool) -> Result<(), StoreError> {
        let mut batch = WriteBatch::default();
        for share in 0..operation.shares.len() {
            self.stage_share(&mut batch, operation, share);
            self.stage_plan(&mut batch, operation, share);
        }
        let durability = if sync { Durability::Synced } else { Durability::Logged };
        self.database.write(batch, durability)
    }

    /// Writes one block of a share's index delta, in place of one with the same number. The share's
    /// own `blocks`, written by `seal`, says how many count.
    ///
    /// # Durability
    /// Durable with the next synced write, `seal` at the latest.
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn stage_block(&self, seq: u64, share: usize, block: u64, delta: &IndexDelta) -> Result<(), StoreError> {
        let key = block_key(seq, share_number(share), block);
        let mut value = Vec::with_capacity(delta.bytes() + wrapping::OVERHEAD + 10);
        wrapping::seal_into(&mut value, &key, |out| delta.encode(out));
        self.write_block(&key, &value)
    }

    /// Writes a share's state delta as blocks from number `first` on, in place of those with the same
    /// numbers; returns the number after the last. The share's own `blocks` and `state`, written by
    /// `seal`, say how many count and where they go.
    ///
    /// # Durability
    /// Durable with the next synced write, `seal` at the latest.
    ///
    /// # Errors
    /// Crash if the write fails.
    ///
    /// # Panics
    /// If the delta's keys do not ascend.
    pub fn stage_state(&self, seq: u64, share: usize, first: u64, delta: &StateDelta) -> Result<u64, StoreError> {
        assert!(
            delta.0.is_sorted_by(|a, b| a.0 < b.0),
            "a state delta has each key once, in order"
        );
        let (mut block, mut left, mut value) = (first, &delta.0[..], Vec::new());
        while !left.is_empty() {
            let key = block_key(seq, share_number(share), block);
            let mut taken = 0;
            wrapping::seal_into(&mut value, &key, |out| taken = state::encode(out, left));
            self.write_block(&key, &value)?;
            left = &left[taken..];
            block += 1;
        }
        Ok(block)
    }

    fn write_block(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let mut batch = WriteBatch::default();
        batch.put_cf(self.database.family(Family::OperationBlock), key, value);
        self.database.write(batch, Durability::Logged)
    }

    /// Makes the sealed shares' plans durable, and every block staged before.
    ///
    /// # Durability
    /// Synced (D3).
    ///
    /// # Errors
    /// Crash if the write fails.
    ///
    /// # Panics
    /// If a share is sealed without a plan: the caller's order is broken.
    pub fn seal(&self, operation: &OperationRecord) -> Result<(), StoreError> {
        for share in &operation.shares {
            let sealed = matches!(share.phase, Phase::Sealed { .. });
            assert!(!sealed || share.plan.is_some(), "a sealed share has a plan");
        }
        self.update(operation, true)
    }

    /// Records the catalog's answer: phases only.
    ///
    /// # Durability
    /// In the log, in order (D5): losing it costs another look at the catalog.
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn proof(&self, operation: &OperationRecord) -> Result<(), StoreError> {
        let mut batch = WriteBatch::default();
        (0..operation.shares.len()).for_each(|share| self.stage_share(&mut batch, operation, share));
        self.database.write(batch, Durability::Logged)
    }

    /// Applies the share's next block to the row index or the state, together with its cursor; says
    /// whether there was one. Called until it answers `false`.
    ///
    /// # Durability
    /// In the log, in order: after a crash applying continues at the cursor that survived.
    ///
    /// # Errors
    /// Crash if the write fails, or a block is missing or cannot be read.
    ///
    /// # Panics
    /// If the share is not `Committed`, or its blocks go nowhere: the caller's order is broken.
    pub fn apply_block(&self, operation: &mut OperationRecord, share: usize) -> Result<bool, StoreError> {
        let stands = &operation.shares[share];
        let Phase::Committed { applied, .. } = stands.phase else {
            panic!("only a committed share is applied, not one in {:?}", stands.phase);
        };
        if applied >= stands.blocks {
            return Ok(false);
        }
        let target = Target::of(stands);
        let key = block_key(operation.seq, share_number(share), applied);
        let value = self.read_block(&key)?;
        let body = wrapping::open(Family::OperationBlock, &key, &value)?;
        let batch = self.batch_of(target, body);
        let mut batch = batch.map_err(wrapping::malformed(Family::OperationBlock, &key))?;
        let before = operation.shares[share].phase;
        let moved = operation.step(share, Event::Applied(applied + 1));
        moved.expect("a committed share's cursor may grow");
        self.stage_share(&mut batch, operation, share);
        let written = self.database.write(batch, Durability::Logged);
        if written.is_err() {
            operation.shares[share].phase = before;
        }
        written.map(|()| true)
    }

    /// Makes the batch that a block asks for.
    fn batch_of(&self, target: Target, block: &[u8]) -> Result<WriteBatch, Malformed> {
        match target {
            Target::Index(table, generation) => {
                let entries = DeltaEntries::new(block)?.collect::<Result<Vec<_>, _>>()?;
                Ok(self.index_batch(table, generation, entries))
            }
            Target::State(id) => {
                let mut batch = WriteBatch::default();
                state::stage(&self.database, &mut batch, id, state::decode(block)?);
                Ok(batch)
            }
        }
    }

    fn index_batch(&self, table: TableId, generation: Generation, mut entries: Vec<DeltaEntry<'_>>) -> WriteBatch {
        // Neighbours in a write buffer are inserted cheaply. The sort is stable: the last entry of a
        // key stays the last.
        entries.sort_by_key(DeltaEntry::key);
        let mut batch = IndexBatch::new(&self.database, table, generation);
        for entry in entries {
            match entry {
                DeltaEntry::Put { key, location, hot } => batch.put(key, location, hot),
                DeltaEntry::Remove { key, hot } => batch.remove(key, hot),
            }
        }
        batch.finish()
    }

    fn read_block(&self, key: &[u8]) -> Result<Vec<u8>, StoreError> {
        let family = Family::OperationBlock;
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        let read = self
            .database
            .raw()
            .get_cf_opt(self.database.family(family), key, &options);
        let read = read.map_err(|source| StoreError::Read { family, source })?;
        read.ok_or_else(|| StoreError::corrupt(family, key, "block is missing"))
    }

    /// Ends an operation: its record and blocks go, and everything it leads to is written, in one
    /// batch.
    ///
    /// # Durability
    /// In the log, in order: after a crash the operation may be found open, with all blocks applied.
    ///
    /// # Errors
    /// Crash if the write fails, or the ledger would go back.
    ///
    /// # Panics
    /// If a share is neither set aside nor committed with every block applied: the caller's order is
    /// broken.
    pub fn complete(&self, mut operation: OperationRecord, extra: &CompletionWrites) -> Result<(), StoreError> {
        for share in 0..operation.shares.len() {
            let Share { phase, blocks, .. } = operation.shares[share];
            match phase {
                Phase::SetAside | Phase::Completed => {}
                Phase::Committed { applied, .. } if applied == blocks => {
                    let moved = operation.step(share, Event::Complete);
                    moved.expect("a committed share may complete");
                }
                phase => panic!("a share in {phase:?} with {blocks} blocks cannot complete"),
            }
        }
        let _held = self.database.exclusive();
        let mut batch = WriteBatch::default();
        for family in [Family::Operation, Family::OperationBlock] {
            for key in self.keys(family, operation.seq)? {
                batch.delete_cf(self.database.family(family), key);
            }
        }
        for table in &extra.tables {
            tables::stage(&self.database, &mut batch, table);
        }
        if let Some(position) = &extra.ledger {
            self.facts.stage_ledger(&mut batch, position)?;
        }
        if let Some(refresh) = &extra.refresh {
            self.refreshes.stage(&mut batch, refresh)?;
        }
        self.database.write(batch, Durability::Logged)
    }

    fn keys(&self, family: Family, seq: u64) -> Result<Vec<Vec<u8>>, StoreError> {
        let to = seq.checked_add(1).map(|next| next.to_be_bytes().to_vec());
        self.database
            .scan(family, &seq.to_be_bytes(), to, usize::MAX, |key, _| Ok(key.to_vec()))
    }

    /// Reads the operations that have begun and not completed, in order of beginning.
    ///
    /// # Errors
    /// Crash if a record cannot be read or parts are missing.
    pub fn open_operations(&self) -> Result<Vec<OperationRecord>, StoreError> {
        let family = Family::Operation;
        let mut out: Vec<OperationRecord> = Vec::new();
        let mut expected = 0;
        let parts = self.database.scan(family, &[], None, usize::MAX, |key, value| {
            let part = parse_operation_key(key);
            let (seq, part) = part.ok_or_else(|| StoreError::corrupt(family, key, "key is not an operation's"))?;
            Ok((key.to_vec(), seq, part, value.to_vec()))
        })?;
        for (key, seq, part, value) in parts {
            let incomplete = || StoreError::corrupt(family, &key, "operation is incomplete");
            if part == OperationPart::Header {
                if out.last().is_some_and(|last| last.shares.len() != expected) {
                    return Err(incomplete());
                }
                let header: Header = wrapping::open_json(family, &key, &value)?;
                expected = header.shares as usize;
                out.push(OperationRecord {
                    seq,
                    id: header.id,
                    kind: header.kind,
                    shares: Vec::new(),
                });
                continue;
            }
            let operation = out.last_mut().filter(|last| last.seq == seq).ok_or_else(incomplete)?;
            match part {
                OperationPart::Share(number) if number as usize == operation.shares.len() => {
                    operation.shares.push(wrapping::open_json(family, &key, &value)?);
                }
                OperationPart::Plan(number) if operation.shares.len() > number as usize => {
                    let plan = wrapping::open(family, &key, &value)?;
                    operation.shares[number as usize].plan = Some(plan.to_vec());
                }
                _ => return Err(incomplete()),
            }
        }
        match out.last() {
            Some(last) if last.shares.len() != expected => {
                let key = operation_key(last.seq, OperationPart::Header);
                Err(StoreError::corrupt(family, &key, "operation is incomplete"))
            }
            _ => Ok(out),
        }
    }

    fn stage_share(&self, batch: &mut WriteBatch, operation: &OperationRecord, share: usize) {
        let key = operation_key(operation.seq, OperationPart::Share(share_number(share)));
        let mut stored = operation.shares[share].clone();
        if let Phase::Unknown { attempt } = stored.phase {
            stored.phase = Phase::Sealed { attempt };
        }
        let family = self.database.family(Family::Operation);
        batch.put_cf(family, key, wrapping::seal_json(&key, &stored));
    }

    fn stage_plan(&self, batch: &mut WriteBatch, operation: &OperationRecord, share: usize) {
        let key = operation_key(operation.seq, OperationPart::Plan(share_number(share)));
        let family = self.database.family(Family::Operation);
        match &operation.shares[share].plan {
            Some(plan) => batch.put_cf(family, key, wrapping::seal(&key, plan)),
            None => batch.delete_cf(family, key),
        }
    }
}

fn share_number(share: usize) -> u32 {
    u32::try_from(share).expect("an operation has fewer than 2^32 tables")
}
