//! From nothing to the first content of every table.
//!
//! 1. Preflight: whatever can be refused is refused before anything is made.
//! 2. The intention is durable: whose directory this is, and which tables it shall have.
//! 3. The slot is created with its exported snapshot; every copy session imports the snapshot
//!    before anything else happens on the exporting session, and capture journals meanwhile.
//! 4. Each table is copied as one operation; its start LSN is the snapshot's consistent point.
//! 5. Interrupted, the finished tables stay, and the unfinished ones are copied again under a
//!    temporary slot's snapshot. Its consistent point becomes their start LSN, and transactions at
//!    or below it are not theirs. So the first cut is the largest start LSN.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use flow_core::{Epoch, Generation, Lsn, Remedial, Remedy, TableName};
use flow_source::{
    CaptureTable, CopySession, ExportedSnapshot, Report, SourceError, SourceOptions, create_publication, create_slot,
    open_copy_session, preflight, publication_rows, slot_state,
};
use flow_store::{Identity, InitState, Kind, LedgerPosition, NewShare, TableRecord, TableState};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::adapters::own_source;
use crate::block::{Block, block_table};
use crate::copy::{self, CopyWork, blocks_table};
use crate::error::EngineError;
use crate::heartbeat::compare_publication;
use crate::outage::Outage;
use crate::publish::{blocking, publish, retrying};
use crate::shared::{Shared, operation_id};
use crate::status::ServiceState;
use crate::wanted::{self, Settings, WantedTable, hot, hot_name, require_ok};

/// Is how often in a row the copy may be begun and fail without one more table being finished. A
/// server that cannot be reached is `retry_for`'s to limit.
const COPY_TRIES_MAX: u32 = 5;

/// Gives every wanted table its first content. Does nothing if all have theirs.
pub(crate) async fn init(shared: &Arc<Shared>, make_publication: bool) -> Result<(), EngineError> {
    copy::recover(shared).await?;
    let wanted = wanted::resolve_own(shared).await?;
    let records = shared.store.tables().all()?;
    let comparison = wanted::compare(&wanted, &records)?;
    let unfinished = records.iter().any(|record| record.state == TableState::Copying);
    let done = shared.store.facts().init()? == Some(InitState::Done);
    if done && !unfinished && comparison.missing.is_empty() {
        return Ok(());
    }
    shared.board.write().state = ServiceState::Copying;
    let source = own_source(shared)?;
    let requests: Vec<_> = wanted.iter().map(|table| table.request.clone()).collect();
    if make_publication {
        make_missing_publication(&source, &requests).await?;
    }
    let fresh = shared.store.identity()?.is_none();
    let report = preflight(&source, &requests, fresh).await?;
    if fresh {
        refuse_leftovers(shared, &source, &wanted).await?;
    }
    require_ok(&report)?;
    // Before any snapshot is taken, so that a change while tables are copied is found afterwards.
    compare_publication(shared, publication_rows(&source).await?, None).await?;
    intend(shared, &report, &wanted, &comparison.missing).await?;
    let source = own_source(shared)?;
    let exported = slot(shared, &source).await?;
    let capturing = Capturing::start(shared, &source)?;
    let copied = copy_until_done(shared, &source, exported).await;
    capturing.stop().await.and(copied)?;
    finish(shared).await
}

/// Is capture while tables are copied, so that PostgreSQL need not keep what the journal has.
struct Capturing {
    cancel: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), EngineError>>,
}

impl Capturing {
    fn start(shared: &Arc<Shared>, source: &SourceOptions) -> Result<Self, EngineError> {
        let tables = shared.tables().into_values();
        let captured = tables
            .map(|record| Ok(Settings::read(&record)?.capture))
            .collect::<Result<_, EngineError>>()?;
        crate::capture::drop_unfinished(&shared.store)?;
        let cancel = CancellationToken::new();
        let task = tokio::spawn(crate::capture::run(
            shared.clone(),
            source.clone(),
            captured,
            cancel.clone(),
        ));
        Ok(Capturing { cancel, task })
    }

    async fn stop(self) -> Result<(), EngineError> {
        self.cancel.cancel();
        self.task
            .await
            .map_err(|error| EngineError::Invariant(error.to_string()))?
    }
}

