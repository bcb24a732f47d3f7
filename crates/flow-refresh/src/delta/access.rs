//! What a step has at hand: state as it was, what becomes of it, and a budget of memory.
//!
//! # Invariants
//! - Every read sees the state before the step.
//! - Every key is written once at most.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use flow_core::state::{StateDelta, StateReader, decode_weight, encode_weight};

use super::faults::{damaged, negative, store, too_many};

/// Is what a step has at hand.
pub(super) struct Access<'a> {
    reader: &'a dyn StateReader,
    writes: Vec<(Bytes, Option<Bytes>)>,
    rows_read: u64,
    /// Counts what is held until the step ends: what was written, and what operators gave.
    kept: MemoryReservation,
    /// Counts what an operator holds while it works.
    working: MemoryReservation,
    /// Runs the engine's own operators.
    pub(super) task: Arc<TaskContext>,
    /// Says that the table has no content yet: relations that never change come into it.
    pub(super) beginning: bool,
}

impl std::fmt::Debug for Access<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access")
            .field("rows_read", &self.rows_read)
            .field("writes", &self.writes.len())
            .finish_non_exhaustive()
    }
}

/// Is what an entry takes beside its bytes: its share of vectors and hash tables.
const ENTRY_OVERHEAD_BYTES: usize = 64;

impl<'a> Access<'a> {
    /// Starts with nothing read.
    pub(super) fn new(reader: &'a dyn StateReader, task: Arc<TaskContext>, beginning: bool) -> Access<'a> {
        let reservation = |name| MemoryConsumer::new(name).register(task.memory_pool());
        let (kept, working) = (reservation("changes"), reservation("changes at work"));
        Access {
            reader,
            writes: Vec::new(),
            rows_read: 0,
            kept,
            working,
            task,
            beginning,
        }
    }

    /// Counts bytes against the budget until [`Access::settle`].
    pub(super) fn grow(&self, bytes: usize) -> Result<()> {
        self.working.try_grow(bytes)
    }

    /// Says that of all an operator held only what it gives is left, `bytes` of it.
    pub(super) fn settle(&self, bytes: usize) -> Result<()> {
        self.working.free();
        self.kept.try_grow(bytes)
    }

    /// Reads values, in the order of the keys.
    pub(super) fn get(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_unstable_by_key(|at| keys[*at]);
        let sorted: Vec<&[u8]> = order.iter().map(|at| keys[*at]).collect();
        let found = self.reader.get(&sorted).map_err(store)?;
        let mut values = vec![None; keys.len()];
        for (at, value) in order.into_iter().zip(found) {
            self.rows_read += u64::from(value.is_some());
            let bytes = value.as_ref().map_or(0, Bytes::len);
            self.working.try_grow(bytes + ENTRY_OVERHEAD_BYTES)?;
            values[at] = value;
        }
        Ok(values)
    }

    /// Reads weights; 0 where there is none.
    pub(super) fn weights(&mut self, keys: &[&[u8]], operator: &'static str) -> Result<Vec<i64>> {
        let values = self.get(keys)?.into_iter();
        let weight = |value: Option<Bytes>| match value {
            None => Ok(0),
            Some(bytes) => decode_weight(&bytes).ok_or_else(|| damaged(operator)),
        };
        values.map(weight).collect()
    }

    /// Visits the entries under each prefix; prefixes must ascend. See [`StateReader::scan`].
    pub(super) fn scan(
        &mut self,
        prefixes: &[&[u8]],
        mut visit: impl FnMut(usize, &[u8], &[u8]) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        if prefixes.is_empty() {
            return Ok(());
        }
        let mut failure = None;
        let (rows_read, reservation) = (&mut self.rows_read, &self.working);
        self.reader
            .scan(prefixes, &mut |prefix, key, value| {
                if failure.is_some() {
                    return ControlFlow::Break(());
                }
                *rows_read += 1;
                let grown = reservation.try_grow(key.len() + ENTRY_OVERHEAD_BYTES);
                match grown.and_then(|()| visit(prefix, key, value)) {
                    Ok(flow) => flow,
                    Err(error) => {
                        failure = Some(error);
                        ControlFlow::Break(())
                    }
                }
            })
            .map_err(store)?;
        failure.map_or(Ok(()), Err)
    }

    /// Visits weights under each prefix; see [`Access::scan`].
    pub(super) fn scan_weights(
        &mut self,
        prefixes: &[&[u8]],
        operator: &'static str,
        mut visit: impl FnMut(usize, &[u8], i64) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.scan(prefixes, |prefix, key, value| {
            let weight = decode_weight(value).ok_or_else(|| damaged(operator))?;
            visit(prefix, key, weight)
        })
    }

    /// Sets a value.
    pub(super) fn put(&mut self, key: &[u8], value: Vec<u8>) -> Result<()> {
        self.kept.try_grow(key.len() + value.len() + ENTRY_OVERHEAD_BYTES)?;
        self.writes.push((Bytes::copy_from_slice(key), Some(value.into())));
        Ok(())
    }

    /// Removes a key.
    pub(super) fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.kept.try_grow(key.len() + ENTRY_OVERHEAD_BYTES)?;
        self.writes.push((Bytes::copy_from_slice(key), None));
        Ok(())
    }

    /// Sets a weight to what it was and what was added; gives the sum.
    pub(super) fn add(&mut self, key: &[u8], old: i64, added: i64) -> Result<i64> {
        let sum = old.checked_add(added).ok_or_else(too_many)?;
        match sum {
            ..0 => return Err(negative()),
            0 => self.remove(key)?,
            _ => self.put(key, encode_weight(sum).to_vec())?,
        }
        Ok(sum)
    }

    /// Ends the step: gives what changes in the state, and the number of entries read.
    pub(super) fn finish(mut self) -> (StateDelta, u64) {
        self.writes.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let once = self.writes.windows(2).all(|pair| pair[0].0 != pair[1].0);
        assert!(once, "an operator writes each of its keys once");
        (StateDelta(self.writes), self.rows_read)
    }
}
