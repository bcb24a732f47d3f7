//! Keeps dynamic tables fresh: decides which is due, computes it, publishes what differs.
//!
//! 1. After each commit, and when a pause or a LAG runs out, every group of tables is looked at. When
//!    one of its members is due a round begins, and fixes the moment at which all of them are read.
//! 2. A round goes down the DAG once: a member waits for its inputs that are still to be refreshed.
//! 3. A member's newest cut up to that moment is found. If that is the stored frontier, only the data
//!    LSN moves.
//! 4. Else it is computed on threads of its own, a bounded number at once; capture and publishing
//!    never wait for it.
//! 5. The difference enters the one publish path as an operation whose id is a hash of what it
//!    reads and what it stands on: a replayed refresh is the same operation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use flow_core::clock::UnixMicros;
use flow_core::schedule::{FULL_REFRESH_PAUSE_MIN, full_refresh_not_before};
use flow_core::{Lsn, Remedial, Remedy, TableName};
use flow_refresh::{Lag, Mode, Plan, PlannedTable};
use flow_store::{RefreshBlocked, RefreshRecord};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::compute::POOL;
use crate::error::EngineError;
use crate::inputs::{Inputs, Moment, Parent, Sight, look_at_inputs};
use crate::refresh_request::Request;
use crate::refresh_work::{Refreshed, empty_record, refresh};
use crate::rounds::{Begins, Group, Round, Wanting, begins, groups};
use crate::shared::Shared;
use crate::status::{Blocked, DynamicTableState, RefreshStatus, RunStatus};
use crate::verify::Verification;

/// Is how long is waited for something that is told by itself.
const TOLD: Duration = Duration::from_secs(3600);

mod nothing;
mod orders;
mod shown;
mod time;

use shown::state_of;
pub(crate) use shown::{frontier_text, run_status};

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
    /// Recomputes a table and compares.
    Verify {
        name: TableName,
        answer: oneshot::Sender<Result<Verification, EngineError>>,
    },
    /// Gives a table's refreshes, newest first.
    History {
        name: TableName,
        answer: oneshot::Sender<Result<Vec<RunStatus>, EngineError>>,
    },
    /// Removes a table that nothing declares.
    Drop {
        name: TableName,
        answer: oneshot::Sender<Result<(), EngineError>>,
    },
    /// Takes a new plan.
    Replan(Box<Plan>),
}

/// Is the code of a table whose input lost a column that it reads.
const INPUT_COLUMN_LOST: &str = "F0427";

/// Is one dynamic table as the refresher sees it.
#[derive(Debug)]
struct Dynamic {
    planned: Arc<PlannedTable>,
    record: Option<RefreshRecord>,
    /// Is the position the content reflects; moves past epochs that do not change an input.
    data_lsn: Lsn,
    /// Is from where on the content is known without a gap, up to `data_lsn`.
    steady_from: Lsn,
    /// Is the epoch of `data_lsn`.
    epoch: u64,
    not_before: Duration,
    /// Is when the source committed the oldest change that is not reflected, in microseconds since
    /// 1970. Kept, because the snapshot that brought it may be trimmed while a LAG runs.
    unread_since_us: Option<UnixMicros>,
    state: DynamicTableState,
    lag_seconds: f64,
    held_by: Option<TableName>,
    blocked: Option<Blocked>,
    /// Says why the newest refresh failed in passing.
    failure: Option<String>,
}

impl Dynamic {
    fn record(&self) -> RefreshRecord {
        self.record.clone().unwrap_or_else(|| empty_record(&self.planned))
    }

    /// Says that it has a content, and is not only known by a suspension.
    fn refreshed(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.last.is_some())
    }

    fn at_rest(&self) -> bool {
        self.blocked.is_some() || self.suspended()
    }

    /// Says that its content is what its query gives over these inputs, as their snapshots' ids tell.
    fn reflects(&self, inputs: &Inputs) -> bool {
        let same = |record: &RefreshRecord| {
            record.frontier == inputs.frontier && record.query_hash == self.planned.query_hash && record.last.is_some()
        };
        self.record.as_ref().is_some_and(same)
    }

    fn suspended(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.suspended)
    }

    /// Says that it is blocked by what a look at its inputs shows, and freed by a look, too.
    fn may_be_mended(&self) -> bool {
        let by_columns = |blocked: &Blocked| blocked.code == INPUT_COLUMN_LOST;
        self.blocked.as_ref().is_some_and(by_columns) && !self.suspended()
    }
}

