//! ORDER BY … LIMIT: the first rows of an order that is total.
//!
//! All rows are kept in that order; a step reads as many as the limit asks for, and as many more as
//! went among them.

use std::ops::ControlFlow;

use arrow_schema::SchemaRef;
use datafusion::common::Result;
use flow_core::changes::ChangeBatch;

use super::access::Access;
use super::arrangement::{Arranged, Arrangement, Entries};
use super::rows;

/// Is the first rows of an order.
#[derive(Debug)]
pub(super) struct Top {
    pub(super) arrangement: Arrangement,
    pub(super) skip: u64,
    pub(super) fetch: u64,
    pub(super) schema: SchemaRef,
}

/// Counts rows in order, and gives how many of the next ones are among the first.
struct Window {
    skip: u64,
    fetch: u64,
}

impl Window {
    fn next(&mut self, weight: i64) -> i64 {
        let weight = weight.max(0) as u64;
        let skipped = weight.min(self.skip);
        self.skip -= skipped;
        let taken = (weight - skipped).min(self.fetch);
        self.fetch -= taken;
        taken as i64
    }

    fn is_full(&self) -> bool {
        self.fetch == 0
    }
}

impl Top {
    fn window(&self) -> Window {
        Window {
            skip: self.skip,
            fetch: self.fetch,
        }
    }

    /// Computes the change from the change of the input.
    pub(super) fn step(&self, changes: &ChangeBatch, access: &mut Access<'_>) -> Result<ChangeBatch> {
        let arranged = self.arrangement.arrange(changes)?;
        if arranged.weights.is_empty() {
            return Ok(rows::none(&self.schema));
        }
        let read = self.read(&arranged, access)?;
        self.arrangement.write(&arranged, |_| None, access)?;
        let (mut was, mut is) = (self.window(), self.window());
        let mut entries = Entries::default();
        let mut weights = Vec::new();
        for (entry, old, new) in read {
            let change = -was.next(old) + is.next(new);
            if change != 0 {
                entries.push(&entry, entry.len());
                weights.push(change);
            }
        }
        let rows = self.arrangement.decode(&entries)?;
        let rows = rows::batch(&self.schema, rows.columns().to_vec(), weights.len())?;
        Ok(ChangeBatch { rows, weights })
    }

    /// Reads the first rows as they were and as they are, in order, with both weights.
    fn read(&self, arranged: &Arranged, access: &mut Access<'_>) -> Result<Vec<(Vec<u8>, i64, i64)>> {
        let places = arranged.places();
        let mut found = vec![false; arranged.weights.len()];
        let mut read: Vec<(Vec<u8>, i64, i64)> = Vec::new();
        let (mut was, mut is) = (self.window(), self.window());
        access.scan_weights(&[self.arrangement.head()], "LIMIT", |_, entry, old| {
            let added = places.get(entry).map_or(0, |row| {
                found[*row] = true;
                arranged.weights[*row]
            });
            was.next(old);
            is.next(old + added);
            read.push((entry.to_vec(), old, old + added));
            Ok(match was.is_full() && is.is_full() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        })?;
        // Rows that were not met are new, or lie behind the last that was read.
        let last = read.last().map(|(entry, _, _)| entry.clone());
        let full = was.is_full() && is.is_full();
        for (at, weight) in arranged.weights.iter().enumerate() {
            let entry = arranged.entries.entry(at);
            let behind = full && last.as_ref().is_some_and(|last| entry > last.as_slice());
            if !found[at] && !behind {
                read.push((entry.to_vec(), 0, *weight));
            }
        }
        read.sort_unstable();
        Ok(read)
    }
}
