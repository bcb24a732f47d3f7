//! The one publish path (law 4): begin → write files → seal → commit → proof → apply → complete.
//!
//! Epochs, copies and refreshes differ in what they write and in what completing them means; that is
//! their [`Work`]. When, in which order and with which proof is written here and nowhere else.
//!
//! 1. The operation's record says which phase its tables are in; a fresh one is `Building` (D2).
//! 2. Each turn of the loop does what the phase asks and moves it by `flow_core::operation::step`.
//! 3. A restart loads the record and enters the same loop.
//!
//! All tables of an operation are committed in one catalog transaction, so they share their phase;
//! a table that cannot go on is set aside while the operation is `Building`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use flow_core::clock::Clock;
use flow_core::operation::{Event, Phase};
use flow_core::{Attempt, Remedial, Remedy};
use flow_lake::{CommitOutcome, LakeError, Look, Progress, SealInput, Sealed, Table, WrittenFile};
use flow_store::{CompletionWrites, OperationRecord, StateId};
use serde::{Deserialize, Serialize};

use crate::board::{Absence, Board, Dependency};
use crate::error::EngineError;
use crate::failpoint;
use crate::outage::Outage;
use crate::shared::Shared;

/// Is what one table of an attempt wrote, ready to be sealed.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) table: Table,
    pub(crate) added: Vec<WrittenFile>,
    pub(crate) deletes: Vec<WrittenFile>,
    pub(crate) summary: BTreeMap<String, String>,
    pub(crate) properties: BTreeMap<String, String>,
    /// Counts the blocks of the index or state delta that were staged.
    pub(crate) blocks: u64,
    /// Is the dynamic table's state that the blocks change.
    pub(crate) state: Option<StateId>,
    /// Is kept with the plan, for [`Work::completion`].
    pub(crate) note: serde_json::Value,
}

/// Is the plan of one table as the store keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SharePlan {
    pub(crate) sealed: Sealed,
    pub(crate) note: serde_json::Value,
}

/// Is what differs between epochs, copies and refreshes.
#[async_trait]
pub(crate) trait Work: Send {
    /// Writes the files of an attempt; one entry per share, `None` for a share to set aside.
    ///
    /// Shares that are set aside already get `None` too. Index deltas are staged under the record.
    async fn write(
        &mut self,
        shared: &Arc<Shared>,
        record: &OperationRecord,
        attempt: Attempt,
    ) -> Result<Vec<Option<Draft>>, EngineError>;

    /// Says whether a failed attempt may be written again from the start, by this very work.
    fn repeats(&self) -> bool {
        false
    }

    /// Sets a share's table aside because the lake refused it, or gives the error back.
    async fn refuse(
        &mut self,
        _shared: &Arc<Shared>,
        _record: &OperationRecord,
        _share: usize,
        error: EngineError,
    ) -> Result<(), EngineError> {
        Err(error)
    }

    /// Says what the commit records beside the tables.
    fn progress(&self, shared: &Shared, record: &OperationRecord) -> Progress;

    /// Says what the last write of the operation moves: table records, ledger, refresh frontiers.
    /// Nobody else changes a table record meanwhile, so it is taken as [`Shared::table`] has it.
    fn completion(
        &mut self,
        shared: &Shared,
        record: &OperationRecord,
        plans: &[Option<SharePlan>],
    ) -> Result<CompletionWrites, EngineError>;
}

/// Takes an operation from whatever phase its record holds to its end.
///
/// # Errors
/// An error leaves the record as it is; entering again continues. `Unavailable` after the catalog
/// was retried for `retry_for`.
pub(crate) async fn publish(
    shared: &Arc<Shared>,
    mut record: OperationRecord,
    work: &mut dyn Work,
) -> Result<Vec<Option<SharePlan>>, EngineError> {
    let mut plans = load_plans(&record)?;
    let mut patience = Patience::default();
    loop {
        match phase(&record)? {
            Phase::Building { attempt } => {
                shared.room_in_lake().await?;
                let mut next = record.clone();
                match build(shared, &mut next, work, attempt).await {
                    Ok(built) => (record, plans) = (next, built),
                    // Nothing of the attempt is sealed, so it is written again as after a restart.
                    Err(EngineError::Lake(error)) if error.remedy() == Remedy::Retry && work.repeats() => {
                        shared.board.error(&error, "writing");
                        patience.pause(shared, "the lake", error).await?;
                    }
                    Err(error) => return Err(error),
                }
            }
            Phase::Sealed { .. } => {
                let progress = work.progress(shared, &record);
                let event = match commit(shared, &record, &progress, &plans).await? {
                    CommitOutcome::Committed => Event::Committed,
                    // The catalog may have forgotten its record of a commit: a refusal alone proves nothing (law 5).
                    CommitOutcome::Conflict { .. } => match look(shared, &plans).await? {
                        Event::MarkerFound => Event::MarkerFound,
                        _ => Event::Conflict,
                    },
                    CommitOutcome::Unknown { error } => {
                        patience.pause(shared, "the catalog", error).await?;
                        Event::Lost
                    }
                };
                advance(&mut record, event)?;
                settle(shared, &record, event).await?;
            }
            Phase::Unknown { .. } => {
                let event = look(shared, &plans).await?;
                advance(&mut record, event)?;
                settle(shared, &record, event).await?;
            }
            Phase::Committed { .. } => {
                apply(shared, &mut record, work, &plans).await?;
                return Ok(plans);
            }
            Phase::Completed => return Ok(plans),
            Phase::SetAside => {
                // Every table was set aside: nothing to commit, and the rest goes on without it.
                complete(shared, &mut record, work, &plans).await?;
                return Ok(plans);
            }
        }
    }
}