/// Says what became of a table in a look at it.
enum Found {
    /// It cannot be refreshed at present; another look helps after a pause.
    Waiting,
    /// It reflects its inputs.
    Fresh,
    /// It does not.
    Changed(Inputs),
}

/// Runs the refreshes.
#[derive(Debug)]
pub(crate) struct Refresher {
    shared: Arc<Shared>,
    tables: Vec<Dynamic>,
    names: BTreeMap<TableName, usize>,
    /// Holds what is kept of tables that are not planned: nothing declares them, or not rightly.
    unplanned: BTreeMap<String, RefreshRecord>,
    groups: Vec<Group>,
    /// Is the place of the group that is looked at first.
    first: usize,
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
            unplanned: BTreeMap::new(),
            groups: Vec::new(),
            first: 0,
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
        let before: BTreeMap<TableName, Dynamic> = std::mem::take(&mut self.tables)
            .into_iter()
            .map(|table| (table.planned.name.clone(), table))
            .collect();
        self.names.clear();
        for planned in plan.tables {
            let record = self.shared.store.refreshes().get(&planned.name.to_string())?;
            let stored = record.as_ref().and_then(|record| record.blocked.clone());
            // A changed query is a new chance.
            let blocked = stored.filter(|b| b.query_hash == planned.query_hash).map(|b| Blocked {
                code: b.code,
                reason: b.reason,
                since: b.since_us,
            });
            let data_lsn = record.as_ref().map_or(Lsn::ZERO, |record| record.data_lsn);
            let mut table = Dynamic {
                data_lsn,
                steady_from: data_lsn,
                epoch: record.as_ref().map_or(0, |record| record.epoch),
                state: state_of(record.as_ref(), blocked.as_ref()),
                planned: Arc::new(planned),
                record,
                not_before: Duration::ZERO,
                unread_since_us: None,
                lag_seconds: 0.0,
                held_by: None,
                blocked,
                failure: None,
            };
            // What was learnt of the same content holds.
            if let Some(before) = before.get(&table.planned.name).filter(|b| b.record == table.record) {
                table.data_lsn = before.data_lsn;
                table.steady_from = before.steady_from;
                table.epoch = before.epoch;
                table.not_before = before.not_before;
                table.unread_since_us = before.unread_since_us;
            }
            if let Some(record) = &table.record {
                self.shared.reads.set(&table.planned.name, [&record.frontier]);
            }
            self.names.insert(table.planned.name.clone(), self.tables.len());
            self.tables.push(table);
        }
        let kept = self.shared.store.refreshes().all()?.into_iter();
        let planned: BTreeSet<String> = self.names.keys().map(ToString::to_string).collect();
        self.unplanned = kept.filter(|(name, _)| !planned.contains(name)).collect();
        for name in self.detached() {
            tracing::info!(
                table = name,
                "detached: nothing declares this dynamic table; its content stays"
            );
        }
        self.group();
        self.note();
        Ok(())
    }

    fn group(&mut self) {
        let captured: BTreeSet<TableName> = self.shared.tables().into_values().map(|record| record.target).collect();
        let tables: Vec<(&TableName, &[TableName])> = self
            .tables
            .iter()
            .map(|table| (&table.planned.name, table.planned.inputs.as_slice()))
            .collect();
        let is_foreign = |name: &TableName| !captured.contains(name) && !self.names.contains_key(name);
        self.groups = groups(&tables, is_foreign);
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

    /// Looks at every group once and starts what is due. Gives the time to the next look.
    ///
    /// The group behind the one that started something last comes first, so that each has its turn where
    /// more are due than can run.
    async fn turn(&mut self) -> Result<Duration, EngineError> {
        let mut pause = TOLD;
        let (first, count) = (self.first, self.groups.len());
        for group in (first..count).chain(0..first.min(count)) {
            let running = self.busy.len();
            pause = pause.min(self.turn_group(group).await?);
            if self.busy.len() > running {
                self.first = group + 1;
            }
        }
        self.note();
        Ok(pause)
    }

    /// Begins a group's round if it is time, and takes it on.
    async fn turn_group(&mut self, group: usize) -> Result<Duration, EngineError> {
        // The second look is for what was committed during the round that the first one ended.
        for _ in 0..2 {
            if self.groups[group].round.is_none() {
                let pause = self.begin_round(group).await?;
                if self.groups[group].round.is_none() {
                    return Ok(pause);
                }
            }
            if self.advance_round(group).await? {
                return Ok(TOLD);
            }
        }
        Ok(RETRY_PAUSE)
    }

    /// Begins a round if a member is due; else gives the time after which to look again.
    async fn begin_round(&mut self, group: usize) -> Result<Duration, EngineError> {
        let mut moment = Moment::now(&self.shared);
        let members = self.groups[group].members.clone();
        let mut wanting = Vec::new();
        let mut pause = TOLD;
        let now = self.shared.clock.monotonic();
        for index in members.iter().copied() {
            let table = &self.tables[index];
            // IMPORTANT: a parent that is being refreshed keeps nobody from reading what it has. Under a steady
            // load it is refreshed without a pause, and who waited for it would wait for ever.
            let at_rest = table.at_rest() && !table.may_be_mended();
            if at_rest || self.busy.contains(&table.planned.name) {
                continue;
            }
            match self.look(index, &mut moment).await? {
                Found::Waiting => pause = pause.min(RETRY_PAUSE),
                Found::Fresh => pause = pause.min(self.due_by_time(index).unwrap_or(TOLD)),
                Found::Changed(inputs) => {
                    let lag = self.lag(index);
                    let by_time = self.due_by_time(index).unwrap_or(TOLD);
                    let table = &mut self.tables[index];
                    let since = table.unread_since_us.get_or_insert(inputs.oldest_unread_us);
                    *since = inputs.oldest_unread_us.min(*since);
                    let waited = Duration::from_micros((self.shared.clock.now_us() - *since).max(0) as u64);
                    table.lag_seconds = waited.as_secs_f64();
                    let due = |lag| match table.refreshed() {
                        true => due_in(lag, waited, last_run(table)),
                        false => Duration::ZERO,
                    };
                    wanting.push(Wanting {
                        pause: table.not_before.saturating_sub(now),
                        due_in: lag.map(|lag| due(lag).min(by_time)),
                        lag: lag.unwrap_or(Duration::MAX),
                    });
                }
            }
        }
        match begins(&wanting) {
            Begins::In(wait) => Ok(pause.min(wait.unwrap_or(TOLD))),
            Begins::Now { lag } => {
                let takes_part =
                    |index: &usize| !self.tables[*index].at_rest() && self.lag(*index).is_some_and(|own| own <= lag);
                let waiting = members.into_iter().filter(takes_part).collect();
                self.groups[group].round = Some(Round { moment, waiting });
                Ok(TOLD)
            }
        }
    }

    /// Starts the members whose turn it is in the group's round, and ends the round after the last.
    /// Says whether it goes on.
    async fn advance_round(&mut self, group: usize) -> Result<bool, EngineError> {
        let Some(mut round) = self.groups[group].round.take() else {
            return Ok(false);
        };
        for index in round.waiting.clone() {
            let table = &self.tables[index];
            // Of a parent outside the group what it has is read, refreshed as it may be just now.
            let to_come = |input: &TableName| {
                let place = self.names.get(input);
                let member = place.filter(|place| self.groups[group].members.contains(place));
                member.is_some_and(|place| self.busy.contains(input) || round.waiting.contains(place))
            };
            if table.planned.inputs.iter().any(to_come) || self.busy.contains(&table.planned.name) {
                continue;
            }
            if table.at_rest() {
                round.waiting.remove(&index);
                continue;
            }
            if self.busy.len() >= POOL {
                break;
            }
            let found = self.look(index, &mut round.moment).await?;
            round.waiting.remove(&index);
            if let Found::Changed(inputs) = found {
                let reason = reason(&self.tables[index], &inputs);
                self.start(index, inputs, reason, None);
            }
        }
        let mut members = self.groups[group].members.iter();
        let running = members.any(|index| self.busy.contains(&self.tables[*index].planned.name));
        let goes_on = running || !round.waiting.is_empty();
        if goes_on {
            self.groups[group].round = Some(round);
        }
        Ok(goes_on)
    }

    /// Finds how a table stands to its inputs at the newest cut up to `moment`, and shows it.
    async fn look(&mut self, index: usize, moment: &mut Moment) -> Result<Found, EngineError> {
        let began = self.shared.clock.monotonic();
        let inputs = match self.inputs(index, moment).await {
            Ok(Sight::Ready(inputs)) => inputs,
            Ok(Sight::NotYet(missing)) => {
                let table = &mut self.tables[index];
                table.held_by = missing;
                if table.blocked.is_none() {
                    table.state = DynamicTableState::Waiting;
                }
                return Ok(Found::Waiting);
            }
            Err(error) => match error.remedy() {
                Remedy::Crash => return Err(error),
                Remedy::Retry | Remedy::Replan => {
                    self.shared.board.error(&error, "inputs of a dynamic table");
                    self.tables[index].failure = Some(crate::board::chain(&error));
                    return Ok(Found::Waiting);
                }
                Remedy::BlockTable | Remedy::Reconfigure | Remedy::Resync => {
                    let blocked = self.tables[index].blocked.as_ref();
                    if blocked.is_none_or(|blocked| blocked.reason != crate::board::chain(&error)) {
                        self.shared.board.error(&error, "inputs of a dynamic table");
                        self.block(index, &error)?;
                    }
                    return Ok(Found::Waiting);
                }
            },
        };
        if self.tables[index].may_be_mended() {
            self.free(index)?;
        }
        self.tables[index].held_by = inputs.held_back_by.clone();
        let due_by_time = self.due_by_time(index).is_some_and(|left| left.is_zero());
        if self.tables[index].reflects(&inputs) && !due_by_time {
            if inputs.data_lsn > self.tables[index].data_lsn {
                self.no_data(index, &inputs, "input unchanged", began)?;
            }
            let table = &mut self.tables[index];
            table.state = DynamicTableState::Fresh;
            table.unread_since_us = None;
            table.lag_seconds = 0.0;
            return Ok(Found::Fresh);
        }
        let table = &mut self.tables[index];
        if table.refreshed() {
            table.state = DynamicTableState::Waiting;
            // IMPORTANT: a table never goes back. A parent that has still to show, after a restart, that
            // nothing changed holds it where it is.
            if inputs.data_lsn < table.data_lsn {
                return Ok(Found::Waiting);
            }
        }
        Ok(Found::Changed(inputs))
    }

    /// Finds the newest common cut of a table's inputs.
    async fn inputs(&self, index: usize, moment: &mut Moment) -> Result<Sight, EngineError> {
        let table = &self.tables[index];
        let parent = |name: &TableName| {
            let table = &self.tables[*self.names.get(name)?];
            Some(Parent {
                refreshed: table.refreshed(),
                steady_from: table.steady_from,
                data_lsn: table.data_lsn,
                epoch: table.epoch,
            })
        };
        let frontier = table.record.as_ref().map(|record| &record.frontier);
        look_at_inputs(&self.shared, &table.planned, frontier, moment, &parent).await
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
            epoch: inputs.epoch,
            at_us: table.planned.time_bound.then(|| {
                let before = table.record.as_ref().and_then(|record| record.at_us);
                // Time does not go back, whatever a clock does.
                inputs.at_us.max(before.unwrap_or(inputs.at_us))
            }),
            commit_time_us: inputs.commit_time_us,
            reason,
            nonce,
        };
        let stored = request.record.as_ref().map(|record| &record.frontier);
        self.shared
            .reads
            .set(&name, stored.into_iter().chain([&request.frontier]));
        self.busy.insert(name.clone());
        let shared = self.shared.clone();
        let work = async move {
            let outcome = refresh(&shared, request).await;
            (name, outcome)
        };
        self.running.spawn_on(work, self.shared.compute.handle());
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
            // Its definition went while it was refreshed.
            match outcome {
                Ok(Refreshed { record, .. }) => {
                    self.shared.reads.set(&name, [&record.frontier]);
                    self.unplanned.insert(name.to_string(), record);
                }
                Err(error) if error.remedy() == Remedy::Crash => return Err(error),
                Err(error) => self.shared.board.error(&error, &format!("refresh of {name}")),
            }
            self.note();
            return Ok(());
        };
        let table = &mut self.tables[index];
        match outcome {
            Ok(refreshed) => {
                let record = refreshed.record;
                self.shared.reads.set(&name, [&record.frontier]);
                table.data_lsn = record.data_lsn;
                table.steady_from = record.data_lsn;
                table.epoch = record.epoch;
                table.not_before = match refreshed.mode {
                    Mode::Full => full_refresh_not_before(now, refreshed.duration),
                    Mode::Incremental => now,
                };
                table.record = Some(record);
                table.blocked = None;
                table.failure = None;
                table.unread_since_us = None;
                table.state = DynamicTableState::Fresh;
            }
            Err(error) => {
                self.shared.counters.refresh_failures.add(1);
                self.shared.board.error(&error, &format!("refresh of {name}"));
                match error.remedy() {
                    Remedy::Crash => return Err(error),
                    Remedy::Retry | Remedy::Replan => {
                        table.not_before = now + RETRY_PAUSE.max(FULL_REFRESH_PAUSE_MIN);
                        table.failure = Some(crate::board::chain(&error));
                    }
                    Remedy::BlockTable | Remedy::Reconfigure | Remedy::Resync => self.block(index, &error)?,
                }
            }
        }
        self.shared.committed.notify_waiters();
        self.note();
        Ok(())
    }

    /// Blocks a dynamic table, durably. Its content and what that reflects stay as they are.
    fn block(&mut self, index: usize, error: &EngineError) -> Result<(), EngineError> {
        let table = &mut self.tables[index];
        let blocked = Blocked {
            code: error.code().unwrap_or("F0014").to_owned(),
            reason: crate::board::chain(error),
            since: self.shared.clock.now_us(),
        };
        let mut record = table.record();
        record.blocked = Some(RefreshBlocked {
            code: blocked.code.clone(),
            reason: blocked.reason.clone(),
            since_us: blocked.since,
            // Only another query, or a command, is a new chance.
            query_hash: table.planned.query_hash.clone(),
        });
        let name = table.planned.name.to_string();
        self.shared.store.refreshes().put(&name, &record)?;
        table.record = Some(record);
        table.state = DynamicTableState::Blocked;
        table.blocked = Some(blocked);
        Ok(())
    }

    /// Frees a table whose inputs have again what it reads.
    fn free(&mut self, index: usize) -> Result<(), EngineError> {
        let table = &mut self.tables[index];
        let mut record = table.record();
        record.blocked = None;
        let name = table.planned.name.to_string();
        self.shared.store.refreshes().put(&name, &record)?;
        tracing::info!(
            table = name,
            "no longer blocked: its inputs have every column that it reads"
        );
        table.record = Some(record);
        table.blocked = None;
        Ok(())
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

fn reason(table: &Dynamic, inputs: &Inputs) -> String {
    match &table.record {
        None => "first refresh".to_owned(),
        Some(record) if record.last.is_none() => "first refresh".to_owned(),
        Some(record) if record.query_hash != table.planned.query_hash => "query changed".to_owned(),
        Some(_) if table.reflects(inputs) => "time passed".to_owned(),
        Some(_) => "input changed".to_owned(),
    }
}
