//! How operators of a dynamic table see the state they keep, which the store holds.
//!
//! State is an ordered map from bytes to bytes, one per dynamic table and generation. A refresh
//! reads it as it was, gathers what changes in a [`StateDelta`], and the engine applies that together
//! with the refresh's proof, or not at all.

use std::ops::ControlFlow;

use bytes::Bytes;

use crate::remedy::Remedy;

/// Says why state could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} the state of a dynamic table")]
pub struct StateError {
    /// Says what was tried: `read`, `write`.
    pub action: &'static str,
    /// Says what the caller should do.
    pub remedy: Remedy,
    /// Is the cause.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// Reads the state of one dynamic table.
pub trait StateReader: Send + Sync + std::fmt::Debug {
    /// Gives the values of the keys, in their order; `None` where there is none.
    ///
    /// # Errors
    /// The store's.
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, StateError>;

    /// Visits the entries under each prefix: prefixes in their order, entries in order of their keys.
    ///
    /// `visit` gets the prefix's number, the whole key and the value. A break ends that prefix and
    /// goes on with the next. Prefixes in ascending order are fastest.
    ///
    /// # Errors
    /// The store's.
    fn scan(
        &self,
        prefixes: &[&[u8]],
        visit: &mut dyn FnMut(usize, &[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StateError>;
}

/// Fills state that nobody reads yet: a generation that becomes current when it is whole.
pub trait StateBuilder: Send {
    /// Sets a key's value, over what was set before.
    ///
    /// # Errors
    /// The store's.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StateError>;

    /// Adds to the weight that is a key's value, [`encode_weight`]'s bytes; a key not set has 0.
    /// The same key may be added to many times, in any order.
    ///
    /// # Errors
    /// The store's.
    fn add(&mut self, key: &[u8], weight: i64) -> Result<(), StateError>;
}

/// Is what a refresh changes in its table's state, in order of the keys, each once; `None` removes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateDelta(pub Vec<(Bytes, Option<Bytes>)>);

/// Is the value of an entry that only counts: the weight, 8 bytes, little-endian.
pub fn encode_weight(weight: i64) -> [u8; 8] {
    weight.to_le_bytes()
}

/// Reads a weight; `None` if the bytes are none.
pub fn decode_weight(value: &[u8]) -> Option<i64> {
    Some(i64::from_le_bytes(value.try_into().ok()?))
}