/// Is the phase that all tables share which were not set aside.
fn phase(record: &OperationRecord) -> Result<Phase, EngineError> {
    let mut common = Phase::SetAside;
    for share in &record.shares {
        match (common, share.phase()) {
            (_, Phase::SetAside) => {}
            (Phase::SetAside, phase) => common = phase,
            // The cursors differ while blocks are applied table by table.
            (Phase::Committed { .. }, Phase::Committed { .. }) => {}
            (common, phase) if common == phase => {}
            (common, phase) => {
                let what = format!("operation {} has tables in {common:?} and {phase:?}", record.id());
                return Err(EngineError::Invariant(what));
            }
        }
    }
    Ok(common)
}

/// Moves every table that was not set aside.
fn advance(record: &mut OperationRecord, event: Event) -> Result<(), EngineError> {
    for share in 0..record.shares.len() {
        if record.shares[share].phase() != Phase::SetAside {
            moved(record, share, event)?;
        }
    }
    Ok(())
}

fn moved(record: &mut OperationRecord, share: usize, event: Event) -> Result<(), EngineError> {
    record
        .step(share, event)
        .map_err(|illegal| EngineError::Invariant(illegal.to_string()))?;
    Ok(())
}

fn load_plans(record: &OperationRecord) -> Result<Vec<Option<SharePlan>>, EngineError> {
    let plan = |bytes: &Vec<u8>| {
        serde_json::from_slice(bytes)
            .map_err(|error| EngineError::Invariant(format!("plan of operation {}: {error}", record.id())))
    };
    record
        .shares
        .iter()
        .map(|share| share.plan.as_ref().map(plan).transpose())
        .collect()
}

/// Writes and seals one attempt (D3).
async fn build(
    shared: &Arc<Shared>,
    record: &mut OperationRecord,
    work: &mut dyn Work,
    attempt: Attempt,
) -> Result<Vec<Option<SharePlan>>, EngineError> {
    failpoint::hit("operation_begun");
    let began = shared.clock.monotonic();
    let drafts = work.write(shared, record, attempt).await?;
    failpoint::hit("files_written");
    let wrote = shared.clock.monotonic();
    shared.counters.write_time.record(wrote.saturating_sub(began));
    let mut plans = Vec::with_capacity(drafts.len());
    for (index, draft) in drafts.into_iter().enumerate() {
        if record.shares[index].phase() == Phase::SetAside {
            plans.push(None);
            continue;
        }
        let Some(draft) = draft else {
            moved(record, index, Event::SetAside)?;
            plans.push(None);
            continue;
        };
        match seal(shared, record, index, attempt, draft).await {
            Ok(plan) => plans.push(Some(plan)),
            Err(error) => {
                work.refuse(shared, record, index, error).await?;
                moved(record, index, Event::SetAside)?;
                plans.push(None);
            }
        }
    }
    let sealed = record.clone();
    blocking(shared, move |shared| Ok(shared.store.operations().seal(&sealed)?)).await?;
    shared
        .counters
        .seal_time
        .record(shared.clock.monotonic().saturating_sub(wrote));
    failpoint::hit("operation_sealed");
    Ok(plans)
}

