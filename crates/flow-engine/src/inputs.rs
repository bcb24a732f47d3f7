//! What a dynamic table would read now: the newest cut that all of its inputs can present.

use std::collections::BTreeMap;
use std::sync::Arc;

use flow_core::clock::{UnixMicros, parse_iso_utc};
use flow_core::frontier::Frontier;
use flow_core::lake::{LakeReadError, LakeTable, SnapshotInfo, SnapshotReader};
use flow_core::{Lsn, Remedy, TableName};
use flow_refresh::{InputHistory, InputKind, PlannedTable, RefreshError, RefreshInput, choose_cut};
use flow_store::{TableRecord, TableState};

use crate::error::EngineError;
use crate::shared::Shared;

/// Is the newest moment that the tables of one round may be read at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment {
    /// Is the position up to which bronze was published when the round began.
    pub(crate) lsn: Lsn,
    /// Is the epoch of that position.
    pub(crate) epoch: u64,
    /// Is when the round began, in microseconds since 1970: what `now()` is to every table of it.
    pub(crate) at_us: UnixMicros,
    /// Holds the snapshot of each foreign table that was met: all tables of a round read the same.
    pub(crate) foreign: BTreeMap<TableName, Option<i64>>,
}

impl Moment {
    /// Is now.
    ///
    /// IMPORTANT: taken before any table is loaded: a table may be newer than it, never older.
    pub(crate) fn now(shared: &Shared) -> Moment {
        let notices = shared.board.write();
        Moment {
            lsn: notices.positions.published.get(),
            epoch: notices.published_epoch,
            at_us: shared.clock.now_us(),
            foreign: BTreeMap::new(),
        }
    }
}

/// Says how far another dynamic table has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parent {
    /// Says that it has a content at all.
    pub(crate) refreshed: bool,
    /// Is from where on its content is known without a gap, up to `data_lsn`.
    pub(crate) steady_from: Lsn,
    /// Is the position its content reflects.
    pub(crate) data_lsn: Lsn,
    /// Is the epoch of that position.
    pub(crate) epoch: u64,
}

/// Is what a refresh would read.
#[derive(Clone, Debug)]
pub(crate) struct Inputs {
    pub(crate) frontier: Frontier,
    pub(crate) inputs: Vec<RefreshInput>,
    /// Is the cut.
    pub(crate) data_lsn: Lsn,
    /// Is the epoch in which the cut lies, or an earlier one since which the inputs did not change.
    pub(crate) epoch: u64,
    /// Is the round's time, in microseconds since 1970.
    pub(crate) at_us: UnixMicros,
    /// Is from where on the inputs are known not to have changed, up to the cut.
    pub(crate) steady_from: Lsn,
    /// Is when the source committed the newest change among the inputs, in microseconds since 1970.
    pub(crate) commit_time_us: Option<UnixMicros>,
    /// Is when the source committed the oldest change that the stored frontier does not reflect, in
    /// microseconds since 1970; now if there is none.
    pub(crate) oldest_unread_us: UnixMicros,
    pub(crate) held_back_by: Option<TableName>,
}

/// Is what a look at the inputs found.
#[derive(Clone, Debug)]
pub(crate) enum Sight {
    /// They can be read.
    Ready(Inputs),
    /// They cannot be at present; names the one that is missing, if it is one.
    NotYet(Option<TableName>),
}