/// Copies until every table has its content, under a new snapshot for each try.
async fn copy_until_done(
    shared: &Arc<Shared>,
    source: &SourceOptions,
    mut exported: Option<ExportedSnapshot>,
) -> Result<(), EngineError> {
    let began = shared.clock.monotonic();
    let mut outage = Outage::default();
    let mut fruitless = 0;
    loop {
        let unfinished = copying(shared).len();
        if unfinished == 0 {
            return Ok(());
        }
        let mut begun = false;
        let error = match copy_once(shared, source, exported.take(), &mut begun).await {
            // Only agreeing the tables again helps.
            Err(error @ EngineError::Source(SourceError::TableChanged { .. })) => return Err(error),
            Err(error) if error.remedy() != Remedy::Retry => return Err(error),
            outcome => outcome.err(),
        };
        if begun {
            // The server was there with all that a copy needs, so what failed then is another outage.
            outage = Outage::default();
            fruitless += 1;
        }
        if copying(shared).len() < unfinished {
            fruitless = 0;
        }
        match error {
            None if fruitless >= COPY_TRIES_MAX => return Err(contended(shared)),
            None => {}
            Some(error) if fruitless >= COPY_TRIES_MAX => {
                return Err(EngineError::Unavailable {
                    what: "a connection that outlasts a table's copy",
                    seconds: shared.clock.monotonic().saturating_sub(began).as_secs(),
                    source: Box::new(error),
                });
            }
            Some(error) => {
                shared
                    .board
                    .error(&error, "copy; beginning the unfinished tables again");
                outage
                    .wait(shared.clock.as_ref(), shared.options().retry_for, "PostgreSQL", error)
                    .await?;
            }
        }
    }
}

async fn copy_once(
    shared: &Arc<Shared>,
    source: &SourceOptions,
    exported: Option<ExportedSnapshot>,
    begun: &mut bool,
) -> Result<(), EngineError> {
    copy::recover(shared).await?;
    let exported = match exported {
        Some(exported) => exported,
        None => create_slot(source, Some(&temporary_slot(&source.slot))).await?,
    };
    copy_all(shared, source, exported, begun).await
}

/// Names a slot that lives as long as one try. The server may not have noticed yet that an earlier
/// try is gone, so no two have one name. A slot name has at most 63 characters.
fn temporary_slot(slot: &str) -> String {
    let kept: String = slot.chars().take(45).collect();
    let unique = uuid::Uuid::new_v4().simple().to_string();
    format!("{kept}_copy_{}", &unique[..12])
}

/// Is every table that has no content yet.
fn copying(shared: &Shared) -> Vec<TableRecord> {
    let tables = shared.tables().into_values();
    tables.filter(|table| table.state == TableState::Copying).collect()
}

fn contended(shared: &Shared) -> EngineError {
    let targets: Vec<String> = copying(shared).iter().map(|table| table.target.to_string()).collect();
    EngineError::Reconfigure {
        code: "F0013",
        message: format!(
            "another program changed target tables in the catalog each time they were copied: {}; nothing was \
             published to them; end it, or choose other targets in [[tables]]",
            targets.join(", ")
        ),
    }
}

async fn make_missing_publication(
    source: &SourceOptions,
    requests: &[flow_source::TableRequest],
) -> Result<(), EngineError> {
    if publication_rows(source).await?.publication.is_none() {
        create_publication(source, requests).await?;
        tracing::info!(publication = source.publication, "publication created");
    }
    Ok(())
}