/// Writes one table's manifests and puts the plan into its share.
async fn seal(
    shared: &Arc<Shared>,
    record: &mut OperationRecord,
    index: usize,
    attempt: Attempt,
    draft: Draft,
) -> Result<SharePlan, EngineError> {
    let input = SealInput {
        operation: record.id(),
        attempt,
        added: draft.added,
        deletes: draft.deletes,
        summary: draft.summary,
        properties: draft.properties,
        protected: shared.reads.of(draft.table.name()),
    };
    let sealed = shared.lake.seal(&draft.table, input).await?;
    moved(record, index, Event::Seal)?;
    let plan = SharePlan {
        sealed,
        note: draft.note,
    };
    let bytes = serde_json::to_vec(&plan).map_err(|error| EngineError::Invariant(error.to_string()))?;
    let share = &mut record.shares[index];
    share.base_snapshot = plan.sealed.base_snapshot_id;
    share.blocks = draft.blocks;
    share.state = draft.state;
    share.plan = Some(bytes);
    Ok(plan)
}

/// Sends the sealed attempt to the catalog (D4) and counts what became of it.
async fn commit(
    shared: &Arc<Shared>,
    record: &OperationRecord,
    progress: &Progress,
    plans: &[Option<SharePlan>],
) -> Result<CommitOutcome, EngineError> {
    let sealed: Vec<Sealed> = plans.iter().flatten().map(|plan| plan.sealed.clone()).collect();
    failpoint::hit("before_commit");
    let began = shared.clock.monotonic();
    let outcome = match failpoint::loses("commit_request") {
        true => answer_lost(shared),
        false => retrying(shared, "the catalog", || shared.lake.commit(&sealed, progress)).await?,
    };
    let outcome = match failpoint::loses("commit_answer") {
        true => answer_lost(shared),
        false => outcome,
    };
    shared
        .counters
        .commit_time
        .record(shared.clock.monotonic().saturating_sub(began));
    match &outcome {
        CommitOutcome::Committed => {
            failpoint::hit("after_commit");
            shared.counters.commits.add(1);
        }
        CommitOutcome::Conflict { tables } => {
            shared.counters.commit_conflicts.add(1);
            let names: Vec<String> = tables.iter().map(ToString::to_string).collect();
            tracing::info!(operation = %record.id(), tables = names.join(", "), "the base moved");
        }
        CommitOutcome::Unknown { error } => {
            shared.counters.commit_unknowns.add(1);
            shared.board.error(error, "commit");
        }
    }
    Ok(outcome)
}

/// Is a commit of which nobody knows what became.
fn answer_lost(shared: &Shared) -> CommitOutcome {
    CommitOutcome::Unknown {
        error: LakeError::File {
            action: "hear from",
            path: shared.lake.catalog_path().to_owned(),
            source: std::io::ErrorKind::TimedOut.into(),
        },
    }
}

/// Spaces the tries of one publishing and bounds them by `retry_for`.
#[derive(Default)]
struct Patience {
    since: Option<Duration>,
    pause: Duration,
}

impl Patience {
    /// Waits before the next try.
    async fn pause(&mut self, shared: &Shared, what: &'static str, error: LakeError) -> Result<(), EngineError> {
        let now = shared.clock.monotonic();
        let out_for = now.saturating_sub(*self.since.get_or_insert(now));
        if out_for > shared.options().retry_for {
            return Err(EngineError::Unavailable {
                what,
                seconds: out_for.as_secs(),
                source: Box::new(error.into()),
            });
        }
        self.pause = (self.pause * 2).clamp(RETRY_PAUSE_MIN, RETRY_PAUSE_MAX);
        shared.pause(self.pause).await
    }
}

/// Looks for the attempt's marker in every table (law 5).
async fn look(shared: &Arc<Shared>, plans: &[Option<SharePlan>]) -> Result<Event, EngineError> {
    let (mut found, mut moved) = (0_u64, 0_u64);
    let mut looked = 0_u64;
    for plan in plans.iter().flatten() {
        looked += 1;
        match retrying(shared, "the catalog", || shared.lake.look(&plan.sealed)).await {
            Ok(Look::Found { .. }) => found += 1,
            Ok(Look::BaseUnchanged) => {}
            Ok(Look::BaseMoved) => moved += 1,
            // The catalog has no record of the attempt, and the table is gone or cannot be read: nothing
            // can be committed to it, and writing again sets it aside.
            Err(EngineError::Lake(error)) if error.remedy() == Remedy::BlockTable => moved += 1,
            Err(error) => return Err(error),
        }
    }
    if found > 0 && found < looked {
        return Err(EngineError::Invariant(
            "one transaction's tables are in the catalog in part".to_owned(),
        ));
    }
    Ok(match (found, moved) {
        (1.., _) => Event::MarkerFound,
        (0, 0) => Event::BaseUnchanged,
        (0, _) => Event::BaseMoved,
    })
}

