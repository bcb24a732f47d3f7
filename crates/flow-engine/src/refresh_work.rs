//! One refresh of one dynamic table: computed, compared, and published as an operation.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use async_trait::async_trait;
use bytes::Bytes;
use flow_core::clock::{UnixMicros, iso_utc};
use flow_core::frontier::Frontier;
use flow_core::lake::SnapshotReader;
use flow_core::state::StateDelta;
use flow_core::{Attempt, Epoch, Lsn, OperationId};
use flow_lake::{Place, Progress, Table, WrittenFile};
use flow_refresh::{
    INPUT_COLUMNS, Inserted, Mode, PlannedTable, QUERY_HASH, RefreshContext, RefreshError, RefreshOutput, RowDigest,
    refresh_full, schema_difference,
};
use flow_store::{
    CompletionWrites, Kind, NewShare, OperationRecord, RefreshCompletion, RefreshRecord, RefreshRun, StateId,
    StateStamp,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::EngineError;
use crate::failpoint;
use crate::handover::Changed;
use crate::incremental::{self, Change, Costs};
use crate::input_changes::Full;
use crate::output_index::{self, FileNumber};
use crate::publish::{Draft, SharePlan, Work, blocking, publish, retrying};
use crate::refresh_request::{MEMORY_SHARE, Request};
use crate::shared::Shared;

/// Is a refresh that ended.
#[derive(Debug)]
pub(crate) struct Refreshed {
    pub(crate) record: RefreshRecord,
    pub(crate) mode: Mode,
    pub(crate) duration: Duration,
}

/// Is what completing a refresh needs after a restart; kept with the sealed plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Note {
    name: String,
    record: RefreshRecord,
}

/// Refreshes one table.
pub(crate) async fn refresh(shared: &Arc<Shared>, request: Request) -> Result<Refreshed, EngineError> {
    let began = shared.clock.monotonic();
    let started_us = shared.clock.now_us();
    let planned = request.planned.clone();
    let table = open(shared, &planned, request.record.as_ref()).await?;
    let operation = operation_id(&table, &request);
    let context = RefreshContext {
        run_id: operation.to_string(),
        processed_at_us: started_us,
        at_us: request.at_us.unwrap_or(started_us),
        memory_bytes: shared.options().limits.memory_bytes / MEMORY_SHARE,
        partitions: 0,
        scratch: shared.scratch()?,
    };
    let (output, full) = compute(shared, &request, &table, &context).await?;
    failpoint::hit("refresh_computed");
    let mode = if full.is_some() { Mode::Full } else { Mode::Incremental };
    let run = RefreshRun {
        run_id: operation.to_string(),
        started_us,
        duration_ms: u64::try_from(shared.clock.monotonic().saturating_sub(began).as_millis()).unwrap_or(u64::MAX),
        ..run_of(&request, &output, full)
    };
    let costs = Costs::of(request.record.as_ref()).after(&run);
    let record = RefreshRecord {
        full_ms: costs.full_ms,
        row_us: costs.row_us,
        uuid: table.uuid(),
        query_hash: planned.query_hash.clone(),
        frontier: request.frontier.clone(),
        data_lsn: request.data_lsn,
        at_us: request.at_us,
        epoch: request.epoch,
        last: Some(run),
        suspended: request.record.as_ref().is_some_and(|record| record.suspended),
        blocked: None,
        snapshot_id: table.current_snapshot_id(),
        state: stamp_after(&request, &output),
    };
    shared.counters.refreshes.add(1);
    let mut record = if output.is_empty() {
        declare(shared, &planned, &table).await?;
        remember(shared, planned.name.to_string(), record, output.kept).await?
    } else {
        let written = output.rows_inserted() + output.rows_deleted();
        shared.counters.refresh_rows_written.add(written);
        let base = table.current_snapshot_id();
        let pending = Pending {
            output,
            commit_time_us: request.commit_time_us.unwrap_or(started_us),
            record,
            base,
            declaration: planned.declaration(),
        };
        write(shared, &planned, operation, pending).await?
    };
    let duration = shared.clock.monotonic().saturating_sub(began);
    shared.counters.refresh_time.record(duration);
    if full.is_some()
        && let Some(stamp) = incremental::build_after_full(shared, &planned, &record, &context).await?
    {
        record.state = Some(stamp);
    }
    Ok(Refreshed { record, mode, duration })
}

/// Names the state that there is after a refresh.
fn stamp_after(request: &Request, output: &Output) -> Option<StateStamp> {
    match &output.kept {
        Some(kept) => Some(kept.stamp.clone()),
        None => {
            let before = request.record.as_ref().and_then(|record| record.state.clone());
            before.map(outdated)
        }
    }
}

