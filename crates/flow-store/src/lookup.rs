//! Many keys of one family at once.

use rocksdb::{DBPinnableSlice, ReadOptions};

use crate::database::Database;
use crate::error::StoreError;
use crate::layout::Family;

/// Counts the keys looked up by one call of RocksDB: enough to share block reads, few enough that
/// the blocks they pin stay small beside the cache.
const KEYS_PER_LOOKUP: usize = 1024;

/// Reads the values of `keys` behind `prefix`, in the order of `keys`; `None` for a key without one.
pub(crate) fn lookup<T>(
    database: &Database,
    family: Family,
    prefix: &[u8],
    keys: &[&[u8]],
    options: &ReadOptions,
    read: impl Fn(&[u8], &[u8]) -> Result<T, StoreError>,
) -> Result<Vec<Option<T>>, StoreError> {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_unstable_by_key(|&at| keys[at]);
    let mut out: Vec<Option<T>> = std::iter::repeat_with(|| None).take(keys.len()).collect();
    let handle = database.family(family);
    let mut arena = Vec::new();
    let mut ends = Vec::with_capacity(KEYS_PER_LOOKUP.min(keys.len()));
    for group in order.chunks(KEYS_PER_LOOKUP) {
        arena.clear();
        ends.clear();
        for &at in group {
            arena.extend_from_slice(prefix);
            arena.extend_from_slice(keys[at]);
            ends.push(arena.len());
        }
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let full: Vec<&[u8]> = starts.zip(&ends).map(|(start, &end)| &arena[start..end]).collect();
        let raw = database.raw();
        let found = raw.batched_multi_get_cf_opt(handle, full.iter().copied(), true, options);
        for ((&at, key), value) in group.iter().zip(&full).zip(found) {
            let value: Option<DBPinnableSlice<'_>> = value.map_err(|source| StoreError::Read { family, source })?;
            out[at] = value.map(|value| read(key, &value)).transpose()?;
        }
    }
    Ok(out)
}