/// Makes durable what an outcome means for the record.
async fn settle(shared: &Arc<Shared>, record: &OperationRecord, event: Event) -> Result<(), EngineError> {
    let copy = record.clone();
    match event {
        // D5. Not synced: the log keeps the order, and a lost proof is found again by looking.
        Event::Committed | Event::MarkerFound => {
            blocking(shared, move |shared| Ok(shared.store.operations().proof(&copy)?)).await?;
            failpoint::hit("proof_recorded");
        }
        Event::Conflict | Event::BaseMoved => {
            blocking(shared, move |shared| {
                Ok(shared.store.operations().update(&copy, true)?)
            })
            .await?;
        }
        // The store keeps `Sealed`: what is unknown is unknown after a restart too.
        _ => {}
    }
    Ok(())
}

/// Applies the index and state deltas in bounded batches, the last of which completes the operation (D6).
async fn apply(
    shared: &Arc<Shared>,
    record: &mut OperationRecord,
    work: &mut dyn Work,
    plans: &[Option<SharePlan>],
) -> Result<(), EngineError> {
    let began = shared.clock.monotonic();
    for index in 0..record.shares.len() {
        if !matches!(record.shares[index].phase(), Phase::Committed { .. }) || record.shares[index].blocks == 0 {
            continue;
        }
        let mut owned = record.clone();
        *record = blocking(shared, move |shared| {
            while shared.store.operations().apply_block(&mut owned, index)? {
                failpoint::hit("apply_block");
            }
            Ok(owned)
        })
        .await?;
    }
    complete(shared, record, work, plans).await?;
    shared
        .counters
        .apply_time
        .record(shared.clock.monotonic().saturating_sub(began));
    Ok(())
}

async fn complete(
    shared: &Arc<Shared>,
    record: &mut OperationRecord,
    work: &mut dyn Work,
    plans: &[Option<SharePlan>],
) -> Result<(), EngineError> {
    let _held = shared.change_records().await;
    let writes = work.completion(shared, record, plans)?;
    let tables = writes.tables.clone();
    let ended = record.clone();
    blocking(shared, move |shared| {
        Ok(shared.store.operations().complete(ended, &writes)?)
    })
    .await?;
    failpoint::hit("operation_completed");
    for table in tables {
        shared.note_table(table);
    }
    Ok(())
}

/// Runs store work off the async threads.
pub(crate) async fn blocking<T: Send + 'static>(
    shared: &Arc<Shared>,
    work: impl FnOnce(&Shared) -> Result<T, EngineError> + Send + 'static,
) -> Result<T, EngineError> {
    let shared = shared.clone();
    let joined = tokio::task::spawn_blocking(move || work(&shared)).await;
    joined.unwrap_or_else(|error| Err(EngineError::Invariant(format!("a worker thread ended: {error}"))))
}

/// Are the shortest and the longest pause between two tries of one publishing.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(50);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Repeats what asks for patience, for `retry_for`. `what` names what is tried where the error does
/// not say what is away.
pub(crate) async fn retrying<T, E, F>(
    shared: &Shared,
    what: &'static str,
    attempt: impl FnMut() -> F,
) -> Result<T, EngineError>
where
    F: Future<Output = Result<T, E>>,
    E: Into<EngineError>,
{
    let retry_for = || shared.options().retry_for;
    retry(&shared.board, shared.clock.as_ref(), retry_for, what, attempt).await
}

async fn retry<T, E, F>(
    board: &Board,
    clock: &dyn Clock,
    retry_for: impl Fn() -> Duration,
    what: &'static str,
    mut attempt: impl FnMut() -> F,
) -> Result<T, EngineError>
where
    F: Future<Output = Result<T, E>>,
    E: Into<EngineError>,
{
    let mut outage = Outage::default();
    // Ends with the retries, however they end.
    let mut absence: Option<Absence<'_>> = None;
    loop {
        let error: EngineError = match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) => error.into(),
        };
        // A dependency that was retried within the attempt has had its time.
        if error.remedy() != Remedy::Retry || matches!(error, EngineError::Unavailable { .. }) {
            return Err(error);
        }
        let missed = Dependency::missed_by(&error);
        let what = missed.map_or(what, Dependency::name);
        board.error(&error, what);
        if absence.as_ref().map(Absence::of) != missed {
            absence = missed.map(|missed| board.absence(missed));
        }
        outage.wait(clock, retry_for(), what, error).await?;
    }
}

#[cfg(test)]
mod tests;
