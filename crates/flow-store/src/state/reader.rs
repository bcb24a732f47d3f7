//! Reading a state as it was at one moment.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use flow_core::state::{StateError, StateReader};
use rocksdb::{ReadOptions, Snapshot};

use crate::database::Database;
use crate::error::StoreError;
use crate::layout::{Family, after_prefix, state_prefix};
use crate::state::StateId;
use crate::{lookup, record};

const FAMILY: Family = Family::State;

/// Is a state at the moment it was asked for.
pub struct PinnedState {
    id: StateId,
    // Fields drop in order: the snapshot is given back while the database is open.
    snapshot: Snapshot<'static>,
    database: Arc<Database>,
}

impl std::fmt::Debug for PinnedState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PinnedState")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl PinnedState {
    #[allow(unsafe_code)]
    pub(super) fn new(database: Arc<Database>, id: StateId) -> Self {
        let snapshot = database.raw().snapshot();
        // SAFETY: the snapshot borrows the database, which is behind an `Arc` that this value holds:
        // it does not move, and it is dropped after the snapshot, whose field stands before it.
        let snapshot = unsafe { std::mem::transmute::<Snapshot<'_>, Snapshot<'static>>(snapshot) };
        PinnedState { id, snapshot, database }
    }

    /// Says which state it is.
    pub fn id(&self) -> StateId {
        self.id
    }

    fn look_up(&self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, StoreError> {
        let mut options = ReadOptions::default();
        options.set_snapshot(&self.snapshot);
        let prefix = state_prefix(self.id.number, self.id.generation);
        lookup::lookup(&self.database, FAMILY, &prefix, keys, &options, |key, value| {
            record::open(FAMILY, key, value).map(Bytes::copy_from_slice)
        })
    }

    /// Walks the prefixes with one iterator, whose blocks neighbours share.
    fn walk(
        &self,
        prefixes: &[&[u8]],
        visit: &mut dyn FnMut(usize, &[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let base = state_prefix(self.id.number, self.id.generation);
        let full = |prefix: &[u8]| [&base[..], prefix].concat();
        let mut options = ReadOptions::default();
        let ends = prefixes.iter().filter_map(|prefix| after_prefix(&full(prefix)));
        if let Some(end) = ends.max() {
            options.set_iterate_upper_bound(end);
        }
        let handle = self.database.family(FAMILY);
        let mut rows = self.snapshot.raw_iterator_cf_opt(handle, options);
        let mut passed: Option<Vec<u8>> = None;
        for (number, prefix) in prefixes.iter().enumerate() {
            let wanted = full(prefix);
            // Where neighbours are asked for, the end of one is the beginning of the next.
            let follows = passed.is_some_and(|passed| passed < wanted && !wanted.starts_with(&passed));
            if !(follows && rows.key().is_none_or(|key| key >= &wanted[..])) {
                rows.seek(&wanted);
            }
            let mut broken_off = false;
            while let Some((key, value)) = rows.item()
                && key.starts_with(&wanted)
            {
                let value = record::open(FAMILY, key, value)?;
                if visit(number, &key[base.len()..], value).is_break() {
                    broken_off = true;
                    break;
                }
                rows.next();
            }
            let status = rows.status();
            status.map_err(|source| StoreError::Read { family: FAMILY, source })?;
            passed = (!broken_off).then_some(wanted);
        }
        Ok(())
    }
}

impl StateReader for PinnedState {
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, StateError> {
        self.look_up(keys).map_err(|error| error.into_state("read"))
    }

    fn scan(
        &self,
        prefixes: &[&[u8]],
        visit: &mut dyn FnMut(usize, &[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StateError> {
        self.walk(prefixes, visit).map_err(|error| error.into_state("read"))
    }
}
