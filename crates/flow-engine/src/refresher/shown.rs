//! What the status shows of dynamic tables.

use std::collections::BTreeMap;

use flow_core::frontier::Frontier;
use flow_store::{RefreshRecord, RefreshRun};

use super::{Dynamic, Refresher};
use crate::status::{Blocked, DynamicTableState, DynamicTableStatus, RefreshStatus};

impl Refresher {
    /// Shows every table on the board.
    pub(super) fn note(&self) {
        let planned = self.tables.iter().map(|table| self.planned(table));
        let problems = self.problems.iter().filter_map(|problem| {
            let name = problem.table.as_ref()?;
            let blocked = Blocked {
                code: problem.code.to_owned(),
                reason: problem.to_string(),
                since: 0,
            };
            let shown = || self.unplanned(&name.to_string(), DynamicTableState::Blocked, Some(blocked));
            (!self.names.contains_key(name)).then(shown)
        });
        let detached = self.detached();
        let detached = detached.map(|name| self.unplanned(name, DynamicTableState::Detached, None));
        let shown = planned.chain(problems).chain(detached).collect();
        self.shared.board.write().dynamic_tables = shown;
    }

    /// Names the tables that there is a content of, and that nothing declares.
    pub(super) fn detached(&self) -> impl Iterator<Item = &String> {
        let wrong = |name: &str| {
            let mut named = self.problems.iter().filter_map(|problem| problem.table.as_ref());
            named.any(|table| table.to_string() == name)
        };
        self.unplanned.keys().filter(move |name| !wrong(name))
    }

    fn planned(&self, table: &Dynamic) -> DynamicTableStatus {
        let kept = table.record.as_ref();
        DynamicTableStatus {
            mode: table.planned.mode.as_str().to_owned(),
            state: match table.suspended() {
                true => DynamicTableState::Suspended,
                false => table.state,
            },
            data_lsn: table.data_lsn,
            lag_seconds: table.lag_seconds,
            blocked: table.blocked.clone(),
            held_by: table.held_by.as_ref().map(ToString::to_string),
            drift: table.planned.drift.clone(),
            ..self.kept(table.planned.name.to_string(), kept)
        }
    }

    /// Shows a table that cannot be planned: what its record says, and why it stands still.
    fn unplanned(&self, name: &str, state: DynamicTableState, blocked: Option<Blocked>) -> DynamicTableStatus {
        DynamicTableStatus {
            state,
            blocked,
            ..self.kept(name.to_owned(), self.unplanned.get(name))
        }
    }

    /// Shows what is kept of a table.
    fn kept(&self, name: String, record: Option<&RefreshRecord>) -> DynamicTableStatus {
        let last = record.and_then(|record| record.last.as_ref());
        let stamp = record.and_then(|record| record.state.as_ref());
        DynamicTableStatus {
            name,
            mode: last.map_or_else(|| "FULL".to_owned(), |run| run.mode.clone()),
            state: state_of(record, None),
            data_lsn: record.map(|record| record.data_lsn).unwrap_or_default(),
            frontier: record.map(|r| frontier_text(&r.frontier)).unwrap_or_default(),
            lag_seconds: 0.0,
            last_refresh: last.map(run_status),
            blocked: None,
            held_by: None,
            drift: Vec::new(),
            state_bytes: stamp.map_or(0, |stamp| self.shared.store.states().size_bytes(stamp.id)),
        }
    }
}

pub(super) fn state_of(record: Option<&RefreshRecord>, blocked: Option<&Blocked>) -> DynamicTableState {
    match (record, blocked) {
        (_, Some(_)) => DynamicTableState::Blocked,
        (Some(record), None) if record.suspended => DynamicTableState::Suspended,
        (Some(record), None) if record.last.is_some() => DynamicTableState::Waiting,
        _ => DynamicTableState::Initialising,
    }
}

pub(crate) fn frontier_text(frontier: &Frontier) -> BTreeMap<String, Option<String>> {
    frontier
        .0
        .iter()
        .map(|(table, id)| (table.clone(), id.map(|id| id.to_string())))
        .collect()
}

pub(crate) fn run_status(run: &RefreshRun) -> RefreshStatus {
    RefreshStatus {
        run_id: run.run_id.clone(),
        mode: run.mode.clone(),
        reason: run.reason.clone(),
        duration_ms: run.duration_ms,
        rows_read: run.rows_read,
        rows_inserted: run.rows_inserted,
        rows_deleted: run.rows_deleted,
    }
}
