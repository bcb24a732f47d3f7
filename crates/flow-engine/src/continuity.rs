//! Whether slot, store and configuration continue each other, asked before anything runs (law 9).

use std::sync::Arc;

use flow_core::Lsn;
use flow_source::{CaptureTable, publication_rows, slot_state};
use flow_store::{InitState, TableState};
use tokio_util::sync::CancellationToken;

use crate::adapters::{own_source, source_options};
use crate::error::EngineError;
use crate::heartbeat::{compare_publication, some_table_left};
use crate::options::EngineOptions;
use crate::shared::Shared;
use crate::wanted::{self, Settings};

/// Makes sure that slot and store continue each other, and gives the tables to capture.
pub(crate) async fn continue_source(
    shared: &Arc<Shared>,
    shutdown: &CancellationToken,
) -> Result<Vec<CaptureTable>, EngineError> {
    let options = shared.options();
    let records = shared.store.tables().all()?;
    match shared.store.facts().init()? {
        Some(InitState::Done) if records.iter().all(|record| record.state != TableState::Copying) => {}
        None => return Err(not_initialised(shared, shutdown).await?),
        Some(_) => {
            return Err(reconfigure(
                "F0017",
                "the first copy is unfinished; run `embrasure-flow init`, or `run --init`",
            ));
        }
    }
    let wanted = retry_source(shared, shutdown, || wanted::resolve_own(shared)).await?;
    let comparison = wanted::compare(&wanted, &records)?;
    if !comparison.missing.is_empty() {
        let names: Vec<String> = comparison.missing.iter().map(ToString::to_string).collect();
        let message = format!(
            "tables without a first copy: {}; run `embrasure-flow init`, or `run --init`",
            names.join(", ")
        );
        return Err(reconfigure("F0017", &message));
    }
    comparison.warn_of_unwanted();
    let source = own_source(shared)?;
    let slot = retry_source(shared, shutdown, || async { Ok(slot_state(&source).await?) }).await?;
    check_slot(shared, slot, &options)?;
    let rows = retry_source(shared, shutdown, || async { Ok(publication_rows(&source).await?) }).await?;
    compare_publication(shared, rows, None).await?;
    some_table_left(shared)?;
    let captured = shared.store.tables().all()?;
    captured
        .iter()
        .filter(|record| !matches!(record.state, TableState::ResyncRequired { .. }))
        .map(|record| {
            Ok(CaptureTable {
                skip_until: record.start_lsn.unwrap_or(Lsn::ZERO),
                ..Settings::read(record)?.capture
            })
        })
        .collect()
}

/// Says why a directory without any table cannot run.
async fn not_initialised(shared: &Shared, shutdown: &CancellationToken) -> Result<EngineError, EngineError> {
    let options = shared.options();
    let source = source_options(&options, None);
    let leftover = retry_source(shared, shutdown, || async { Ok(slot_state(&source).await?) })
        .await?
        .is_some()
        || shared.lake.source_progress(&shared.source_id).await?.is_some();
    if leftover {
        return Ok(EngineError::Resync {
            code: "F0001",
            message: format!(
                "slot \"{}\" or source \"{}\" has a history, but this state directory is empty: it was lost; nothing \
                 was changed; restore it, or drop slot and target tables and run init",
                options.slot, shared.source_id
            ),
        });
    }
    Ok(reconfigure(
        "F0017",
        "this state directory was never initialised; run `embrasure-flow init`, or `run --init`",
    ))
}

fn check_slot(
    shared: &Shared,
    slot: Option<flow_source::SlotState>,
    options: &EngineOptions,
) -> Result<(), EngineError> {
    let Some(slot) = slot else {
        return Err(EngineError::Resync {
            code: "F0002",
            message: format!(
                "replication slot \"{}\" does not exist, and with it changes may be lost that were never captured; \
                 it is not created again by itself; remove the state directory and the target tables and run init",
                options.slot
            ),
        });
    };
    let lost = slot.wal_status == "lost" || slot.invalidation_reason.is_some();
    if lost {
        let why = slot
            .invalidation_reason
            .unwrap_or_else(|| "its WAL was removed".to_owned());
        return Err(EngineError::Resync {
            code: "F0002",
            message: format!(
                "replication slot \"{}\" was invalidated ({why}); nothing was changed; drop it, remove the state \
                 directory and the target tables and run init",
                options.slot
            ),
        });
    }
    let journaled = shared.store.journal().position();
    let started = shared.store.facts().ledger()?.published_lsn;
    if slot.confirmed_flush > journaled.max(started) {
        return Err(EngineError::Resync {
            code: "F0003",
            message: format!(
                "PostgreSQL was told that changes up to {} are safe, but the journal ends at {journaled}: local state \
                 was lost or is older than it should be; nothing was changed; restore the newest state directory, or \
                 remove it and the target tables and run init",
                slot.confirmed_flush
            ),
        });
    }
    Ok(())
}

pub(crate) fn reconfigure(code: &'static str, message: &str) -> EngineError {
    EngineError::Reconfigure {
        code,
        message: message.to_owned(),
    }
}

/// Retries what needs the source, for `retry_for`.
async fn retry_source<T, F>(
    shared: &Shared,
    shutdown: &CancellationToken,
    attempt: impl FnMut() -> F,
) -> Result<T, EngineError>
where
    F: Future<Output = Result<T, EngineError>>,
{
    tokio::select! {
        outcome = crate::publish::retrying(shared, "PostgreSQL", attempt) => outcome,
        () = shutdown.cancelled() => Err(EngineError::Stopped),
    }
}