/// Says that the state is of an older content: a full refresh changes the table's rows and not it.
fn outdated(stamp: StateStamp) -> StateStamp {
    StateStamp {
        layout: String::new(),
        ..stamp
    }
}

/// Says what a refresh did, but for its name and times.
fn run_of(request: &Request, output: &Output, full: Option<Full>) -> RefreshRun {
    let mode = if full.is_some() { Mode::Full } else { Mode::Incremental };
    RefreshRun {
        run_id: String::new(),
        mode: mode.as_str().to_owned(),
        reason: match full {
            Some(code) if request.planned.mode == Mode::Incremental => format!("{}: {code}", request.reason),
            _ => request.reason.clone(),
        },
        started_us: 0,
        predicted_ms: output.predicted_ms,
        duration_ms: 0,
        rows_changed: output.rows_changed,
        rows_read: output.rows_read,
        rows_inserted: output.rows_inserted(),
        rows_deleted: output.rows_deleted(),
        frontier: request.frontier.clone(),
        data_lsn: request.data_lsn,
        at_us: request.at_us,
        runs: 1,
    }
}

/// Computes what changes in a table, by what changed in its inputs or, for the reason that is given
/// back, from the whole of them.
async fn compute(
    shared: &Arc<Shared>,
    request: &Request,
    table: &Table,
    context: &RefreshContext,
) -> Result<(Output, Option<Full>), EngineError> {
    let costs = Costs::of(request.record.as_ref());
    match incremental::change(shared, request, table, &costs, context).await? {
        Ok(change) => Ok((Output::of_change(change), None)),
        Err(full) => {
            let reader: Arc<dyn SnapshotReader> = Arc::new(shared.lake.clone());
            let stored = table.current_snapshot_id();
            let output = refresh_full(&request.planned, &request.inputs, stored, reader, context).await?;
            Ok((Output::of_full(output, costs.full_ms), Some(full)))
        }
    }
}

/// Is rows to insert.
enum Rows {
    Of(Vec<RecordBatch>),
    Full(Inserted),
}

impl Rows {
    fn count(&self) -> u64 {
        match self {
            Rows::Of(batches) => batches.iter().map(|batch| batch.num_rows() as u64).sum(),
            Rows::Full(inserted) => inserted.rows(),
        }
    }

    fn batches(self) -> Result<Box<dyn Iterator<Item = Result<RecordBatch, RefreshError>> + Send>, RefreshError> {
        Ok(match self {
            Rows::Of(batches) => Box::new(batches.into_iter().map(Ok)),
            Rows::Full(inserted) => Box::new(inserted.batches()?),
        })
    }
}

/// Is what a refresh writes.
struct Output {
    inserted: Rows,
    /// Holds file and position of each row to delete, sorted.
    deleted: Vec<(Arc<str>, u64)>,
    rows_read: u64,
    /// Counts the rows that changed in the inputs; `None` for a full refresh.
    rows_changed: Option<u64>,
    /// Is how long computing was expected to take, in milliseconds.
    predicted_ms: Option<u64>,
    /// Is what becomes of the state; `None` for a full refresh, which leaves it as it is.
    kept: Option<Kept>,
}

/// Is what becomes of a table's state in a refresh.
struct Kept {
    stamp: StateStamp,
    delta: StateDelta,
    /// Names each inserted row, in order.
    inserted: Vec<RowDigest>,
}

impl Output {
    fn of_full(full: RefreshOutput, predicted_ms: Option<u64>) -> Self {
        Output {
            rows_changed: None,
            predicted_ms,
            inserted: Rows::Full(full.inserted),
            deleted: full.deleted,
            rows_read: full.rows_read,
            kept: None,
        }
    }

    fn of_change(change: Change) -> Self {
        let mut deleted: Vec<(Arc<str>, u64)> = Vec::with_capacity(change.gone.len());
        let mut delta = change.state;
        for gone in change.gone {
            deleted.push((gone.path, gone.position));
            delta.0.push((gone.key, None));
        }
        deleted.sort_unstable();
        delta.0.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Output {
            inserted: Rows::Of(change.rows.inserted),
            deleted,
            rows_read: change.rows_read,
            rows_changed: Some(change.rows_changed),
            predicted_ms: change.predicted_ms,
            kept: Some(Kept {
                stamp: change.stamp,
                delta,
                inserted: change.rows.inserted_digests,
            }),
        }
    }

    fn rows_inserted(&self) -> u64 {
        self.inserted.count()
    }