/// Looks at a table's inputs.
///
/// `parent` tells how far another dynamic table has come.
///
/// # Errors
/// Those of reading the catalog. BlockTable: a column that is read is gone from an input, or has another
/// type, as the table is or in the snapshot that would be read.
pub(crate) async fn look_at_inputs(
    shared: &Arc<Shared>,
    planned: &PlannedTable,
    stored: Option<&Frontier>,
    moment: &mut Moment,
    parent: &(dyn Fn(&TableName) -> Option<Parent> + Send + Sync),
) -> Result<Sight, EngineError> {
    let bronze: BTreeMap<TableName, _> = shared.tables().into_values().map(|r| (r.target.clone(), r)).collect();
    let mut histories = Vec::with_capacity(planned.inputs.len());
    let mut snapshots: BTreeMap<TableName, Vec<SnapshotInfo>> = BTreeMap::new();
    // Epochs by the LSN they are known to reach.
    let mut epochs = BTreeMap::from([(moment.lsn, moment.epoch)]);
    let reader: &dyn SnapshotReader = &shared.lake;
    for name in &planned.inputs {
        let captured = bronze.get(name);
        let loaded = reader.load(name).await;
        let loaded = loaded.map_err(|source| read_error(planned, name, captured.is_some(), source))?;
        // Nothing is read as empty because it is not there.
        let Some(mut table) = loaded else {
            return Ok(Sight::NotYet(Some(name.clone())));
        };
        planned.check_input(name, &table.schema)?;
        let parent = match parent(name) {
            None if captured.is_none() => unplanned(shared, name, &table)?,
            planned => planned,
        };
        let (kind, steady_from, reached) = match (captured, parent) {
            (Some(record), _) => (InputKind::Bronze, Lsn::ZERO, reached(record, moment.lsn)),
            (None, Some(parent)) if !parent.refreshed => return Ok(Sight::NotYet(Some(name.clone()))),
            (None, Some(parent)) => (InputKind::Dynamic, parent.steady_from, parent.data_lsn),
            (None, None) => {
                keep_one_foreign_snapshot(moment, &mut table);
                (InputKind::Foreign, Lsn::ZERO, Lsn::ZERO)
            }
        };
        epochs.extend(captured.map(|record| (record.published_lsn, record.published_epoch.0)));
        epochs.extend(parent.map(|parent| (parent.data_lsn, parent.epoch)));
        let retained = positions(kind, &table.snapshots);
        if kind == InputKind::Dynamic {
            epochs.extend(epochs_of(&retained, &table.snapshots));
        }
        histories.push(InputHistory {
            name: name.clone(),
            kind,
            retained,
            trimmed: table.snapshots.first().is_some_and(|first| first.parent_id.is_some()),
            steady_from,
            reached,
        });
        snapshots.insert(name.clone(), table.snapshots);
    }
    let Some(cut) = choose_cut(&histories, moment.lsn) else {
        return Ok(Sight::NotYet(None));
    };
    check_read(planned, &cut.snapshots, &snapshots)?;
    let frontier = Frontier(cut.snapshots.iter().map(|(name, id)| (name.to_string(), *id)).collect());
    let lsn = cut.lsn.unwrap_or(moment.lsn);
    Ok(Sight::Ready(Inputs {
        inputs: cut.snapshots.iter().map(refresh_input).collect(),
        data_lsn: lsn,
        at_us: moment.at_us,
        epoch: epochs.range(..=lsn).next_back().map_or(0, |(_, epoch)| *epoch),
        steady_from: steady_from(&histories, lsn),
        commit_time_us: newest_commit(&snapshots, &frontier),
        oldest_unread_us: oldest_unread(&snapshots, stored, &frontier).unwrap_or_else(|| shared.clock.now_us()),
        frontier,
        held_back_by: cut.held_back_by,
    }))
}

fn refresh_input((name, snapshot_id): &(TableName, Option<i64>)) -> RefreshInput {
    RefreshInput {
        name: name.clone(),
        snapshot_id: *snapshot_id,
    }
}

/// Checks the columns of the snapshots that would be read: a table may have others by now.
fn check_read(
    planned: &PlannedTable,
    cut: &[(TableName, Option<i64>)],
    snapshots: &BTreeMap<TableName, Vec<SnapshotInfo>>,
) -> Result<(), RefreshError> {
    for (name, id) in cut {
        let mut retained = snapshots.get(name).into_iter().flatten();
        if let Some(read) = retained.find(|snapshot| Some(snapshot.snapshot_id) == *id) {
            planned.check_input(name, &read.schema)?;
        }
    }
    Ok(())
}

/// Is how far a bronze table has come: a streaming one is complete up to what is published.
fn reached(record: &TableRecord, published: Lsn) -> Lsn {
    match record.state {
        TableState::Streaming => published.max(record.published_lsn),
        _ => record.published_lsn,
    }
}

/// Says how far a dynamic table of ours has come whose definition is gone or wrong at present: it
/// stays where it is, and holds those that read it.
fn unplanned(shared: &Shared, name: &TableName, table: &LakeTable) -> Result<Option<Parent>, EngineError> {
    let property = |key: &str| table.properties.get(key).map(String::as_str);
    if property("flow.kind") != Some("dynamic") || property("flow.source-id") != Some(&shared.source_id) {
        return Ok(None);
    }
    let record = shared.store.refreshes().get(&name.to_string())?;
    Ok(Some(record.map_or(
        Parent {
            refreshed: false,
            steady_from: Lsn::ZERO,
            data_lsn: Lsn::ZERO,
            epoch: 0,
        },
        |record| Parent {
            refreshed: record.last.is_some(),
            steady_from: record.data_lsn,
            data_lsn: record.data_lsn,
            epoch: record.epoch,
        },
    )))
}