/// Refuses to begin where an earlier run left something: its local state was lost (law 9).
async fn refuse_leftovers(
    shared: &Arc<Shared>,
    source: &SourceOptions,
    wanted: &[WantedTable],
) -> Result<(), EngineError> {
    if slot_state(source).await?.is_some() {
        return Err(EngineError::Resync {
            code: "F0001",
            message: format!(
                "replication slot \"{}\" exists, but this state directory is empty: it was lost, or the slot is \
                 another service's; nothing was changed; restore the state directory, or drop the slot and the \
                 target tables and run init again",
                source.slot
            ),
        });
    }
    let progress = retrying(shared, "the catalog", || shared.lake.source_progress(&shared.source_id)).await?;
    if let Some((lsn, epoch)) = progress {
        return Err(EngineError::Resync {
            code: "F0001",
            message: format!(
                "the catalog has source \"{}\" published up to {lsn} (epoch {epoch}), but this state directory is \
                 empty: it was lost; nothing was changed; restore it, or use another source.id and other targets",
                shared.source_id
            ),
        });
    }
    let mut existing = Vec::new();
    for table in wanted {
        if let Some(found) = retrying(shared, "the catalog", || shared.lake.load(&table.target)).await? {
            if found.properties().get("flow.source-id") == Some(&shared.source_id) {
                return Err(EngineError::Resync {
                    code: "F0001",
                    message: format!(
                        "table {} belongs to source \"{}\", but this state directory is empty: it was lost; nothing \
                         was changed; restore it, or use another source.id and other targets",
                        table.target, shared.source_id
                    ),
                });
            }
            existing.push(table.target.to_string());
        }
    }
    if existing.is_empty() {
        return Ok(());
    }
    Err(EngineError::Reconfigure {
        code: "F0013",
        message: format!(
            "target tables exist in the catalog with other content: {}; nothing was changed; choose other targets in \
             [[tables]], or drop these tables",
            existing.join(", ")
        ),
    })
}

/// Makes durable which tables the directory shall have, before the slot is asked for.
async fn intend(
    shared: &Arc<Shared>,
    report: &Report,
    wanted: &[WantedTable],
    missing: &[TableName],
) -> Result<(), EngineError> {
    if shared.store.identity()?.is_none() {
        let identity = Identity {
            source_id: shared.source_id.clone(),
            system_identifier: report.system.system_identifier,
            slot: shared.options().slot.clone(),
            database: report.system.database.clone(),
            source_uid: uuid::Uuid::new_v4().simple().to_string()[..16].to_owned(),
        };
        shared.store.set_identity(&identity)?;
    }
    let tables = shared.tables();
    let mut records = Vec::new();
    for table in wanted {
        let before = tables.values().find(|record| record.source == table.request.source);
        let is_missing = missing.contains(&table.request.source);
        if !is_missing && !before.is_some_and(|record| record.state == TableState::Copying) {
            continue;
        }
        let record = agreed(shared, report, table, before)?;
        // An interrupted copy goes on as it was, unless the table was changed or made again meanwhile.
        if let (Some(before), false) = (before, is_missing)
            && before.settings == record.settings
        {
            continue;
        }
        if let Some(before) = before {
            discard_empty_target(shared, before).await?;
        }
        records.push(record);
    }
    shared.store.tables().put_all(&records)?;
    for record in records {
        shared.show_table(&record);
        shared.note_table(record);
    }
    if shared.store.facts().init()?.is_none() {
        shared.store.facts().set_init(&InitState::Intended)?;
    }
    Ok(())
}

/// Agrees a wanted table with what the source has: the record of a table without content, in place of
/// the one `before`.
fn agreed(
    shared: &Shared,
    report: &Report,
    table: &WantedTable,
    before: Option<&TableRecord>,
) -> Result<TableRecord, EngineError> {
    let (_, found, _) = report
        .tables
        .iter()
        .find(|(request, _, _)| request == &table.request)
        .ok_or_else(|| EngineError::Invariant(format!("preflight did not report {}", table.request.source)))?;
    let (id, generation) = match before {
        Some(record) => (record.id, record.generation),
        None => (shared.store.tables().next_id()?, Generation(0)),
    };
    let capture = CaptureTable::new(id, &table.request, found, Lsn::ZERO)?;
    let settings = Settings {
        request: table.request.clone(),
        hot_rows: hot_name(table.hot_rows).to_owned(),
        capture: capture.clone(),
    };
    Ok(TableRecord {
        id,
        source: table.request.source.clone(),
        relation_oid: capture.oid,
        target: table.target.clone(),
        target_uuid: None,
        hot: hot(table.hot_rows, &capture),
        schema: capture.schema,
        generation,
        append_only: capture.append_only,
        settings: serde_json::to_value(&settings).map_err(|error| EngineError::Invariant(error.to_string()))?,
        start_lsn: None,
        state: TableState::Copying,
        published_lsn: Lsn::ZERO,
        published_epoch: Epoch(0),
        snapshot_id: None,
    })
}