    fn rows_deleted(&self) -> u64 {
        self.deleted.len() as u64
    }

    fn is_empty(&self) -> bool {
        self.rows_inserted() == 0 && self.deleted.is_empty()
    }
}

/// Writes into the catalog which query the table holds the content of, and over which columns of its
/// inputs, where a refresh that commits nothing is the first of this query.
async fn declare(shared: &Arc<Shared>, planned: &PlannedTable, table: &Table) -> Result<(), EngineError> {
    let properties = table.properties();
    let known = properties.get(QUERY_HASH) == Some(&planned.query_hash) && properties.contains_key(INPUT_COLUMNS);
    if !known {
        retrying(shared, "the catalog", || {
            shared.lake.set_properties(&planned.name, planned.declaration())
        })
        .await?;
        failpoint::hit("refresh_declared");
    }
    Ok(())
}

/// A refresh that changes no row commits nothing: its frontier and what becomes of its state are
/// durable in the store alone.
async fn remember(
    shared: &Arc<Shared>,
    name: String,
    record: RefreshRecord,
    kept: Option<Kept>,
) -> Result<RefreshRecord, EngineError> {
    let copy = record.clone();
    blocking(shared, move |shared| {
        let delta = kept.map(|kept| kept.delta).unwrap_or_default();
        let refreshes = shared.store.refreshes();
        refreshes.put_with_state(&name, &copy, copy.last.as_ref(), &delta)?;
        Ok(())
    })
    .await?;
    Ok(record)
}

/// Publishes a refresh's difference.
async fn write(
    shared: &Arc<Shared>,
    planned: &PlannedTable,
    operation: OperationId,
    pending: Pending,
) -> Result<RefreshRecord, EngineError> {
    let share = NewShare {
        target: planned.name.clone(),
        table: None,
        generation: Default::default(),
        base_snapshot: pending.base,
    };
    let kind = Kind::Refresh {
        name: planned.name.to_string(),
    };
    let begun = blocking(shared, move |shared| {
        Ok(shared.store.operations().begin(|_| operation, kind, vec![share])?)
    })
    .await?;
    let mut work = RefreshWork {
        pending: Some(pending),
        changed: None,
    };
    let plans = publish(shared, begun, &mut work).await?;
    let Some(plan) = plans.into_iter().flatten().next() else {
        return Err(EngineError::Reconfigure {
            code: "F0007",
            message: format!(
                "table {} was changed by another program; nothing was written",
                planned.name
            ),
        });
    };
    shared.committed.notify_waiters();
    Ok(completed(&plan)?.record)
}

/// Opens the dynamic table, making it if it is not there.
async fn open(
    shared: &Arc<Shared>,
    planned: &PlannedTable,
    record: Option<&RefreshRecord>,
) -> Result<Table, EngineError> {
    let found = retrying(shared, "the catalog", || shared.lake.load(&planned.name)).await?;
    let Some(table) = found else {
        let mut properties = planned.declaration();
        properties.insert("flow.kind".to_owned(), "dynamic".to_owned());
        properties.insert("flow.source-id".to_owned(), shared.source_id.clone());
        let made = retrying(shared, "the catalog", || {
            shared
                .lake
                .create_table(&planned.name, &planned.output, properties.clone())
        })
        .await;
        failpoint::hit("refresh_table_made");
        return made;
    };
    if !is_ours(shared, &table) {
        return Err(refuse(
            "F0013",
            format!(
                "table {} exists in the catalog and is not this dynamic table",
                planned.name
            ),
        ));
    }
    if let Some(difference) = schema_difference(&planned.output, &table.table_schema()?) {
        let message = format!(
            "the SELECT of {} has another output schema than its table: {difference}",
            planned.name
        );
        return Err(refuse("F0422", message));
    }
    // What the store does not know of yet is adopted if it is ours: its summary says what it reflects.
    let known = record.and_then(|record| record.snapshot_id);
    if table.current_snapshot_id() != known && table.current_is_foreign() {
        let message = format!(
            "snapshot {:?} of {} was committed by another program",
            table.current_snapshot_id(),
            planned.name
        );
        return Err(refuse("F0007", message));
    }
    Ok(table)
}

/// Says whether a table of the catalog is a dynamic table that this installation made.
pub(crate) fn is_ours(shared: &Shared, table: &Table) -> bool {
    let properties = table.properties();
    properties.get("flow.kind").map(String::as_str) == Some("dynamic")
        && properties.get("flow.source-id") == Some(&shared.source_id)
}