/// Leaves of a foreign table's snapshots those up to the one that the round reads.
fn keep_one_foreign_snapshot(moment: &mut Moment, table: &mut LakeTable) {
    let current = table.snapshots.last().map(|snapshot| snapshot.snapshot_id);
    let chosen = *moment.foreign.entry(table.name.clone()).or_insert(current);
    let place = table.snapshots.iter().position(|s| Some(s.snapshot_id) == chosen);
    // A snapshot that was expired meanwhile is replaced for the rest of the round.
    match place {
        Some(place) => table.snapshots.truncate(place + 1),
        None => {
            moment.foreign.insert(table.name.clone(), current);
        }
    }
}

/// Says why an input cannot be read. What another program wrote is input: it never stops the service.
fn read_error(planned: &PlannedTable, input: &TableName, ours: bool, source: LakeReadError) -> EngineError {
    if !ours && source.remedy == Remedy::Crash {
        return EngineError::Reconfigure {
            code: "F0307",
            message: format!("input {input} of {} cannot be read: {source}", planned.name),
        };
    }
    EngineError::Refresh(RefreshError::Read {
        table: planned.name.to_string(),
        source,
    })
}

/// Gives each snapshot the LSN it stands for.
fn positions(kind: InputKind, snapshots: &[SnapshotInfo]) -> Vec<(i64, Lsn)> {
    let property = match kind {
        InputKind::Bronze => "flow.lsn",
        InputKind::Dynamic => "flow.data-lsn",
        InputKind::Foreign => "",
    };
    let mut content = Lsn::ZERO;
    let position = |snapshot: &SnapshotInfo| {
        let own = snapshot.summary.get(property).and_then(|text| text.parse().ok());
        content = own.unwrap_or(content);
        (snapshot.snapshot_id, content)
    };
    snapshots.iter().map(position).collect()
}

fn epochs_of(positions: &[(i64, Lsn)], snapshots: &[SnapshotInfo]) -> Vec<(Lsn, u64)> {
    let epoch = |snapshot: &SnapshotInfo| snapshot.summary.get("flow.epoch")?.parse().ok();
    let pairs = positions.iter().zip(snapshots);
    pairs
        .filter_map(|((_, lsn), snapshot)| Some((*lsn, epoch(snapshot)?)))
        .collect()
}

/// Is from where on, up to `lsn`, no dynamic input is known to have changed.
fn steady_from(histories: &[InputHistory], lsn: Lsn) -> Lsn {
    let dynamic = histories.iter().filter(|input| input.kind == InputKind::Dynamic);
    let starts = dynamic.map(|input| match input.steady_from <= lsn {
        true => input.steady_from,
        false => lsn,
    });
    starts.max().unwrap_or(Lsn::ZERO)
}

/// Is when the source committed what a snapshot brought, in microseconds since 1970.
fn committed_us(snapshot: &SnapshotInfo) -> UnixMicros {
    let source = snapshot
        .summary
        .get("flow.commit-time")
        .and_then(|text| parse_iso_utc(text));
    source.unwrap_or(snapshot.timestamp_ms * 1000)
}

fn newest_commit(snapshots: &BTreeMap<TableName, Vec<SnapshotInfo>>, frontier: &Frontier) -> Option<UnixMicros> {
    let read = |snapshot: &&SnapshotInfo| frontier.0.values().any(|id| *id == Some(snapshot.snapshot_id));
    snapshots.values().flatten().filter(read).map(committed_us).max()
}

/// Finds the first snapshot that the stored frontier does not reflect and the wanted one does.
fn oldest_unread(
    snapshots: &BTreeMap<TableName, Vec<SnapshotInfo>>,
    stored: Option<&Frontier>,
    wanted: &Frontier,
) -> Option<UnixMicros> {
    let mut oldest = None;
    for (name, snapshots) in snapshots {
        let name = name.to_string();
        let had = stored.and_then(|stored| stored.0.get(&name).copied().flatten());
        let wants = wanted.0.get(&name).copied().flatten();
        let place = |id: Option<i64>| id.and_then(|id| snapshots.iter().position(|s| s.snapshot_id == id));
        let Some(last) = place(wants) else { continue };
        let read = place(had);
        let first = read.map_or(0, |place| place + 1);
        if let Some(snapshot) = snapshots.get(first).filter(|_| first <= last) {
            let at = match read {
                // What came next was trimmed: it is younger than what was read, and older than the rest.
                Some(read) if snapshot.parent_id != had => committed_us(&snapshots[read]),
                _ => committed_us(snapshot),
            };
            oldest = Some(oldest.map_or(at, |oldest: UnixMicros| oldest.min(at)));
        }
    }
    oldest
}
