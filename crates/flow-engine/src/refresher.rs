//! Keeps dynamic tables fresh: decides which is due, computes it, publishes what differs.
//!
//! 1. After each commit, and when a pause or a LAG runs out, every table is looked at in plan order.
//! 2. Its inputs' newest common cut is found. If that is the stored frontier, only the data LSN moves.
//! 3. A due table is computed on a bounded pool; capture and publishing never wait for it.
//! 4. The difference enters the one publish path as an operation whose id is a hash of what it
//!    reads and what it stands on: a replayed refresh is the same operation.
//! 5. A table whose input is being refreshed waits for it, so a round goes down the DAG once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use flow_core::frontier::Frontier;
use flow_core::schedule::{FULL_REFRESH_PAUSE_MIN, full_refresh_not_before};
use flow_core::{Lsn, Remedial, Remedy, TableName};
use flow_refresh::{Lag, Plan, PlannedTable};
use flow_store::{RefreshBlocked, RefreshRecord, RefreshRun};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::error::EngineError;
use crate::inputs::{Inputs, look_at_inputs};
use crate::refresh_work::{Refreshed, Request, empty_record, refresh};
use crate::shared::Shared;
use crate::status::{Blocked, DynamicTableState, DynamicTableStatus, RefreshStatus};

/// Is how many refreshes compute at once.
const POOL: usize = 2;

/// Is how long a table whose inputs have no common cut, or whose refresh failed in passing, waits.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// Asks the refresher to do something out of turn.
#[derive(Debug)]
pub(crate) enum Order {
    /// Refreshes these tables in plan order, whatever their schedule; all if `None`.
    Refresh {
        name: Option<TableName>,
        full: bool,
        answer: oneshot::Sender<Result<Vec<(TableName, RefreshStatus)>, EngineError>>,
    },
    /// Suspends or resumes a table.
    Suspend {
        name: TableName,
        suspended: bool,
        answer: oneshot::Sender<Result<(), EngineError>>,
    },
    /// Takes a new plan.
    Replan(Box<Plan>),
}

/// Is one dynamic table as the refresher sees it.
#[derive(Debug)]
struct Dynamic {
    planned: Arc<PlannedTable>,
    record: Option<RefreshRecord>,
    /// Is the position the content reflects; moves past epochs that do not change an input.
    data_lsn: Lsn,
    not_before: Duration,
    state: DynamicTableState,
    lag_seconds: f64,
    held_by: Option<TableName>,
    blocked: Option<Blocked>,
}

/// Runs the refreshes.
#[derive(Debug)]
pub(crate) struct Refresher {
    shared: Arc<Shared>,
    tables: Vec<Dynamic>,
    names: BTreeMap<TableName, usize>,
    problems: Vec<flow_refresh::Problem>,
    running: JoinSet<(TableName, Result<Refreshed, EngineError>)>,
    busy: BTreeSet<TableName>,
}

impl Refresher {
    pub(crate) fn new(shared: &Arc<Shared>, plan: Plan) -> Result<Self, EngineError> {
        let mut refresher = Refresher {
            shared: shared.clone(),
            tables: Vec::new(),
            names: BTreeMap::new(),
            problems: Vec::new(),
            running: JoinSet::new(),
            busy: BTreeSet::new(),
        };
        refresher.take_plan(plan)?;
        Ok(refresher)
    }

    fn take_plan(&mut self, plan: Plan) -> Result<(), EngineError> {
        for problem in &plan.problems {
            tracing::warn!(code = problem.code, "{problem}");
        }
        self.problems = plan.problems;
        self.tables.clear();
        self.names.clear();
        for planned in plan.tables {
            let record = self.shared.store.refreshes().get(&planned.name.to_string())?;
            let stored = record.as_ref().and_then(|record| record.blocked.clone());
            // A changed query is a new chance.
            let same = record
                .as_ref()
                .is_some_and(|record| record.query_hash == planned.query_hash);
            let blocked = stored.filter(|_| same).map(|b| Blocked {
                code: b.code,
                reason: b.reason,
                since: b.since_us,
            });
            self.names.insert(planned.name.clone(), self.tables.len());
            self.tables.push(Dynamic {
                data_lsn: record.as_ref().map_or(Lsn::ZERO, |record| record.data_lsn),
                state: state_of(record.as_ref(), blocked.as_ref()),
                planned: Arc::new(planned),
                record,
                not_before: Duration::ZERO,
                lag_seconds: 0.0,
                held_by: None,
                blocked,
            });
        }
        self.note();
        Ok(())
    }

