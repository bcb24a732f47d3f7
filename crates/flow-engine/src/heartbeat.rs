//! What is looked at every heartbeat, because nothing on the wire tells of it.
//!
//! 1. How far the server has come, for an idle source's status.
//! 2. Whether the publication changed in a way that could have dropped rows.
//! 3. Whether a blocked table holds more journal than it may.
//! 4. How large the store has grown, and which old metadata files can go.

use std::collections::BTreeMap;
use std::sync::Arc;

use flow_source::{Affected, PublicationRows, publication_rows, server_lsn};
use flow_store::{TableRecord, TableState};
use tokio_util::sync::CancellationToken;

use crate::adapters::own_source;
use crate::block::{Block, require_resync};
use crate::error::EngineError;
use crate::publish::blocking;
use crate::shared::Shared;

/// Looks at an idle source, the publication and the blocked tables' holds, every heartbeat.
pub(crate) async fn heartbeat(shared: &Arc<Shared>, cancel: CancellationToken) -> Result<(), EngineError> {
    let mut suspected = None;
    loop {
        let options = shared.options();
        tokio::select! {
            () = tokio::time::sleep(options.heartbeat) => {}
            () = cancel.cancelled() => return Ok(()),
        }
        let source = own_source(shared)?;
        match server_lsn(&source).await {
            Ok(lsn) => {
                shared.board.write().positions.server.raise(lsn);
            }
            // Capture reports and retries a lost source; this look only misses its turn.
            Err(error) => tracing::debug!(%error, "heartbeat missed"),
        }
        match publication_rows(&source).await {
            Ok(rows) => compare_publication(shared, rows, Some(&mut suspected)).await?,
            Err(error) => tracing::debug!(%error, "the publication could not be compared"),
        }
        limit_holds(shared).await?;
        some_table_left(shared)?;
        let sizes = blocking(shared, |shared| Ok(shared.store.sizes()?)).await?;
        let sum = |names: &[&str]| {
            sizes
                .iter()
                .filter(|(family, _)| names.contains(&family.name()))
                .map(|(_, b)| b)
                .sum()
        };
        {
            let mut notices = shared.board.write();
            notices.storage.journal_bytes = sum(&["journal.chunk", "journal.txn"]);
            notices.storage.index_bytes = sum(&["index", "hot"]);
        }
        shared
            .lake
            .clean_metadata()
            .await
            .inspect_err(|error| tracing::debug!(%error, "old metadata stays"))
            .ok();
    }
}

/// Notices changes of the publication that could have dropped rows: they are not on the wire.
///
/// With `suspected` a difference counts when it is seen a second time: the stream tells of a changed
/// table by itself, and more exactly, if it is changed and written to.
pub(crate) async fn compare_publication(
    shared: &Arc<Shared>,
    rows: PublicationRows,
    suspected: Option<&mut Option<serde_json::Value>>,
) -> Result<(), EngineError> {
    let stored = shared.store.facts().publication()?;
    let value = serde_json::to_value(&rows).map_err(|error| EngineError::Invariant(error.to_string()))?;
    if stored.as_ref() == Some(&value) {
        return Ok(());
    }
    if let Some(suspected) = suspected
        && suspected.as_ref() != Some(&value)
    {
        *suspected = Some(value);
        return Ok(());
    }
    if let Some(stored) = stored {
        let earlier: PublicationRows =
            serde_json::from_value(stored).map_err(|error| EngineError::Invariant(error.to_string()))?;
        // A slip of the pen is no loss of rows.
        if rows.is_another(&earlier) {
            return Err(EngineError::Reconfigure {
                code: "F0012",
                message: format!(
                    "source.publication is \"{}\", but the tables follow publication \"{}\"; nothing was changed; put \
                     the setting back, or remove the state directory, the slot and the target tables and run init",
                    rows.name, earlier.name
                ),
            });
        }
        mark_affected(shared, &rows, &earlier).await?;
    }
    blocking(shared, move |shared| {
        Ok(shared.store.facts().set_publication(&value)?)
    })
    .await
}

/// Gives the tables up that may have lost rows.
async fn mark_affected(
    shared: &Arc<Shared>,
    rows: &PublicationRows,
    earlier: &PublicationRows,
) -> Result<(), EngineError> {
    let tables = shared.tables();
    // A table given up has nothing left to lose, and a copying one is read under a snapshot to come.
    let followed = tables
        .values()
        .filter(|table| !matches!(table.state, TableState::ResyncRequired { .. } | TableState::Copying));
    let followed: BTreeMap<u32, &TableRecord> = followed.map(|table| (table.relation_oid, table)).collect();
    let oids: Vec<u32> = followed.keys().copied().collect();
    for Affected { oid, reason, told } in rows.compare(earlier, &oids).affected {
        let Some(table) = followed.get(&oid) else { continue };
        let reason = match &table.state {
            // Its held changes tell of that, in their place.
            TableState::Blocked { .. } if told => continue,
            TableState::Blocked { code, reason: why, .. } => format!("{reason}; was blocked: {code}: {why}"),
            _ => reason,
        };
        let block = Block {
            code: "F0121".to_owned(),
            reason,
            hold_lsn: table.published_lsn,
        };
        require_resync(shared, table.id, block).await?;
    }
    Ok(())
}

/// Refuses to go on when every table was given up: nobody may take that for a working service.
pub(crate) fn some_table_left(shared: &Shared) -> Result<(), EngineError> {
    let tables = shared.tables();
    let mut reasons = tables.values().map(|table| match &table.state {
        TableState::ResyncRequired { code, reason, .. } => Some((&table.source, code, reason)),
        _ => None,
    });
    let Some(first) = reasons.next() else { return Ok(()) };
    let (Some((table, code, reason)), true) = (first, reasons.all(|reason| reason.is_some())) else {
        return Ok(());
    };
    Err(EngineError::Resync {
        code: "F0121",
        message: format!(
            "changes of every captured table may be lost ({table}: {code}: {reason}); the lake stands as it was; \
             remove the state directory, the slot and the target tables and run init"
        ),
    })
}

/// Gives blocked tables up whose held journal grew past the limit.
async fn limit_holds(shared: &Arc<Shared>) -> Result<(), EngineError> {
    let limit = shared.options().limits.blocked_journal_max_bytes;
    for table in shared.tables().into_values() {
        let TableState::Blocked {
            code, reason, hold_lsn, ..
        } = &table.state
        else {
            continue;
        };
        let held = blocking(shared, {
            let hold = *hold_lsn;
            move |shared| {
                let journal = shared.store.journal();
                let mut bytes = 0;
                for meta in journal.transactions(hold, journal.position()) {
                    bytes += meta?.bytes;
                }
                Ok(bytes)
            }
        })
        .await?;
        if held > limit {
            let reason =
                format!("held {held} bytes of journal, more than blocked_journal_max; was blocked: {code}: {reason}");
            let block = Block {
                code: "F0020".to_owned(),
                reason,
                hold_lsn: *hold_lsn,
            };
            require_resync(shared, table.id, block).await?;
        }
    }
    Ok(())
}
