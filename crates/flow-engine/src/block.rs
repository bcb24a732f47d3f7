//! Setting one table aside while the others go on (law 6).
//!
//! 1. The catalog learns of it first: `flow.state` and `flow.hold-lsn` among the table's properties.
//!    IMPORTANT: before acknowledgement can pass the hold, or a lost state directory could not tell
//!    that the table is behind. A catalog that cannot take it stops publishing, and with it
//!    acknowledgement.
//! 2. Then the store does, and from there on the table's changes stay in the journal.

use std::collections::BTreeMap;
use std::sync::Arc;

use flow_core::{Lsn, TableId};
use flow_lake::LakeError;
use flow_store::TableState;

use crate::error::EngineError;
use crate::publish::{blocking, retrying};
use crate::shared::Shared;
use crate::status::{Blocked, TableStatusState};

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
    set_aside(shared, id, "blocked", state, block).await
}

/// Gives a table up: its changes are no longer complete, and only another copy helps.
pub(crate) async fn require_resync(shared: &Arc<Shared>, id: TableId, block: Block) -> Result<(), EngineError> {
    let state = TableState::ResyncRequired {
        code: block.code.clone(),
        reason: block.reason.clone(),
        since_us: shared.clock.now_us(),
    };
    set_aside(shared, id, "resync-required", state, block).await
}

async fn set_aside(
    shared: &Arc<Shared>,
    id: TableId,
    word: &str,
    state: TableState,
    block: Block,
) -> Result<(), EngineError> {
    let Some(mut record) = shared.table(id) else {
        return Err(EngineError::Invariant(format!("table {id} is unknown")));
    };
    let properties = BTreeMap::from([
        ("flow.state".to_owned(), word.to_owned()),
        ("flow.hold-lsn".to_owned(), block.hold_lsn.to_string()),
    ]);
    let marked = retrying(shared, "the catalog", || {
        shared.lake.set_properties(&record.target, properties.clone())
    })
    .await;
    match marked {
        Ok(_) => {}
        // A table that was dropped cannot be marked, and needs no mark.
        Err(EngineError::Lake(LakeError::Missing { .. })) => {}
        Err(error) => return Err(error),
    }
    record.published_lsn = block.hold_lsn;
    record.state = state;
    tracing::warn!(table = %record.source, code = block.code, reason = block.reason, hold = %block.hold_lsn, "table {word}");
    let stored = record.clone();
    blocking(shared, move |shared| Ok(shared.store.tables().put(&stored)?)).await?;
    note(shared, id, word, &block);
    shared.note_table(record);
    Ok(())
}

fn note(shared: &Shared, id: TableId, word: &str, block: &Block) {
    let now = shared.clock.now_us();
    let mut notices = shared.board.write();
    let Some(status) = notices.tables.get_mut(&id) else {
        return;
    };
    status.state = if word == "blocked" {
        TableStatusState::Blocked
    } else {
        TableStatusState::ResyncRequired
    };
    status.published_lsn = block.hold_lsn;
    status.blocked = Some(Blocked {
        code: block.code.clone(),
        reason: block.reason.clone(),
        since: now,
    });
}