    /// Refreshes until cancelled; running refreshes are brought to their end first.
    pub(crate) async fn run(
        mut self,
        mut orders: mpsc::Receiver<Order>,
        cancel: CancellationToken,
    ) -> Result<(), EngineError> {
        loop {
            let committed = self.shared.clone();
            let committed = committed.committed.notified();
            tokio::pin!(committed);
            // IMPORTANT: listen before looking, or a commit between the two would wake nobody.
            committed.as_mut().enable();
            let pause = self.turn().await?;
            tokio::select! {
                () = &mut committed => {}
                () = tokio::time::sleep(pause) => {}
                Some(ended) = self.running.join_next() => self.ended(ended)?,
                Some(order) = orders.recv() => self.order(order).await?,
                () = cancel.cancelled() => break,
            }
        }
        while let Some(ended) = self.running.join_next().await {
            self.ended(ended)?;
        }
        Ok(())
    }

    /// Serves orders only, for a stopped service.
    pub(crate) async fn run_orders(
        mut self,
        mut orders: mpsc::Receiver<Order>,
        cancel: CancellationToken,
    ) -> Result<(), EngineError> {
        loop {
            tokio::select! {
                Some(order) = orders.recv() => self.order(order).await?,
                () = cancel.cancelled() => return Ok(()),
            }
        }
    }

    /// Looks at every table once and starts what is due. Gives the time to the next look.
    async fn turn(&mut self) -> Result<Duration, EngineError> {
        let mut pause = Duration::from_secs(3600);
        for index in 0..self.tables.len() {
            pause = pause.min(self.look(index).await?);
        }
        self.note();
        Ok(pause)
    }

    /// Looks at one table. Gives the time after which it wants to be looked at again.
    async fn look(&mut self, index: usize) -> Result<Duration, EngineError> {
        let never = Duration::from_secs(3600);
        let table = &self.tables[index];
        let name = table.planned.name.clone();
        let suspended = table.record.as_ref().is_some_and(|record| record.suspended);
        if self.busy.contains(&name) || suspended || table.blocked.is_some() {
            return Ok(never);
        }
        let Some(inputs) = self.inputs(index).await? else {
            self.tables[index].state = DynamicTableState::Waiting;
            return Ok(RETRY_PAUSE);
        };
        let table = &mut self.tables[index];
        table.held_by = inputs.held_back_by.clone();
        let fresh = table.record.as_ref().is_some_and(|record| {
            record.frontier == inputs.frontier && record.query_hash == table.planned.query_hash && record.last.is_some()
        });
        if fresh {
            table.data_lsn = table.data_lsn.max(inputs.data_lsn);
            table.state = DynamicTableState::Fresh;
            table.lag_seconds = 0.0;
            return Ok(never);
        }
        let now = self.shared.clock.monotonic();
        let waited = Duration::from_micros((self.shared.clock.now_us() - inputs.oldest_unread_us).max(0) as u64);
        let lag = self.lag(index);
        let table = &mut self.tables[index];
        table.lag_seconds = waited.as_secs_f64();
        if table.record.is_some() {
            table.state = DynamicTableState::Waiting;
        }
        // A parent that is being refreshed, or about to be, will bring a newer cut.
        if table.planned.inputs.iter().any(|input| self.busy.contains(input)) {
            return Ok(never);
        }
        let wait = table.not_before.saturating_sub(now).max(match lag {
            Some(lag) if table.record.is_some() => due_in(lag, waited, last_run(table)),
            Some(_) => Duration::ZERO,
            None => return Ok(never),
        });
        if wait > Duration::ZERO {
            return Ok(wait);
        }
        if self.busy.len() >= POOL {
            return Ok(never);
        }
        let reason = reason(table);
        self.start(index, inputs, reason, None);
        Ok(never)
    }

