//! An epoch as an operation: what it writes, and what completing it means (steps 4 to 11).
//!
//! 1. [`admit`] chooses the range: contiguous journaled transactions up to the limits, whole ones
//!    only, and never an end below the first cut of a fresh copy.
//! 2. [`EpochWork::write`] folds the range (again after a restart: the journal still has it),
//!    resolves it against the row index and writes every table in parallel.
//! 3. A table that cannot go on is blocked here and the rest go on without it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use flow_core::clock::{UnixMicros, iso_utc};
use flow_core::operation::Phase;
use flow_core::schedule::EpochLimits;
use flow_core::{Attempt, Epoch, Lsn, Remedial, Remedy, TableId};
use flow_lake::Progress;
use flow_store::{CompletionWrites, Kind, LedgerPosition, OperationRecord, Store, TableRecord, TableState};

use crate::block::{Block, block_table};
use crate::board::chain;
use crate::error::EngineError;
use crate::fold::{FoldTable, FoldTables, Range, Survey, TableFold, fold, survey};
use crate::handover::Changed;
use crate::publish::{Draft, SharePlan, Work, blocking, retrying};
use crate::resolve::{NewRow, Resolved, resolve};
use crate::shared::Shared;
use crate::table_writer::TableWriter;

/// Is a chosen range with what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) range: Range,
    pub(crate) commit_time: UnixMicros,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// Is the commit time of the first transaction after the range, if one is journaled.
    pub(crate) next_commit: Option<UnixMicros>,
}

/// Chooses the next range after `from`: at least one transaction, or the whole idle stretch up to
/// `journaled` if there is none. `None` if nothing lies after `from`.
pub(crate) fn admit(
    store: &Store,
    from: Lsn,
    journaled: Lsn,
    first_cut: Lsn,
    limits: &EpochLimits,
) -> Result<Option<Admitted>, EngineError> {
    if journaled <= from || journaled < first_cut {
        return Ok(None);
    }
    let mut admitted = Admitted {
        range: Range { from, to: from },
        commit_time: 0,
        rows: 0,
        bytes: 0,
        next_commit: None,
    };
    let mut full = false;
    for meta in store.journal().transactions(from, journaled) {
        let meta = meta?;
        if full && meta.changes > 0 {
            admitted.next_commit = Some(meta.commit_time);
            break;
        }
        admitted.range.to = meta.end_lsn;
        if meta.changes > 0 {
            admitted.commit_time = admitted.commit_time.max(meta.commit_time);
            admitted.rows += meta.changes;
            admitted.bytes += meta.bytes;
        }
        let over = admitted.rows >= limits.max_rows || admitted.bytes >= limits.max_bytes;
        full = over && admitted.range.to >= first_cut;
    }
    if admitted.next_commit.is_none() {
        admitted.range.to = journaled;
    }
    Ok(Some(admitted))
}

/// Is what a range became before its operation began.
#[derive(Debug)]
pub(crate) enum Prepared {
    /// The range fits memory and is folded.
    Folded(BTreeMap<TableId, TableFold>),
    /// The range is folded pass by pass while it is written.
    Surveyed(Survey),
}

impl Prepared {
    /// Lists the tables that the range changes.
    pub(crate) fn tables(&self) -> BTreeSet<TableId> {
        match self {
            Prepared::Folded(folds) => folds.keys().copied().collect(),
            Prepared::Surveyed(survey) => survey.tables.clone(),
        }
    }
}

/// Is the part of the memory budget that folding may hold; write buffers, caches and Parquet take
/// the rest.
const FOLD_SHARE: u64 = 4;

/// Folds a range, or surveys it if it is too large to fold at once.
pub(crate) fn prepare(shared: &Shared, range: Range, bytes: u64) -> Result<Prepared, EngineError> {
    let began = shared.clock.monotonic();
    let tables = fold_tables(&shared.tables());
    let budget = shared.options().limits.memory_bytes as u64 / FOLD_SHARE;
    let prepared = if bytes * 2 <= budget {
        Prepared::Folded(fold(&shared.store, range, &tables, &Default::default(), 0)?)
    } else {
        Prepared::Surveyed(survey(&shared.store, range, &tables, bytes, budget)?)
    };
    shared
        .counters
        .fold_time
        .record(shared.clock.monotonic().saturating_sub(began));
    Ok(prepared)
}