/// Removes the empty table that an attempt with other settings made.
async fn discard_empty_target(shared: &Arc<Shared>, record: &TableRecord) -> Result<(), EngineError> {
    let Some(uuid) = &record.target_uuid else { return Ok(()) };
    let found = retrying(shared, "the catalog", || shared.lake.load(&record.target)).await?;
    if let Some(table) = found.filter(|table| table.uuid() == *uuid) {
        retrying(shared, "the catalog", || shared.lake.drop_empty(&table)).await?;
    }
    Ok(())
}

/// Makes the slot if it is not there yet; gives its snapshot only then.
async fn slot(shared: &Arc<Shared>, source: &SourceOptions) -> Result<Option<ExportedSnapshot>, EngineError> {
    let state = slot_state(source).await?;
    let made = match (shared.store.facts().init()?, state) {
        (Some(InitState::Intended) | None, None) => {
            let exported = create_slot(source, None).await?;
            let consistent_point = exported.consistent_point;
            shared
                .store
                .facts()
                .set_init(&InitState::SlotCreated { consistent_point })?;
            tracing::info!(slot = source.slot, %consistent_point, "replication slot created");
            Ok(Some(exported))
        }
        // An earlier process's server session may still be creating it. Such a slot looks complete and goes
        // with its session; one that nobody holds is complete.
        (Some(InitState::Intended) | None, Some(slot)) if let Some(pid) = slot.active_pid => {
            let slot = source.slot.clone();
            Err(SourceError::SlotHeld { slot, pid }.into())
        }
        // The slot was made, and this process ended before it could write that down.
        (Some(InitState::Intended) | None, Some(slot)) => {
            let consistent_point = slot.confirmed_flush;
            shared
                .store
                .facts()
                .set_init(&InitState::SlotCreated { consistent_point })?;
            Ok(None)
        }
        (Some(InitState::SlotCreated { .. } | InitState::Done), Some(_)) => Ok(None),
        (Some(InitState::SlotCreated { .. } | InitState::Done), None) => Err(EngineError::Resync {
            code: "F0002",
            message: format!(
                "replication slot \"{}\" is gone, and with it changes that were not captured; nothing was changed; \
                 remove the state directory and the target tables and run init again",
                source.slot
            ),
        }),
    }?;
    // The journal begins where the slot does.
    if let Some(InitState::SlotCreated { consistent_point }) = shared.store.facts().init()? {
        let journal = shared.store.journal();
        if journal.position() < consistent_point {
            journal.advance(consistent_point)?;
            journal.sync()?;
        }
    }
    Ok(made)
}

/// Copies every unfinished table under one exported snapshot. Sets `begun` when its sessions stand.
async fn copy_all(
    shared: &Arc<Shared>,
    source: &SourceOptions,
    exported: ExportedSnapshot,
    begun: &mut bool,
) -> Result<(), EngineError> {
    let lsn = exported.consistent_point;
    let mut waiting = VecDeque::from(copying(shared));
    let count = shared.options().copy_sessions.min(waiting.len()).max(1);
    let mut sessions = Vec::with_capacity(waiting.len());
    // IMPORTANT: every session imports the snapshot before the exporting one does anything else,
    // because the next command on that one ends the snapshot.
    for _ in 0..count {
        sessions.push(open_copy_session(source, &exported.name).await?);
    }
    *begun = true;
    let mut running = JoinSet::new();
    let mut first_error = None;
    // IMPORTANT: after an error the others are still waited for: their threads go on writing, and
    // what they have begun must be ended before the table is copied again.
    loop {
        while running.len() < count && first_error.is_none() {
            let Some(record) = waiting.pop_front() else { break };
            let session = match sessions.pop() {
                Some(session) => Ok(session),
                None => open_copy_session(source, &exported.name).await,
            };
            match session {
                Ok(session) => {
                    let shared = shared.clone();
                    running.spawn(async move { copy_one(&shared, record, session, lsn).await });
                }
                Err(error) => first_error = Some(error.into()),
            }
        }
        match running.join_next().await {
            None => break,
            Some(Ok(Ok(()))) => {}
            Some(Ok(Err(error))) => {
                first_error.get_or_insert(error);
            }
            Some(Err(error)) => {
                first_error.get_or_insert(EngineError::Invariant(error.to_string()));
            }
        }
    }
    drop(exported);
    first_error.map_or(Ok(()), Err)
}

