//! The loop that publishes epochs, and moves the published position of an idle source.
//!
//! 1. Wait until the backlog closes an epoch, or the heartbeat comes round.
//! 2. Admit a range and fold it, on a worker thread; while that goes on, the epoch before it may
//!    still be written, committed and applied. Folding needs the journal only; resolving waits.
//! 3. Begin (D2), publish, and tell the ledger; then acknowledge, forget, and wake the refreshes.
//!
//! # Invariants
//! - One epoch operation is open at a time, and epochs are published in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use flow_core::clock::UnixMicros;
use flow_core::ledger::{Ledger, Share as LedgerShare};
use flow_core::{Lsn, TableId};
use flow_store::{Kind, LedgerPosition, NewShare, TableState};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::block::mark_unmarked;
use crate::epoch::{Admitted, EpochWork, Prepared, admit, kind, prepare};
use crate::error::EngineError;
use crate::fold::Range;
use crate::options::AckMode;
use crate::publish::{blocking, publish, retrying};
use crate::shared::{Shared, operation_id};

/// Is a range that is folded, or being folded, ahead of its turn.
struct Ahead {
    admitted: Admitted,
    prepared: JoinHandle<Result<Prepared, EngineError>>,
}

/// Publishes epochs.
#[derive(Debug)]
pub(crate) struct Publisher {
    shared: Arc<Shared>,
    ledger: Ledger,
    /// Is the largest start LSN of the copies: no epoch ends below it.
    first_cut: Lsn,
    /// Is the position the catalog has. The ledger may be ahead of it by a stretch that changes no
    /// table; the next epoch or heartbeat records that too.
    recorded: Lsn,
    uid: String,
}

impl Publisher {
    /// Starts after the store's ledger position.
    pub(crate) fn new(shared: &Arc<Shared>, position: LedgerPosition, uid: String) -> Self {
        let starts = shared.tables().into_values().filter_map(|table| table.start_lsn);
        let publisher = Publisher {
            shared: shared.clone(),
            ledger: Ledger::new(position.last_epoch, position.published_lsn),
            first_cut: starts.max().unwrap_or(Lsn::ZERO),
            recorded: position.published_lsn,
            uid,
        };
        publisher.note();
        publisher
    }

    /// Publishes until cancelled; the epoch at hand is brought to its end first.
    pub(crate) async fn run(mut self, cancel: CancellationToken) -> Result<(), EngineError> {
        let mut ahead: Option<Ahead> = None;
        let mut idle_since = self.shared.clock.monotonic();
        while !cancel.is_cancelled() {
            let next = match ahead.take() {
                Some(next) => Some(next),
                None => self.wait(&cancel, &mut idle_since).await?,
            };
            let Some(next) = next else { continue };
            let prepared = next
                .prepared
                .await
                .map_err(|error| EngineError::Invariant(error.to_string()))??;
            // The next range is folded while this one is written, if a whole one waits already.
            if next.admitted.next_commit.is_some() {
                ahead = self.admit_after(next.admitted.range.to).await?;
            }
            if self.publish_epoch(next.admitted, prepared).await? {
                idle_since = self.shared.clock.monotonic();
            }
        }
        Ok(())
    }

    /// Waits until an epoch closes and starts folding it. `None` when cancelled.
    async fn wait(
        &mut self,
        cancel: &CancellationToken,
        idle_since: &mut std::time::Duration,
    ) -> Result<Option<Ahead>, EngineError> {
        loop {
            let options = self.shared.options();
            let now = self.shared.clock.monotonic();
            let look = self.shared.backlog.look(now);
            if look.any
                && options.publish.closes(&look.waiting)
                && let Some(ahead) = self.admit_after(self.ledger.published()).await?
            {
                return Ok(Some(ahead));
            }
            let quiet = now.saturating_sub(*idle_since);
            if quiet >= options.heartbeat {
                *idle_since = now;
                if let Some(ahead) = self.admit_after(self.ledger.published()).await? {
                    return Ok(Some(ahead));
                }
                self.record_idle().await?;
                continue;
            }
            let pause = match look.any {
                true => options.publish.interval.saturating_sub(look.waiting.age),
                false => options.heartbeat.saturating_sub(quiet),
            };
            tokio::select! {
                () = self.shared.backlog.changed() => {}
                () = tokio::time::sleep(pause.max(std::time::Duration::from_millis(1))) => {}
                () = cancel.cancelled() => return Ok(None),
            }
        }
    }

    /// Chooses the range after `from` and starts folding it.
    async fn admit_after(&self, from: Lsn) -> Result<Option<Ahead>, EngineError> {
        let first_cut = self.first_cut;
        let admitted = blocking(&self.shared, move |shared| {
            let journaled = shared.store.journal().position();
            admit(&shared.store, from, journaled, first_cut, &shared.options().publish)
        })
        .await?;
        let Some(admitted) = admitted else { return Ok(None) };
        let now = self.shared.clock.monotonic();
        self.shared
            .backlog
            .admitted(admitted.rows, admitted.bytes, admitted.next_commit, now);
        let shared = self.shared.clone();
        let prepared = tokio::task::spawn_blocking(move || prepare(&shared, admitted.range, admitted.bytes));
        Ok(Some(Ahead { admitted, prepared }))
    }