    /// Finds the newest common cut of a table's inputs.
    async fn inputs(&self, index: usize) -> Result<Option<Inputs>, EngineError> {
        let table = &self.tables[index];
        let data = |name: &TableName| self.names.get(name).map(|index| self.tables[*index].data_lsn);
        let frontier = table.record.as_ref().map(|record| &record.frontier);
        match look_at_inputs(&self.shared, &table.planned, frontier, &data).await {
            Ok(inputs) => Ok(inputs),
            Err(error) if error.remedy() == Remedy::Retry => {
                self.shared.board.error(&error, "inputs of a dynamic table");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Is the lag in force; `None` for a table that refreshes on command only.
    fn lag(&self, index: usize) -> Option<Duration> {
        match self.tables[index].planned.lag {
            Lag::None => Some(Duration::ZERO),
            Lag::Duration(lag) => Some(lag),
            Lag::Downstream => {
                let name = &self.tables[index].planned.name;
                let consumers = self
                    .tables
                    .iter()
                    .enumerate()
                    .filter(|(_, t)| t.planned.inputs.contains(name));
                consumers.filter_map(|(consumer, _)| self.lag(consumer)).min()
            }
        }
    }

    fn start(&mut self, index: usize, inputs: Inputs, reason: String, nonce: Option<String>) {
        let table = &mut self.tables[index];
        table.state = match table.record {
            Some(_) => DynamicTableState::Refreshing,
            None => DynamicTableState::Initialising,
        };
        let name = table.planned.name.clone();
        let request = Request {
            planned: table.planned.clone(),
            record: table.record.clone(),
            frontier: inputs.frontier,
            inputs: inputs.inputs,
            data_lsn: inputs.data_lsn,
            reason,
            nonce,
        };
        self.busy.insert(name.clone());
        let shared = self.shared.clone();
        self.running.spawn(async move {
            let outcome = refresh(&shared, request).await;
            (name, outcome)
        });
    }

    /// Takes the end of a refresh.
    fn ended(
        &mut self,
        ended: Result<(TableName, Result<Refreshed, EngineError>), tokio::task::JoinError>,
    ) -> Result<(), EngineError> {
        let (name, outcome) = ended.map_err(|error| EngineError::Invariant(format!("a refresh ended: {error}")))?;
        self.busy.remove(&name);
        let now = self.shared.clock.monotonic();
        let Some(&index) = self.names.get(&name) else {
            return Ok(());
        };
        let table = &mut self.tables[index];
        match outcome {
            Ok(refreshed) => {
                table.data_lsn = table.data_lsn.max(refreshed.record.data_lsn);
                table.not_before = full_refresh_not_before(now, refreshed.duration);
                table.record = Some(refreshed.record);
                table.blocked = None;
                table.state = DynamicTableState::Fresh;
            }
            Err(error) => {
                self.shared.counters.refresh_failures.add(1);
                self.shared.board.error(&error, &format!("refresh of {name}"));
                match error.remedy() {
                    Remedy::Crash => return Err(error),
                    Remedy::Retry | Remedy::Replan => table.not_before = now + RETRY_PAUSE.max(FULL_REFRESH_PAUSE_MIN),
                    Remedy::BlockTable | Remedy::Reconfigure | Remedy::Resync => {
                        let blocked = Blocked {
                            code: error.code().unwrap_or("F0014").to_owned(),
                            reason: crate::board::chain(&error),
                            since: self.shared.clock.now_us(),
                        };
                        block(&self.shared, table, blocked)?;
                    }
                }
            }
        }
        self.shared.committed.notify_waiters();
        self.note();
        Ok(())
    }

    async fn order(&mut self, order: Order) -> Result<(), EngineError> {
        match order {
            Order::Refresh { name, full, answer } => {
                let outcome = self.refresh_now(name, full).await;
                // The one who asked may have gone; the refresh stands either way.
                let _ = answer.send(outcome);
            }
            Order::Suspend {
                name,
                suspended,
                answer,
            } => {
                let outcome = self.suspend(&name, suspended);
                let _ = answer.send(outcome);
            }
            Order::Replan(plan) => self.take_plan(*plan)?,
        }
        Ok(())
    }

    /// Refreshes one table, or all in plan order, out of turn.
    async fn refresh_now(
        &mut self,
        name: Option<TableName>,
        full: bool,
    ) -> Result<Vec<(TableName, RefreshStatus)>, EngineError> {
        let indexes: Vec<usize> = match &name {
            Some(name) => vec![self.index(name)?],
            None => (0..self.tables.len()).collect(),
        };
        let mut done = Vec::new();
        for index in indexes {
            let name = self.tables[index].planned.name.clone();
            while self.busy.contains(&name) {
                if let Some(ended) = self.running.join_next().await {
                    self.ended(ended)?;
                }
            }
            let Some(inputs) = self.inputs(index).await? else {
                return Err(EngineError::Unavailable {
                    what: "a common cut of the inputs",
                    seconds: 0,
                    source: Box::new(EngineError::Invariant(format!("inputs of {name} have no common cut"))),
                });
            };
            let nonce = full.then(|| uuid::Uuid::new_v4().simple().to_string());
            self.tables[index].blocked = None;
            self.start(index, inputs, "requested".to_owned(), nonce);
            while self.busy.contains(&name) {
                if let Some(ended) = self.running.join_next().await {
                    self.ended(ended)?;
                }
            }
            let table = &self.tables[index];
            if let Some(blocked) = &table.blocked {
                return Err(EngineError::Reconfigure {
                    code: "F0014",
                    message: format!("table {name} cannot be refreshed: {}: {}", blocked.code, blocked.reason),
                });
            }
            let last = table.record.as_ref().and_then(|record| record.last.as_ref());
            if let Some(run) = last {
                done.push((name, run_status(run)));
            }
        }
        Ok(done)
    }

    fn suspend(&mut self, name: &TableName, suspended: bool) -> Result<(), EngineError> {
        let index = self.index(name)?;
        let table = &mut self.tables[index];
        let mut record = table.record.clone().unwrap_or_else(|| empty_record(&table.planned));
        record.suspended = suspended;
        record.blocked = None;
        self.shared.store.refreshes().put(&name.to_string(), &record)?;
        table.state = if suspended {
            DynamicTableState::Suspended
        } else {
            DynamicTableState::Waiting
        };
        table.blocked = None;
        table.record = Some(record);
        self.note();
        Ok(())
    }

    fn index(&self, name: &TableName) -> Result<usize, EngineError> {
        self.names.get(name).copied().ok_or_else(|| {
            let problem = self
                .problems
                .iter()
                .find(|problem| problem.table.as_ref() == Some(name));
            EngineError::Reconfigure {
                code: "F0015",
                message: match problem {
                    Some(problem) => format!("dynamic table {name} cannot be planned: {problem}"),
                    None => format!("no dynamic table is called {name}; `embrasure-flow plan` lists them"),
                },
            }
        })
    }

    fn note(&self) {
        let planned = self.tables.iter().map(|table| DynamicTableStatus {
            name: table.planned.name.to_string(),
            mode: "FULL".to_owned(),
            state: match table.record.as_ref().is_some_and(|record| record.suspended) {
                true => DynamicTableState::Suspended,
                false => table.state,
            },
            data_lsn: table.data_lsn,
            frontier: table
                .record
                .as_ref()
                .map(|record| frontier_text(&record.frontier))
                .unwrap_or_default(),
            lag_seconds: table.lag_seconds,
            last_refresh: table
                .record
                .as_ref()
                .and_then(|record| record.last.as_ref())
                .map(run_status),
            blocked: table.blocked.clone(),
            held_by: table.held_by.as_ref().map(ToString::to_string),
        });
        let unplanned = self.problems.iter().filter_map(|problem| {
            let name = problem.table.as_ref()?;
            (!self.names.contains_key(name)).then(|| DynamicTableStatus {
                name: name.to_string(),
                mode: "FULL".to_owned(),
                state: DynamicTableState::Blocked,
                data_lsn: Lsn::ZERO,
                frontier: BTreeMap::new(),
                lag_seconds: 0.0,
                last_refresh: None,
                blocked: Some(Blocked {
                    code: problem.code.to_owned(),
                    reason: problem.to_string(),
                    since: 0,
                }),
                held_by: None,
            })
        });
        self.shared.board.write().dynamic_tables = planned.chain(unplanned).collect();
    }
}

fn state_of(record: Option<&RefreshRecord>, blocked: Option<&Blocked>) -> DynamicTableState {
    match (record, blocked) {
        (_, Some(_)) => DynamicTableState::Blocked,
        (Some(record), None) if record.suspended => DynamicTableState::Suspended,
        (Some(record), None) if record.last.is_some() => DynamicTableState::Waiting,
        _ => DynamicTableState::Initialising,
    }
}

fn frontier_text(frontier: &Frontier) -> BTreeMap<String, Option<String>> {
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
        rows_inserted: run.rows_inserted,
        rows_deleted: run.rows_deleted,
    }
}

fn last_run(table: &Dynamic) -> Duration {
    let last = table.record.as_ref().and_then(|record| record.last.as_ref());
    last.map_or(Duration::ZERO, |run| Duration::from_millis(run.duration_ms))
}

/// Says how long a table may still wait so that its lag, after a run as long as the last two
/// together, stays within the bound.
fn due_in(lag: Duration, waited: Duration, last_run: Duration) -> Duration {
    lag.saturating_sub(waited).saturating_sub(last_run * 2)
}

fn reason(table: &Dynamic) -> String {
    match &table.record {
        None => "first refresh".to_owned(),
        Some(record) if record.last.is_none() => "first refresh".to_owned(),
        Some(record) if record.query_hash != table.planned.query_hash => "query changed".to_owned(),
        Some(_) => "input changed".to_owned(),
    }
}

/// Blocks a dynamic table, durably.
fn block(shared: &Arc<Shared>, table: &mut Dynamic, blocked: Blocked) -> Result<(), EngineError> {
    let mut record = table.record.clone().unwrap_or_else(|| empty_record(&table.planned));
    record.blocked = Some(RefreshBlocked {
        code: blocked.code.clone(),
        reason: blocked.reason.clone(),
        since_us: blocked.since,
    });
    // The hash is the blocked query's: only another query, or a command, is a new chance.
    record.query_hash = table.planned.query_hash.clone();
    shared.store.refreshes().put(&table.planned.name.to_string(), &record)?;
    table.record = Some(record);
    table.state = DynamicTableState::Blocked;
    table.blocked = Some(blocked);
    Ok(())
}