fn fold_tables(records: &BTreeMap<TableId, TableRecord>) -> FoldTables {
    let streaming = records.values().filter(|record| record.state == TableState::Streaming);
    let entry = |record: &TableRecord| {
        let table = FoldTable {
            schema: Arc::new(record.schema.clone()),
            start_lsn: record.start_lsn.unwrap_or(Lsn::ZERO),
        };
        (record.id, table)
    };
    streaming.map(entry).collect()
}

/// Is an epoch being published.
#[derive(Debug)]
pub(crate) struct EpochWork {
    epoch: Epoch,
    range: Range,
    commit_time: UnixMicros,
    /// Is taken by the first attempt; later ones prepare again.
    prepared: Option<Prepared>,
    /// Holds what the newest attempt changes, by share.
    changed: BTreeMap<usize, Changed>,
}

impl EpochWork {
    pub(crate) fn new(epoch: Epoch, range: Range, commit_time: UnixMicros, prepared: Prepared) -> Self {
        EpochWork {
            epoch,
            range,
            commit_time,
            prepared: Some(prepared),
            changed: BTreeMap::new(),
        }
    }

    /// Takes up an epoch that an earlier run left open.
    pub(crate) fn resumed(epoch: Epoch, range: Range, commit_time: UnixMicros) -> Self {
        EpochWork {
            epoch,
            range,
            commit_time,
            prepared: None,
            changed: BTreeMap::new(),
        }
    }