    /// Publishes one range. Says whether the catalog's position moved with it.
    async fn publish_epoch(&mut self, admitted: Admitted, prepared: Prepared) -> Result<bool, EngineError> {
        let touched = prepared.tables();
        let range = admitted.range;
        if touched.is_empty() {
            // No table changes: no snapshot and no epoch, but the position moves when it is time.
            self.ledger = Ledger::new(self.ledger.last_epoch(), range.to);
            if admitted.rows == 0 {
                self.record_idle().await?;
            }
            return Ok(false);
        }
        let epoch = self.ledger.last_epoch().next();
        let records = self.shared.tables();
        let shares = touched.iter().filter_map(|id| records.get(id)).map(|record| NewShare {
            target: record.target.clone(),
            table: Some(record.id),
            generation: record.generation,
            base_snapshot: record.snapshot_id,
        });
        let shares: Vec<_> = shares.collect();
        let (uid, commit_time) = (self.uid.clone(), admitted.commit_time);
        let record = blocking(&self.shared, move |shared| {
            let id = |_| operation_id(&uid, &format!("e{epoch}"));
            Ok(shared
                .store
                .operations()
                .begin(id, kind(epoch, range, commit_time), shares)?)
        })
        .await?;
        let mut work = EpochWork::new(epoch, range, commit_time, prepared);
        self.finish(record, &mut work, range, epoch, &touched).await
    }

    /// Takes an epoch's operation to its end and lets the ledger, PostgreSQL and the journal know.
    pub(crate) async fn finish(
        &mut self,
        record: flow_store::OperationRecord,
        work: &mut EpochWork,
        range: Range,
        epoch: flow_core::Epoch,
        touched: &std::collections::BTreeSet<TableId>,
    ) -> Result<bool, EngineError> {
        let invariant = |error: flow_core::ledger::LedgerError| EngineError::Invariant(error.to_string());
        self.ledger
            .begin(epoch, range.from, range.to, touched.iter().copied())
            .map_err(invariant)?;
        let plans = publish(&self.shared, record, work).await?;
        let records = self.shared.tables();
        for id in touched {
            let streaming = records
                .get(id)
                .is_some_and(|record| record.state == TableState::Streaming);
            let share = if streaming {
                LedgerShare::Done
            } else {
                LedgerShare::SetAside
            };
            self.ledger.end(epoch, *id, share).map_err(invariant)?;
        }
        let committed = plans.iter().any(Option::is_some);
        if committed {
            self.recorded = self.ledger.published();
            self.settle().await?;
        }
        Ok(committed)
    }

    /// Takes up an epoch that an earlier run left open. What lies between the stored position and
    /// its start was seen to change no table.
    pub(crate) async fn resume(&mut self, record: flow_store::OperationRecord) -> Result<(), EngineError> {
        let Kind::Epoch {
            epoch,
            from,
            to,
            commit_time_us,
        } = *record.kind()
        else {
            return Err(EngineError::Invariant(format!("operation {} is no epoch", record.id())));
        };
        let range = Range { from, to };
        let touched = record.shares.iter().filter_map(|share| share.table).collect();
        self.ledger = Ledger::new(self.ledger.last_epoch(), from);
        let mut work = EpochWork::resumed(epoch, range, commit_time_us);
        self.finish(record, &mut work, range, epoch, &touched).await?;
        Ok(())
    }

    /// Records in the catalog that the source has come further without changing a table.
    async fn record_idle(&mut self) -> Result<(), EngineError> {
        let (to, epoch) = (self.ledger.published(), self.ledger.last_epoch());
        if to <= self.recorded {
            return Ok(());
        }
        let shared = &self.shared;
        retrying(shared, "the catalog", || {
            shared.lake.advance_source(&shared.source_id, to, epoch)
        })
        .await?;
        let position = LedgerPosition {
            last_epoch: epoch,
            published_lsn: to,
        };
        blocking(shared, move |shared| Ok(shared.store.facts().set_ledger(&position)?)).await?;
        self.recorded = to;
        self.settle().await
    }

    /// Acknowledges the published prefix, lets the journal forget, and wakes the refreshes.
    async fn settle(&self) -> Result<(), EngineError> {
        // Shown before it is told: nobody may see PostgreSQL ahead of the status.
        self.note();
        self.shared.board.post();
        let published = self.recorded;
        mark_unmarked(&self.shared).await?;
        if self.shared.options().ack_mode == AckMode::Materialized {
            self.shared.acknowledge(published);
        }
        let keep = held_from(&self.shared, published);
        blocking(&self.shared, move |shared| Ok(shared.store.journal().forget(keep)?)).await?;
        self.shared.committed.notify_waiters();
        Ok(())
    }

    fn note(&self) {
        let oldest: Option<UnixMicros> = self.shared.backlog.look(self.shared.clock.monotonic()).oldest_commit;
        let records = self.shared.tables();
        let journaled = self.shared.store.journal().position();
        let mut notices = self.shared.board.write();
        // What is published was received and journaled, also by a run before this one.
        notices.positions.journaled.raise(self.recorded.max(journaled));
        notices.positions.received.raise(self.recorded.max(journaled));
        notices.positions.published.raise(self.recorded);
        notices.published_epoch = self.ledger.last_epoch().0;
        notices.oldest_waiting = oldest;
        for (id, record) in &records {
            if let Some(status) = notices.tables.get_mut(id) {
                status.epoch = record.published_epoch.0;
                status.snapshot_id = record.snapshot_id;
                status.published_lsn = record.published_lsn;
            }
        }
    }
}

/// Is the position up to which the journal may forget: the published prefix, or the first hold of a
/// blocked table.
fn held_from(shared: &Shared, published: Lsn) -> Lsn {
    let held = |state: &TableState| match state {
        TableState::Blocked { hold_lsn, .. } | TableState::Paused { hold_lsn, .. } => Some(*hold_lsn),
        TableState::Copying | TableState::Streaming | TableState::ResyncRequired { .. } => None,
    };
    let tables: BTreeMap<_, _> = shared.tables();
    tables
        .values()
        .filter_map(|table| held(&table.state))
        .fold(published, Lsn::min)
}