fn refuse(code: &'static str, message: String) -> EngineError {
    EngineError::Reconfigure {
        code,
        message: format!("{message}; nothing was changed"),
    }
}

/// Hashes what a refresh reads and what it stands on (walk, step 14).
fn operation_id(table: &Table, request: &Request) -> OperationId {
    let mut hash = Sha256::new();
    let old = request.record.as_ref().map(|record| &record.frontier);
    let parts = [
        table.uuid(),
        request.planned.query_hash.clone(),
        format!("{:?}", table.current_snapshot_id()),
        format!("{old:?}"),
        format!("{:?}", request.frontier),
        request.planned.mode.as_str().to_owned(),
        request.nonce.clone().unwrap_or_default(),
        request.at_us.map(|at| at.to_string()).unwrap_or_default(),
    ];
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let digest: String = hash
        .finalize()
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    OperationId::new(format!("r{digest}"))
}

/// Is what the only attempt of a refresh writes.
struct Pending {
    output: Output,
    /// Is when the source committed the newest change that was read, in microseconds since 1970.
    commit_time_us: UnixMicros,
    record: RefreshRecord,
    base: Option<i64>,
    /// Is what the table's properties keep of its definition.
    declaration: BTreeMap<String, String>,
}

/// Is a refresh being published.
struct RefreshWork {
    /// Is taken by the first attempt. A base that moved makes the result stale, and after a
    /// restart it is gone: both are computed again as another operation.
    pending: Option<Pending>,
    changed: Option<Changed>,
}

/// Stages what becomes of the state, the places of the inserted rows with it.
async fn stage(
    shared: &Arc<Shared>,
    operation: &OperationRecord,
    kept: Kept,
    places: &[(Place, u64)],
    added: &[WrittenFile],
) -> Result<(u64, Option<StateId>), EngineError> {
    let Kept {
        stamp,
        mut delta,
        inserted,
    } = kept;
    let number = |file: usize| {
        let file = u32::try_from(file).map_err(|_| EngineError::Invariant("more files than numbers".to_owned()))?;
        let operation = operation.seq();
        Ok::<_, EngineError>(FileNumber { operation, file })
    };
    for (file, written) in added.iter().enumerate() {
        let (key, path) = output_index::file_entry(number(file)?, &written.path);
        delta.0.push((key, Some(path)));
    }
    let mut digests = inserted.iter();
    for (place, rows) in places {
        let file = number(place.file)?;
        for (digest, position) in digests.by_ref().take(*rows as usize).zip(place.position..) {
            delta
                .0
                .push((output_index::row_key(digest, file, position), Some(Bytes::new())));
        }
    }
    delta.0.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let seq = operation.seq();
    let blocks = blocking(shared, move |shared| {
        Ok(shared.store.operations().stage_state(seq, 0, 0, &delta)?)
    })
    .await?;
    Ok((blocks, Some(stamp.id)))
}

fn summary(
    shared: &Shared,
    record: &RefreshRecord,
    commit_time_us: UnixMicros,
) -> Result<BTreeMap<String, String>, EngineError> {
    let run = record
        .last
        .as_ref()
        .ok_or_else(|| EngineError::Invariant("a refresh without a run".to_owned()))?;
    let frontier =
        serde_json::to_string(&record.frontier).map_err(|error| EngineError::Invariant(error.to_string()))?;
    let pairs = [
        ("flow.source-id", shared.source_id.clone()),
        ("flow.epoch", record.epoch.to_string()),
        ("flow.lsn", record.data_lsn.to_string()),
        ("flow.data-lsn", record.data_lsn.to_string()),
        ("flow.commit-time", iso_utc(commit_time_us)),
        ("flow.frontier", frontier),
        ("flow.run-id", run.run_id.clone()),
        ("flow.refresh-mode", run.mode.clone()),
        ("flow.refresh-reason", run.reason.clone()),
        ("flow.started-at", iso_utc(run.started_us)),
        ("flow.refresh-ms", run.duration_ms.to_string()),
        ("flow.rows-read", run.rows_read.to_string()),
        ("flow.query-hash", record.query_hash.clone()),
    ];
    let at = record.at_us.map(|at| ("flow.refresh-time", iso_utc(at)));
    let pairs = pairs.into_iter().chain(at);
    Ok(pairs.map(|(name, value)| (name.to_owned(), value)).collect())
}

