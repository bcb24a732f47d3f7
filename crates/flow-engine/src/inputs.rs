//! What a dynamic table would read now: the newest cut that all of its inputs can present.

use std::collections::BTreeMap;
use std::sync::Arc;

use flow_core::frontier::Frontier;
use flow_core::lake::{LakeReadError, LakeTable, SnapshotInfo, SnapshotReader};
use flow_core::{Lsn, TableName};
use flow_refresh::{InputHistory, InputKind, PlannedTable, RefreshError, RefreshInput, choose_cut};
use flow_store::TableState;

use crate::error::EngineError;
use crate::shared::Shared;

/// Is what a refresh would read.
#[derive(Clone, Debug)]
pub(crate) struct Inputs {
    pub(crate) frontier: Frontier,
    pub(crate) inputs: Vec<RefreshInput>,
    /// Is the cut.
    pub(crate) data_lsn: Lsn,
    /// Is when the oldest snapshot was committed that the stored frontier does not reflect, in
    /// microseconds since 1970; now if there is none.
    pub(crate) oldest_unread_us: i64,
    pub(crate) held_back_by: Option<TableName>,
}

/// Looks at a table's inputs; `None` if they have no common cut at present.
///
/// `data_lsn` tells how far another dynamic table has come.
pub(crate) async fn look_at_inputs(
    shared: &Arc<Shared>,
    planned: &PlannedTable,
    stored: Option<&Frontier>,
    data_lsn: &(dyn Fn(&TableName) -> Option<Lsn> + Send + Sync),
) -> Result<Option<Inputs>, EngineError> {
    // IMPORTANT: the position is read before the tables: a table may be newer than it, never older.
    let published = shared.board.write().positions.published.get();
    let bronze: BTreeMap<TableName, (bool, Lsn)> = shared
        .tables()
        .into_values()
        .map(|record| {
            (
                record.target,
                (record.state == TableState::Streaming, record.published_lsn),
            )
        })
        .collect();
    let mut histories = Vec::with_capacity(planned.inputs.len());
    let mut snapshots: BTreeMap<TableName, Vec<SnapshotInfo>> = BTreeMap::new();
    let reader: &dyn SnapshotReader = &shared.lake;
    for name in &planned.inputs {
        let table = reader.load(name).await.map_err(|source| read_error(planned, source))?;
        let (kind, reached) = match (bronze.get(name), data_lsn(name)) {
            (Some((true, own)), _) => (InputKind::Bronze, published.max(*own)),
            (Some((false, own)), _) => (InputKind::Bronze, *own),
            (None, Some(lsn)) => (InputKind::Dynamic, lsn),
            (None, None) => (InputKind::Foreign, Lsn::ZERO),
        };
        // A dynamic table that was never refreshed presents nothing yet.
        if kind == InputKind::Dynamic && table.is_none() {
            return Ok(None);
        }
        let keep = shared.options().keep_snapshots;
        let history = history(name, kind, reached, table.as_ref(), keep);
        snapshots.insert(name.clone(), table.map(|table| table.snapshots).unwrap_or_default());
        histories.push(history);
    }
    let Some(cut) = choose_cut(&histories) else {
        return Ok(None);
    };
    let inputs = cut.snapshots.iter().map(|(name, id)| RefreshInput {
        name: name.clone(),
        snapshot_id: *id,
    });
    let frontier = Frontier(cut.snapshots.iter().map(|(name, id)| (name.to_string(), *id)).collect());
    Ok(Some(Inputs {
        inputs: inputs.collect(),
        data_lsn: cut.lsn.unwrap_or(published),
        oldest_unread_us: oldest_unread(&snapshots, stored, &frontier).unwrap_or_else(|| shared.clock.now_us()),
        frontier,
        held_back_by: cut.held_back_by,
    }))
}

fn read_error(planned: &PlannedTable, source: LakeReadError) -> EngineError {
    EngineError::Refresh(RefreshError::Read {
        table: planned.name.to_string(),
        source,
    })
}

fn history(name: &TableName, kind: InputKind, reached: Lsn, table: Option<&LakeTable>, keep: usize) -> InputHistory {
    let property = match kind {
        InputKind::Bronze => "flow.lsn",
        InputKind::Dynamic => "flow.data-lsn",
        InputKind::Foreign => "",
    };
    let snapshots = table.map(|table| table.snapshots.as_slice()).unwrap_or_default();
    let mut content = Lsn::ZERO;
    let mut retained = Vec::with_capacity(snapshots.len());
    for snapshot in snapshots {
        content = snapshot
            .summary
            .get(property)
            .and_then(|text| text.parse().ok())
            .unwrap_or(content);
        retained.push((snapshot.snapshot_id, content));
    }
    let trimmed = retained.len() >= keep;
    InputHistory {
        name: name.clone(),
        kind,
        retained,
        trimmed,
        reached,
    }
}

/// Finds the first snapshot that the stored frontier does not reflect and the wanted one does.
fn oldest_unread(
    snapshots: &BTreeMap<TableName, Vec<SnapshotInfo>>,
    stored: Option<&Frontier>,
    wanted: &Frontier,
) -> Option<i64> {
    let mut oldest = None;
    for (name, snapshots) in snapshots {
        let name = name.to_string();
        let had = stored.and_then(|stored| stored.0.get(&name).copied().flatten());
        let wants = wanted.0.get(&name).copied().flatten();
        let place = |id: Option<i64>| id.and_then(|id| snapshots.iter().position(|s| s.snapshot_id == id));
        let Some(last) = place(wants) else { continue };
        let first = place(had).map_or(0, |place| place + 1);
        if let Some(snapshot) = snapshots.get(first).filter(|_| first <= last) {
            let at = snapshot.timestamp_ms * 1000;
            oldest = Some(oldest.map_or(at, |oldest: i64| oldest.min(at)));
        }
    }
    oldest
}