    fn summary(&self, shared: &Shared) -> BTreeMap<String, String> {
        let pairs = [
            ("flow.source-id", shared.source_id.clone()),
            ("flow.epoch", self.epoch.to_string()),
            ("flow.lsn", self.range.to.to_string()),
            ("flow.commit-time", iso_utc(self.commit_time)),
        ];
        pairs
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    async fn prepare(&mut self, shared: &Arc<Shared>) -> Result<Prepared, EngineError> {
        if let Some(prepared) = self.prepared.take() {
            return Ok(prepared);
        }
        let range = self.range;
        blocking(shared, move |shared| {
            let mut bytes = 0;
            for meta in shared.store.journal().transactions(range.from, range.to) {
                bytes += meta?.bytes;
            }
            prepare(shared, range, bytes)
        })
        .await
    }

    async fn block(&self, shared: &Arc<Shared>, table: TableId, why: Refusal) -> Result<(), EngineError> {
        let block = Block {
            code: why.code,
            reason: why.reason,
            hold_lsn: self.range.from,
        };
        block_table(shared, table, block).await
    }

    /// Opens the lake table of a share, unless it is not as this program left it.
    async fn open(
        &self,
        shared: &Arc<Shared>,
        record: &TableRecord,
    ) -> Result<Result<flow_lake::Table, Refusal>, EngineError> {
        let table = match retrying(shared, "the catalog", || shared.lake.load(&record.target)).await {
            Ok(table) => table,
            Err(error) => return Ok(Err(refusal(shared, error)?)),
        };
        let Some(table) = table else {
            let reason = format!("table {} is no longer in the catalog", record.target);
            return Ok(Err(Refusal::new("F0006", reason)));
        };
        if record.target_uuid.as_deref() != Some(table.uuid().as_str()) {
            let reason = format!("table {} was replaced by another one", record.target);
            return Ok(Err(Refusal::new("F0006", reason)));
        }
        if table.current_snapshot_id() != record.snapshot_id {
            let by = table.current_operation_id().unwrap_or("another program");
            let reason = format!(
                "snapshot {:?} of {} was committed by {by}",
                table.current_snapshot_id(),
                record.target
            );
            return Ok(Err(Refusal::new("F0007", reason)));
        }
        if let Some(shape) = table.foreign_shape() {
            let reason = format!("another program changed the definition of {}: {shape}", record.target);
            return Ok(Err(Refusal::new("F0007", reason)));
        }
        Ok(Ok(table))
    }

    /// Opens every share that can be written; blocks the tables that cannot.
    async fn open_all(
        &self,
        shared: &Arc<Shared>,
        operation: &OperationRecord,
        attempt: Attempt,
    ) -> Result<Vec<Open>, EngineError> {
        let mut open: Vec<Open> = Vec::new();
        for (share, table) in operation.shares.iter().enumerate() {
            let record = table.table.and_then(|id| shared.table(id));
            let Some(record) = record.filter(|record| record.state == TableState::Streaming) else {
                continue;
            };
            if table.phase() == Phase::SetAside {
                continue;
            }
            let table = match self.open(shared, &record).await? {
                Ok(table) => table,
                Err(why) => {
                    self.block(shared, record.id, why).await?;
                    continue;
                }
            };
            match TableWriter::new(shared, record.clone(), table, operation, share, attempt) {
                Ok(writer) => open.push(Open { share, record, writer }),
                Err(error) => self.block(shared, record.id, refusal(shared, error)?).await?,
            }
        }
        Ok(open)
    }

    /// Resolves and writes one pass of one table; `Ok(Some(_))` is why it cannot go on.
    async fn write_pass(
        shared: &Arc<Shared>,
        record: &TableRecord,
        writer: &mut TableWriter,
        outcomes: TableFold,
    ) -> Result<Option<Refusal>, EngineError> {
        let (outcomes, appended) = match outcomes {
            TableFold::Folded { outcomes, appended } => (outcomes, appended),
            TableFold::Refused { error, at } => return Ok(Some(refused(&error, at))),
            TableFold::Tied { ties_max } => {
                let reason = format!(
                    "a transaction changes more than {ties_max} keys of rows with values that PostgreSQL left out \
                     (TOAST); limits.memory holds no more of them"
                );
                return Ok(Some(Refusal::new("F0023", reason)));
            }
        };
        let resolved = if record.schema.has_key() {
            let table = record.clone();
            match blocking(shared, move |shared| resolve(&shared.store, &table, outcomes)).await? {
                Ok(resolved) => resolved,
                Err(refusal) => return Ok(Some(Refusal::new(refusal.code, refusal.reason))),
            }
        } else {
            let rows = appended.into_iter().map(|row| NewRow {
                key: Box::default(),
                row,
                replaces_hot: false,
                unsent: false,
            });
            Resolved {
                rows: rows.collect(),
                ..Resolved::default()
            }
        };
        writer.write(resolved).await?;
        Ok(None)
    }
}

/// Says why a table cannot go on.
#[derive(Debug)]
struct Refusal {
    code: String,
    reason: String,
}

impl Refusal {
    fn new(code: impl Into<String>, reason: String) -> Self {
        Refusal {
            code: code.into(),
            reason,
        }
    }
}

/// Turns an error of the lake that concerns one table into the reason to block it; gives any other
/// error back. A warehouse that is not there concerns all of them.
fn refusal(shared: &Shared, error: EngineError) -> Result<Refusal, EngineError> {
    match &error {
        EngineError::Lake(lake) if lake.remedy() == Remedy::BlockTable && shared.lake.is_present() => {
            Ok(Refusal::new(lake.code().unwrap_or("F0308"), chain(lake)))
        }
        _ => Err(error),
    }
}

/// Names code and reason of a change that cannot be folded.
fn refused(error: &flow_core::collapse::CollapseError, at: Lsn) -> Refusal {
    use flow_core::collapse::CollapseError as E;
    let code = match error {
        E::Blocked { code, .. } => code.clone(),
        E::Truncated => "F0008".to_owned(),
        E::AppendOnly => "F0009".to_owned(),
        E::Key(_) | E::Exists | E::Missing => "F0004".to_owned(),
    };
    Refusal::new(code, format!("{} (transaction {at})", chain(error)))
}

/// Is one share's writer with the table it is for.
struct Open {
    share: usize,
    record: TableRecord,
    writer: TableWriter,
}

#[async_trait]
impl Work for EpochWork {
    async fn write(
        &mut self,
        shared: &Arc<Shared>,
        operation: &OperationRecord,
        attempt: Attempt,
    ) -> Result<Vec<Option<Draft>>, EngineError> {
        let prepared = self.prepare(shared).await?;
        let mut open = self.open_all(shared, operation, attempt).await?;
        let mut first = None;
        let survey = match prepared {
            Prepared::Folded(folds) => {
                first = Some(folds);
                Survey::default()
            }
            Prepared::Surveyed(survey) => survey,
        };
        // The same tables in every pass: one that is given up meanwhile is written whole or not at all.
        let inputs = Arc::new((survey, fold_tables(&shared.tables())));
        let passes = inputs.0.passes.count();
        shared.counters.fold_passes.add(passes);
        for pass in 0..passes {
            let mut folds = match first.take() {
                Some(folds) => folds,
                None => {
                    let (inputs, range) = (inputs.clone(), self.range);
                    blocking(shared, move |shared| {
                        let (survey, tables) = inputs.as_ref();
                        fold(&shared.store, range, tables, &survey.passes, pass)
                    })
                    .await?
                }
            };
            // Tables are independent: each is resolved, encoded and written on its own.
            let mut tasks = Vec::new();
            for mut table in open.drain(..) {
                let fold = folds.remove(&table.record.id);
                let shared = shared.clone();
                tasks.push(tokio::spawn(async move {
                    let outcome = match fold {
                        Some(fold) => EpochWork::write_pass(&shared, &table.record, &mut table.writer, fold).await,
                        None => Ok(None),
                    };
                    (table, outcome)
                }));
            }
            for task in tasks {
                let joined = task.await.map_err(|error| EngineError::Invariant(error.to_string()))?;
                let (table, outcome) = joined;
                match outcome {
                    Ok(None) => open.push(table),
                    Ok(Some(why)) => self.block(shared, table.record.id, why).await?,
                    Err(error) => self.block(shared, table.record.id, refusal(shared, error)?).await?,
                }
            }
        }
        self.changed.clear();
        let mut drafts: Vec<Option<Draft>> = operation.shares.iter().map(|_| None).collect();
        for table in open {
            match table.writer.finish(self.summary(shared)).await {
                Ok(None) => {}
                Ok(Some((draft, changed))) => {
                    drafts[table.share] = Some(draft);
                    self.changed.extend(changed.map(|changed| (table.share, changed)));
                }
                Err(error) => self.block(shared, table.record.id, refusal(shared, error)?).await?,
            }
        }
        Ok(drafts)
    }

