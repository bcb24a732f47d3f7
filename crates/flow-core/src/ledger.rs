//! Which tables have which epochs, and how far every table has come.
//!
//! # Invariants
//! - Epochs enter in order, their ranges adjoin: `(from, to]` follows `(.., from]`.
//! - The published prefix only grows. It ends before the first epoch that has an open table; a
//!   table that was set aside does not hold it back, the journal keeps that table's part.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::{Epoch, TableId};
use crate::lsn::Lsn;
use crate::monotonic::Monotonic;

/// Says how one table of an epoch ended, or that it has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Not published yet.
    Open,
    /// Published and applied.
    Done,
    /// The table is blocked; its part stays in the journal.
    SetAside,
}

/// Says why an entry was refused: a broken invariant of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// The epoch does not continue the ledger.
    #[error("epoch {epoch} from {from} does not follow {to}")]
    Gap {
        /// The epoch that was to begin.
        epoch: Epoch,
        /// Where it begins.
        from: Lsn,
        /// Where the ledger ends.
        to: Lsn,
    },
    /// The epoch or table is not open.
    #[error("epoch {0} has no open table {1}")]
    NotOpen(Epoch, TableId),
}

#[derive(Debug)]
struct Entry {
    epoch: Epoch,
    to: Lsn,
    shares: BTreeMap<TableId, Share>,
}

/// Keeps the open epochs and the published prefix.
#[derive(Debug)]
pub struct Ledger {
    published: Monotonic<Lsn>,
    last_epoch: Epoch,
    end: Lsn,
    open: VecDeque<Entry>,
}

impl Ledger {
    /// Starts after `epoch`, published up to `published`.
    pub fn new(epoch: Epoch, published: Lsn) -> Self {
        Ledger {
            published: Monotonic::new(published),
            last_epoch: epoch,
            end: published,
            open: VecDeque::new(),
        }
    }

    /// Is the published prefix: every transaction at or below it is in the lake, or set aside with
    /// its table.
    pub fn published(&self) -> Lsn {
        self.published.get()
    }

    /// Is the last epoch that began.
    pub fn last_epoch(&self) -> Epoch {
        self.last_epoch
    }

    /// Begins the epoch `(from, to]` with the tables that changed in it.
    pub fn begin(
        &mut self,
        epoch: Epoch,
        from: Lsn,
        to: Lsn,
        tables: impl IntoIterator<Item = TableId>,
    ) -> Result<(), LedgerError> {
        if epoch != self.last_epoch.next() || from != self.end || to < from {
            return Err(LedgerError::Gap {
                epoch,
                from,
                to: self.end,
            });
        }
        let shares = tables.into_iter().map(|table| (table, Share::Open)).collect();
        self.open.push_back(Entry { epoch, to, shares });
        self.last_epoch = epoch;
        self.end = to;
        self.settle();
        Ok(())
    }

    /// Ends one table's part of an epoch.
    pub fn end(&mut self, epoch: Epoch, table: TableId, share: Share) -> Result<(), LedgerError> {
        let entry = self.open.iter_mut().find(|entry| entry.epoch == epoch);
        match entry.and_then(|entry| entry.shares.get_mut(&table)) {
            Some(open) if *open == Share::Open => *open = share,
            _ => return Err(LedgerError::NotOpen(epoch, table)),
        }
        self.settle();
        Ok(())
    }

    fn settle(&mut self) {
        while let Some(entry) = self.open.front() {
            if entry.shares.values().any(|share| *share == Share::Open) {
                break;
            }
            self.published.advance(entry.to);
            self.open.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_stops_before_the_first_open_table() {
        let (a, b) = (TableId(1), TableId(2));
        let mut ledger = Ledger::new(Epoch(7), Lsn(100));
        ledger.begin(Epoch(8), Lsn(100), Lsn(200), [a, b]).expect("follows");
        ledger.begin(Epoch(9), Lsn(200), Lsn(300), [b]).expect("follows");
        ledger.end(Epoch(9), b, Share::Done).expect("open");
        assert_eq!(ledger.published(), Lsn(100));
        ledger.end(Epoch(8), a, Share::SetAside).expect("open");
        assert_eq!(ledger.published(), Lsn(100));
        ledger.end(Epoch(8), b, Share::Done).expect("open");
        assert_eq!(ledger.published(), Lsn(300));
        ledger.begin(Epoch(10), Lsn(300), Lsn(400), []).expect("follows");
        assert_eq!(
            ledger.published(),
            Lsn(400),
            "an epoch without tables is published as it begins"
        );
    }

    #[test]
    fn gaps_and_second_ends_are_refused() {
        let mut ledger = Ledger::new(Epoch(0), Lsn(5));
        assert!(ledger.begin(Epoch(2), Lsn(5), Lsn(6), []).is_err());
        assert!(ledger.begin(Epoch(1), Lsn(4), Lsn(6), []).is_err());
        ledger.begin(Epoch(1), Lsn(5), Lsn(6), [TableId(1)]).expect("follows");
        ledger.end(Epoch(1), TableId(1), Share::Done).expect("open");
        assert!(ledger.end(Epoch(1), TableId(1), Share::Done).is_err());
    }
}