/// Copies one table as one operation.
async fn copy_one(
    shared: &Arc<Shared>,
    record: TableRecord,
    session: CopySession,
    lsn: Lsn,
) -> Result<(), EngineError> {
    let mut record = copy::fresh_generation(shared, record).await?;
    let capture = CaptureTable {
        skip_until: lsn,
        ..Settings::read(&record)?.capture
    };
    let table = target(shared, &record).await?;
    if record.target_uuid.is_none() {
        record.target_uuid = Some(table.uuid());
        let stored = record.clone();
        blocking(shared, move |shared| Ok(shared.store.tables().put(&stored)?)).await?;
        shared.note_table(record.clone());
    }
    let uid = shared
        .store
        .identity()?
        .map(|identity| identity.source_uid)
        .unwrap_or_default();
    let (id, generation) = (record.id, record.generation);
    let share = NewShare {
        target: record.target.clone(),
        table: Some(id),
        generation,
        base_snapshot: table.current_snapshot_id(),
    };
    let operation = blocking(shared, move |shared| {
        let name = |seq| operation_id(&uid, &format!("c{id}-{seq}"));
        Ok(shared
            .store
            .operations()
            .begin(name, Kind::Copy { table: id, lsn }, vec![share])?)
    })
    .await?;
    let mut work = CopyWork::new(id, lsn, session, capture);
    let seq = operation.seq();
    let Err(error) = publish(shared, operation, &mut work).await else {
        match shared.table(id) {
            Some(record) if record.state == TableState::Copying => {
                tracing::warn!(table = %record.source, target = %record.target, "the target was changed by another program while it was copied; it is copied again");
            }
            Some(record) => shared.show_table(&record),
            None => {}
        }
        return Ok(());
    };
    copy::recover_failed(shared, seq).await?;
    match blocks_table(&error) {
        Some((code, reason)) => {
            block_table(
                shared,
                id,
                Block {
                    code,
                    reason,
                    hold_lsn: lsn,
                },
            )
            .await
        }
        None => Err(error),
    }
}

/// Opens the lake table a copy fills, making it if it is not there.
async fn target(shared: &Arc<Shared>, record: &TableRecord) -> Result<flow_lake::Table, EngineError> {
    if let Some(table) = retrying(shared, "the catalog", || shared.lake.load(&record.target)).await? {
        let ours = record.target_uuid.as_ref().is_none_or(|uuid| *uuid == table.uuid())
            && table.properties().get("flow.source-id") == Some(&shared.source_id)
            && table.current_snapshot_id().is_none();
        if ours {
            return Ok(table);
        }
        return Err(EngineError::Reconfigure {
            code: "F0013",
            message: format!(
                "target table {} exists in the catalog with other content; nothing was changed; choose another target \
                 for {}, or drop the table",
                record.target, record.source
            ),
        });
    }
    let properties = BTreeMap::from([
        ("flow.source-id".to_owned(), shared.source_id.clone()),
        ("flow.source-table".to_owned(), record.source.to_string()),
    ]);
    retrying(shared, "the catalog", || {
        shared
            .lake
            .create_table(&record.target, &record.schema, properties.clone())
    })
    .await
}

/// Records that every table has its first content, and where epochs begin. The catalog learns it
/// too: from here on a lost state directory can be proved (law 9).
async fn finish(shared: &Arc<Shared>) -> Result<(), EngineError> {
    let facts = shared.store.facts();
    if let Some(InitState::SlotCreated { consistent_point }) = facts.init()? {
        let position = facts.ledger()?;
        let start = position.published_lsn.max(consistent_point);
        let epoch = position.last_epoch;
        retrying(shared, "the catalog", || {
            shared.lake.advance_source(&shared.source_id, start, epoch)
        })
        .await?;
        facts.set_ledger(&LedgerPosition {
            last_epoch: epoch,
            published_lsn: start,
        })?;
        facts.set_init(&InitState::Done)?;
    }
    Ok(())
}