    fn repeats(&self) -> bool {
        true
    }

    async fn refuse(
        &mut self,
        shared: &Arc<Shared>,
        operation: &OperationRecord,
        share: usize,
        error: EngineError,
    ) -> Result<(), EngineError> {
        let why = refusal(shared, error)?;
        match operation.shares[share].table {
            Some(id) => self.block(shared, id, why).await,
            None => Err(EngineError::Invariant("an epoch's share is of no table".to_owned())),
        }
    }

    fn progress(&self, shared: &Shared, operation: &OperationRecord) -> Progress {
        Progress {
            operation_id: operation.id().clone(),
            source_id: shared.source_id.clone(),
            kind: "epoch".to_owned(),
            epoch: self.epoch,
            from_lsn: self.range.from,
            to_lsn: self.range.to,
            advance: Some((self.range.to, self.epoch)),
        }
    }

    fn completion(
        &mut self,
        shared: &Shared,
        operation: &OperationRecord,
        plans: &[Option<SharePlan>],
    ) -> Result<CompletionWrites, EngineError> {
        let mut tables = Vec::new();
        for (index, (share, plan)) in operation.shares.iter().zip(plans).enumerate() {
            let (Some(id), Some(plan)) = (share.table, plan) else {
                continue;
            };
            let Some(mut record) = shared.table(id) else { continue };
            if let (Some(changed), Some(base)) = (self.changed.remove(&index), plan.sealed.base_snapshot_id) {
                let interval = (base, plan.sealed.snapshot_id);
                shared.hand_over(&record.target, interval, changed);
            }
            record.snapshot_id = Some(plan.sealed.snapshot_id);
            record.published_lsn = self.range.to;
            record.published_epoch = self.epoch;
            let count = |name: &str| plan.note.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
            shared.counters.rows_inserted.add(count("rows"));
            shared.counters.rows_deleted.add(count("deleted"));
            tables.push(record);
        }
        shared.counters.epochs_published.add(1);
        let ledger = LedgerPosition {
            last_epoch: self.epoch,
            published_lsn: self.range.to,
        };
        Ok(CompletionWrites {
            tables,
            ledger: Some(ledger),
            refresh: None,
        })
    }
}

/// Is the kind under which the store keeps an epoch.
pub(crate) fn kind(epoch: Epoch, range: Range, commit_time: UnixMicros) -> Kind {
    Kind::Epoch {
        epoch,
        from: range.from,
        to: range.to,
        commit_time_us: commit_time,
    }
}
