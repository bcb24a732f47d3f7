//! Copies of input rows, found by their place: a part of a dynamic table's state.
//!
//! | key, behind the state's prefix | value |
//! |---|---|
//! | `ff ff 02`, input (2 bytes), digest of the file's path (16 bytes), position (8 bytes) | the row, as [`RowCopies`] has it |
//!
//! They answer what a row held that went, which the lake tells by decoding whole pages. Only the columns
//! that the plan reads are kept. Numbers are big-endian.
//!
//! # Invariants
//! - A data file never changes, so a copy is the row or is not there: none can be out of date.
//! - Whoever misses one reads the lake.

use std::sync::Arc;

use bytes::Bytes;
use flow_core::TableName;
use flow_core::lake::LocatedBatch;
use flow_core::state::{StateBuilder, StateReader};
use flow_lake::Places;
use flow_refresh::{DeltaInput, PlannedTable, RowCopies};
use sha2::{Digest, Sha256};

use crate::error::EngineError;
use crate::shared::Shared;

/// Begins keys that no operator of a plan has.
const COPIES: [u8; 3] = [0xff, 0xff, 2];

/// Is how long a key is up to the position.
const FILE_BYTES: usize = COPIES.len() + 2 + 16;

/// Keeps copies of one input's rows.
#[derive(Debug)]
pub(crate) struct InputCopies {
    number: u16,
    rows: RowCopies,
}

/// Is what becomes of the copies.
pub(crate) type CopyDelta = Vec<(Bytes, Option<Bytes>)>;

/// Is rows that went.
#[derive(Debug)]
pub(crate) struct Went {
    /// Holds those that there were copies of.
    pub(crate) rows: arrow_array::RecordBatch,
    /// Says where the others stand.
    pub(crate) missed: Vec<Places>,
}

/// Says whether an input's rows are worth copies: of a captured table without a key none ever goes.
pub(crate) fn keeps_copies(shared: &Shared, input: &TableName) -> bool {
    let tables = shared.tables();
    let captured = tables.values().find(|record| record.target == *input);
    captured.is_none_or(|record| record.schema.has_key())
}

impl InputCopies {
    /// Is of the input with this number among those of the plan.
    pub(crate) fn new(planned: &PlannedTable, input: &DeltaInput, number: usize) -> Result<Self, EngineError> {
        let number = u16::try_from(number)
            .map_err(|_| EngineError::Invariant("a query has more inputs than numbers".to_owned()))?;
        let rows = RowCopies::new(planned, input)?;
        Ok(InputCopies { number, rows })
    }

    /// Begins the keys of a file's rows.
    fn file(&self, path: &str) -> Vec<u8> {
        let digest = Sha256::digest(path);
        [&COPIES[..], &self.number.to_be_bytes(), &digest[..16]].concat()
    }

    /// Enters rows into state that is being built.
    pub(crate) fn fill(&self, builder: &mut dyn StateBuilder, located: &LocatedBatch) -> Result<(), EngineError> {
        let copies = self.rows.copy(&located.batch)?;
        let mut key = self.file(&located.file);
        for (row, position) in located.positions.iter().enumerate() {
            key.truncate(FILE_BYTES);
            key.extend_from_slice(&position.to_be_bytes());
            builder.put(&key, copies.of(row))?;
        }
        Ok(())
    }

    /// Enters rows that came; gives the bytes it takes.
    pub(crate) fn came(&self, located: &LocatedBatch, delta: &mut CopyDelta) -> Result<usize, EngineError> {
        let copies = self.rows.copy(&located.batch)?;
        let file = self.file(&located.file);
        let mut bytes = 0;
        for (row, position) in located.positions.iter().enumerate() {
            let key = [&file[..], &position.to_be_bytes()].concat();
            let copy = copies.of(row);
            bytes += key.len() + copy.len();
            delta.push((key.into(), Some(Bytes::copy_from_slice(copy))));
        }
        Ok(bytes)
    }

    /// Finds rows that went, and removes their copies.
    pub(crate) fn went(
        &self,
        state: &dyn StateReader,
        places: &[Places],
        delta: &mut CopyDelta,
    ) -> Result<Went, EngineError> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for places in places {
            let file = self.file(&places.file);
            let key = |position: &u64| [&file[..], &position.to_be_bytes()].concat();
            keys.extend(places.positions.iter().map(key));
        }
        let lent: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let found = state.get(&lent)?;
        let rows = self.rows.rows(found.iter().flatten().map(|copy| &copy[..]))?;
        let places = places.iter().flat_map(|places| {
            let place = |position: &u64| (&places.file, *position);
            places.positions.iter().map(place)
        });
        let mut missed: Vec<Places> = Vec::new();
        for ((key, copy), (file, position)) in keys.into_iter().zip(&found).zip(places) {
            match copy {
                Some(_) => delta.push((key.into(), None)),
                None => miss(&mut missed, file, position),
            }
        }
        Ok(Went { rows, missed })
    }
}

fn miss(missed: &mut Vec<Places>, file: &Arc<str>, position: u64) {
    match missed.last_mut().filter(|last| last.file == *file) {
        Some(last) => last.positions.push(position),
        None => missed.push(Places {
            file: file.clone(),
            positions: vec![position],
        }),
    }
}
