//! Setting one table aside while the others go on (law 6).
//!
//! 1. The catalog learns of it first: `flow.state` and `flow.hold-lsn` among the table's properties.
//!    IMPORTANT: before acknowledgement can pass the hold, or a lost state directory could not tell
//!    that the table is behind. A catalog that cannot take it stops publishing, and with it
//!    acknowledgement; a table whose own metadata cannot take it stops acknowledgement alone.
//! 2. Then the store does, and from there on the table's changes stay in the journal.

use std::collections::BTreeMap;
use std::sync::Arc;

use flow_core::{Lsn, Remedial, Remedy, TableId};
use flow_lake::LakeError;
use flow_store::{TableRecord, TableState};

use crate::board::chain;
use crate::error::EngineError;
use crate::publish::{blocking, retrying};
use crate::shared::Shared;
use crate::status::{Blocked, TableStatusState};

/// Are the values of `flow.state`.
const BLOCKED: &str = "blocked";
const RESYNC_REQUIRED: &str = "resync-required";

/// Says why a table is set aside, and from where its changes are held.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) code: String,
    pub(crate) reason: String,
    pub(crate) hold_lsn: Lsn,
}

/// Blocks a table.
pub(crate) async fn block_table(shared: &Arc<Shared>, id: TableId, block: Block) -> Result<(), EngineError> {
    let state = TableState::Blocked {
        code: block.code.clone(),
        reason: block.reason.clone(),
        since_us: shared.clock.now_us(),
        hold_lsn: block.hold_lsn,
    };
    set_aside(shared, id, BLOCKED, state, block).await
}

/// Gives a table up: its changes are no longer complete, and only another copy helps.
pub(crate) async fn require_resync(shared: &Arc<Shared>, id: TableId, block: Block) -> Result<(), EngineError> {
    let state = TableState::ResyncRequired {
        code: block.code.clone(),
        reason: block.reason.clone(),
        since_us: shared.clock.now_us(),
    };
    set_aside(shared, id, RESYNC_REQUIRED, state, block).await
}

async fn set_aside(
    shared: &Arc<Shared>,
    id: TableId,
    word: &str,
    state: TableState,
    block: Block,
) -> Result<(), EngineError> {
    let _held = shared.change_records().await;
    let Some(mut record) = shared.table(id) else {
        return Err(EngineError::Invariant(format!("table {id} is unknown")));
    };
    let given_up = matches!(record.state, TableState::ResyncRequired { .. });
    if given_up && matches!(state, TableState::Blocked { .. }) {
        // It was given up meanwhile, and nothing it could be blocked for changes that.
        return Ok(());
    }
    mark(shared, &record, word, block.hold_lsn).await?;
    record.published_lsn = record.published_lsn.max(block.hold_lsn);
    record.state = state;
    tracing::warn!(table = %record.source, code = block.code, reason = block.reason, hold = %block.hold_lsn, "table {word}");
    let stored = record.clone();
    blocking(shared, move |shared| Ok(shared.store.tables().put(&stored)?)).await?;
    note(shared, id, word, &block);
    shared.note_table(record);
    Ok(())
}

/// Writes into the catalog that a table is set aside, and from where it is behind.
///
/// A table whose files cannot be read or written cannot be marked; then nothing above its hold is
/// acknowledged until it can (law 6). One that was dropped needs no mark.
async fn mark(shared: &Arc<Shared>, record: &TableRecord, word: &str, hold: Lsn) -> Result<(), EngineError> {
    let properties = BTreeMap::from([
        ("flow.state".to_owned(), word.to_owned()),
        ("flow.hold-lsn".to_owned(), hold.to_string()),
    ]);
    let marked = retrying(shared, "the catalog", || {
        shared.lake.set_properties(&record.target, properties.clone())
    })
    .await;
    match marked {
        Ok(_) | Err(EngineError::Lake(LakeError::Missing { .. })) => shared.note_mark(record.id, None),
        Err(EngineError::Lake(error)) if error.remedy() == Remedy::BlockTable => {
            if !shared.unmarked_tables().contains(&record.id) {
                tracing::warn!(
                    table = %record.source,
                    code = error.code().unwrap_or("-"),
                    "the table's metadata cannot say that it is {word}: nothing after {hold} is acknowledged to \
                     PostgreSQL until it can: {}",
                    chain(&error)
                );
            }
            shared.note_mark(record.id, Some(hold));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Marks the tables again that an earlier run set aside. Called before anything is acknowledged.
pub(crate) async fn mark_all(shared: &Arc<Shared>) -> Result<(), EngineError> {
    let ids: Vec<TableId> = shared.tables().into_keys().collect();
    mark_again(shared, &ids).await
}

/// Tries the tables again that could not be marked.
pub(crate) async fn mark_unmarked(shared: &Arc<Shared>) -> Result<(), EngineError> {
    mark_again(shared, &shared.unmarked_tables()).await
}

async fn mark_again(shared: &Arc<Shared>, ids: &[TableId]) -> Result<(), EngineError> {
    for id in ids {
        let _held = shared.change_records().await;
        let Some(record) = shared.table(*id) else { continue };
        match &record.state {
            TableState::Blocked { hold_lsn, .. } => mark(shared, &record, BLOCKED, *hold_lsn).await?,
            TableState::ResyncRequired { .. } => mark(shared, &record, RESYNC_REQUIRED, record.published_lsn).await?,
            TableState::Copying | TableState::Streaming | TableState::Paused { .. } => {}
        }
    }
    Ok(())
}

fn note(shared: &Shared, id: TableId, word: &str, block: &Block) {
    let now = shared.clock.now_us();
    let mut notices = shared.board.write();
    let Some(status) = notices.tables.get_mut(&id) else {
        return;
    };
    status.state = if word == BLOCKED {
        TableStatusState::Blocked
    } else {
        TableStatusState::ResyncRequired
    };
    status.published_lsn = status.published_lsn.max(block.hold_lsn);
    status.blocked = Some(Blocked {
        code: block.code.clone(),
        reason: block.reason.clone(),
        since: now,
    });
}
