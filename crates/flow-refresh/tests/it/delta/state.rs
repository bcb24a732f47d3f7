//! State in memory.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use flow_core::state::{StateBuilder, StateDelta, StateError, StateReader, decode_weight, encode_weight};

/// Holds state, and counts what is read of it.
#[derive(Debug, Default)]
pub(crate) struct MemoryState {
    pub(crate) entries: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) read: AtomicU64,
}

impl MemoryState {
    pub(crate) fn apply(&mut self, delta: &StateDelta) {
        assert!(
            delta.0.windows(2).all(|pair| pair[0].0 < pair[1].0),
            "keys come in order, each once"
        );
        for (key, value) in &delta.0 {
            match value {
                Some(value) => self.entries.insert(key.to_vec(), value.to_vec()),
                None => self.entries.remove(&key[..]),
            };
        }
    }
}

impl StateReader for MemoryState {
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, StateError> {
        let found = keys
            .iter()
            .map(|key| self.entries.get(*key).map(|value| Bytes::copy_from_slice(value)));
        let found: Vec<_> = found.collect();
        self.read
            .fetch_add(found.iter().flatten().count() as u64, Ordering::Relaxed);
        Ok(found)
    }

    fn scan(
        &self,
        prefixes: &[&[u8]],
        visit: &mut dyn FnMut(usize, &[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StateError> {
        assert!(prefixes.windows(2).all(|pair| pair[0] < pair[1]), "prefixes ascend");
        for (at, prefix) in prefixes.iter().enumerate() {
            let under = self.entries.range(prefix.to_vec()..);
            for (key, value) in under.take_while(|(key, _)| key.starts_with(prefix)) {
                self.read.fetch_add(1, Ordering::Relaxed);
                if visit(at, key, value).is_break() {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl StateBuilder for MemoryState {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StateError> {
        self.entries.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn add(&mut self, key: &[u8], weight: i64) -> Result<(), StateError> {
        let old = self
            .entries
            .get(key)
            .map_or(0, |value| decode_weight(value).expect("a weight"));
        match old + weight {
            0 => self.entries.remove(key),
            sum => self.entries.insert(key.to_vec(), encode_weight(sum).to_vec()),
        };
        Ok(())
    }
}