#[async_trait]
impl Work for RefreshWork {
    async fn write(
        &mut self,
        shared: &Arc<Shared>,
        operation: &OperationRecord,
        attempt: Attempt,
    ) -> Result<Vec<Option<Draft>>, EngineError> {
        let Some(pending) = self.pending.take() else {
            return Ok(vec![None]);
        };
        let Pending {
            output,
            commit_time_us,
            record,
            base,
            declaration,
        } = pending;
        let name = &operation.shares[0].target;
        let table = retrying(shared, "the catalog", || shared.lake.load(name)).await?;
        let Some(table) = table.filter(|table| table.current_snapshot_id() == base) else {
            return Ok(vec![None]);
        };
        let mut writer = shared.lake.data_writer(&table, operation.id(), attempt, 0)?;
        let mut noting = shared.noting(name);
        let mut places = Vec::new();
        for batch in output.inserted.batches()? {
            let batch = batch?;
            let place = writer.write(&batch).await?;
            noting.came(place, &batch);
            places.push((place, batch.num_rows() as u64));
        }
        noting.went(&output.deleted);
        let added = writer.finish().await?;
        self.changed = noting.finish(&added);
        let (blocks, state) = match output.kept {
            Some(kept) => stage(shared, operation, kept, &places, &added).await?,
            None => (0, None),
        };
        let deletes = if output.deleted.is_empty() {
            Vec::new()
        } else {
            shared
                .lake
                .write_deletes(&table, operation.id(), attempt, 0, output.deleted)
                .await?
        };
        let note = Note {
            name: name.to_string(),
            record,
        };
        let summary = summary(shared, &note.record, commit_time_us)?;
        let mut properties = declaration;
        properties.insert("flow.data-lsn".to_owned(), note.record.data_lsn.to_string());
        Ok(vec![Some(Draft {
            table,
            added,
            deletes,
            summary,
            properties,
            blocks,
            state,
            note: serde_json::to_value(&note).map_err(|error| EngineError::Invariant(error.to_string()))?,
        })])
    }

    fn progress(&self, shared: &Shared, operation: &OperationRecord) -> Progress {
        let note = operation.shares[0]
            .plan
            .as_ref()
            .and_then(|plan| serde_json::from_slice::<SharePlan>(plan).ok())
            .and_then(|plan| serde_json::from_value::<Note>(plan.note).ok());
        Progress {
            operation_id: operation.id().clone(),
            source_id: shared.source_id.clone(),
            kind: "refresh".to_owned(),
            epoch: Epoch(note.as_ref().map_or(0, |note| note.record.epoch)),
            from_lsn: Lsn::ZERO,
            to_lsn: note.map_or(Lsn::ZERO, |note| note.record.data_lsn),
            advance: None,
        }
    }

    fn completion(
        &mut self,
        shared: &Shared,
        operation: &OperationRecord,
        plans: &[Option<SharePlan>],
    ) -> Result<CompletionWrites, EngineError> {
        let Some(plan) = plans.first().and_then(Option::as_ref) else {
            return Ok(CompletionWrites::default());
        };
        if let (Some(changed), Some(base)) = (self.changed.take(), plan.sealed.base_snapshot_id) {
            let interval = (base, plan.sealed.snapshot_id);
            shared.hand_over(&operation.shares[0].target, interval, changed);
        }
        let Note { name, record, .. } = completed(plan)?;
        let run = record.last.clone();
        Ok(CompletionWrites {
            refresh: Some(RefreshCompletion { name, record, run }),
            ..Default::default()
        })
    }
}

/// Reads what a published refresh leaves in the store.
fn completed(plan: &SharePlan) -> Result<Note, EngineError> {
    let mut note: Note = serde_json::from_value(plan.note.clone())
        .map_err(|error| EngineError::Invariant(format!("plan of a refresh: {error}")))?;
    note.record.snapshot_id = Some(plan.sealed.snapshot_id);
    Ok(note)
}

/// Ends a refresh that an earlier run left open: a sealed one is published, another given up and
/// computed anew when its table is next looked at.
pub(crate) async fn recover(shared: &Arc<Shared>, record: OperationRecord) -> Result<(), EngineError> {
    publish(
        shared,
        record,
        &mut RefreshWork {
            pending: None,
            changed: None,
        },
    )
    .await?;
    Ok(())
}

/// Is the record of a table that was never refreshed.
pub(crate) fn empty_record(planned: &PlannedTable) -> RefreshRecord {
    RefreshRecord {
        uuid: String::new(),
        query_hash: planned.query_hash.clone(),
        frontier: Frontier::default(),
        data_lsn: Lsn::ZERO,
        at_us: None,
        epoch: 0,
        last: None,
        suspended: false,
        blocked: None,
        snapshot_id: None,
        full_ms: None,
        row_us: None,
        state: None,
    }
}
