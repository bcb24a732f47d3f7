//! The service: opens everything, recovers, starts the loops, and ends them in order.
//!
//! 1. [`Engine::open`] opens store and lake and refuses a state directory of another source.
//! 2. [`Engine::init`] gives every table its first content.
//! 3. [`Engine::run`] recovers open operations, then runs capture, publishing and refreshing until
//!    it is told to stop or one of them cannot go on.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flow_core::clock::Clock;
use flow_core::{Lsn, Remedy, TableName};
use flow_lake::Lake;
use flow_source::CaptureTable;
use flow_store::{Kind, StateId, Store, StoreOptions};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::adapters::{lake_options, source_options};
use crate::board::Board;
use crate::compute::Compute;
use crate::continuity::{continue_source, reconfigure};
use crate::counters::Counters;
use crate::error::EngineError;
use crate::handle::{Answer, COMMAND_QUEUE, Command, EngineHandle, Reply};
use crate::heartbeat::heartbeat;
use crate::options::EngineOptions;
use crate::plans::plan;
use crate::publisher::Publisher;
use crate::refresher::{Order, Refresher};
use crate::shared::Shared;
use crate::status::{ServiceState, Status};
use crate::wanted;
use crate::{capture, copy, failpoint, init, refresh_work};

/// Is how often the main loop turns: status, disk and liveness are at most this old.
const TICK: Duration = Duration::from_millis(500);

/// Is the part of the memory budget that the store's caches and buffers take.
const STORE_SHARE: usize = 4;

/// Is the service.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    commands: mpsc::Receiver<(Command, Answer)>,
    beat_ms: Arc<AtomicU64>,
}

impl Engine {
    /// Opens store and lake. Nothing is sent to PostgreSQL.
    ///
    /// # Errors
    /// Retry if another process holds `state_dir`; Reconfigure if it belongs to another source or
    /// slot; Crash if what is stored is broken.
    pub async fn open(options: EngineOptions, clock: Arc<dyn Clock>) -> Result<(Engine, EngineHandle), EngineError> {
        failpoint::arm(&options.state_dir);
        let memory_bytes = options.limits.memory_bytes / STORE_SHARE;
        let opened = {
            let (dir, lake, clock) = (options.state_dir.clone(), lake_options(&options), clock.clone());
            tokio::task::spawn_blocking(move || {
                let store = Store::open(StoreOptions { dir, memory_bytes })?;
                Ok::<_, EngineError>((store, Lake::open(lake, clock)?))
            })
            .await
        };
        let (store, lake) = opened.unwrap_or_else(|error| Err(EngineError::Invariant(error.to_string())))?;
        let source_id = options
            .source_id
            .clone()
            .unwrap_or_else(|| options.connection.dbname.clone());
        if let Some(identity) = store.identity()? {
            let wanted = flow_store::Identity {
                source_id: source_id.clone(),
                slot: options.slot.clone(),
                database: options.connection.dbname.clone(),
                ..identity.clone()
            };
            identity.require(&wanted)?;
        }
        let counters = Arc::new(Counters::default());
        let http = Arc::new(std::sync::OnceLock::new());
        let board = Board::new(clock.clone(), http.clone());
        {
            let mut notices = board.write();
            notices.source_id = source_id.clone();
            notices.slot = options.slot.clone();
            notices.positions.journaled.raise(store.journal().position());
        }
        let (commands, receiver) = mpsc::channel(COMMAND_QUEUE);
        let beat_ms = Arc::new(AtomicU64::new(0));
        let handle = EngineHandle {
            commands,
            status: board.watch(),
            counters: counters.clone(),
            beat_ms: beat_ms.clone(),
            http,
            clock: clock.clone(),
        };
        let compute = Compute::start()?;
        let shared = Arc::new(Shared::new(
            options, clock, store, lake, counters, board, compute, source_id,
        ));
        let mut states = BTreeSet::new();
        for (name, record) in shared.store.refreshes().all()? {
            shared.reads.set(&name, [&record.frontier]);
            states.extend(record.state.map(|stamp| stamp.id));
        }
        // What an interrupted build or a table that is gone left.
        drop_other_states(&shared, &states)?;
        for record in shared.store.tables().all()? {
            shared.show_table(&record);
            shared.note_table(record);
        }
        let engine = Engine {
            shared,
            commands: receiver,
            beat_ms,
        };
        engine.beat();
        engine.shared.board.post();
        Ok((engine, handle))
    }

    /// Is the lake that is published to. Whoever clones it keeps the catalog file open.
    pub fn lake(&self) -> &Lake {
        &self.shared.lake
    }

    fn beat(&self) {
        let now = self.shared.clock.monotonic();
        self.beat_ms
            .store(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Gives every configured table its first content; resumes an interrupted init. Does nothing if
    /// all have theirs.
    ///
    /// # Errors
    /// Reconfigure with every problem of the source; Resync if an earlier state was lost.
    pub async fn init(&mut self, create_publication: bool) -> Result<(), EngineError> {
        let shared = self.shared.clone();
        // How full the disks are is known before anything is written.
        self.tick()?;
        crate::block::mark_all(&self.shared).await?;
        // What init has done stays done, so a lost connection costs another try and no more.
        let work = crate::publish::retrying(&shared, "PostgreSQL", || init::init(&shared, create_publication));
        tokio::pin!(work);
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                outcome = &mut work => {
                    self.tick()?;
                    return outcome;
                }
                _ = tick.tick() => self.tick()?,
            }
        }
    }

    /// Runs the service until `shutdown`, or until something cannot go on.
    ///
    /// # Errors
    /// What stopped it; its remedy is the exit code.
    pub async fn run(&mut self, shutdown: CancellationToken) -> Result<(), EngineError> {
        self.shared.board.write().state = ServiceState::Recovering;
        self.shared.board.post();
        let cancel = shutdown.child_token();
        // A service runs once; where it did before, it has ended.
        let _ = self.shared.ending.set(cancel.clone());
        // How full the disks are is known before anything is written.
        self.tick()?;
        let Some((tables, publisher, refresher)) = self.start(&shutdown).await? else {
            return self.stopped();
        };
        let options = self.shared.options();
        let identity = self.shared.store.identity()?;
        let source = source_options(&options, identity.map(|identity| identity.system_identifier));
        let (orders, order_queue) = mpsc::channel(COMMAND_QUEUE);
        let mut parts: JoinSet<(&'static str, Result<(), EngineError>)> = JoinSet::new();
        {
            let (shared, cancel) = (self.shared.clone(), cancel.clone());
            parts.spawn(async move { ("capture", capture::run(shared, source.clone(), tables, cancel).await) });
        }
        {
            let cancel = cancel.clone();
            parts.spawn(async move { ("publishing", publisher.run(cancel).await) });
        }
        {
            let cancel = cancel.clone();
            parts.spawn(async move { ("refreshing", refresher.run(order_queue, cancel).await) });
        }
        {
            let (shared, cancel) = (self.shared.clone(), cancel.clone());
            parts.spawn(async move { ("the heartbeat", heartbeat(&shared, cancel).await) });
        }
        self.shared.board.write().state = ServiceState::Streaming;
        let outcome = self.turn(&mut parts, &orders, &shutdown).await;
        self.shared.board.write().state = ServiceState::Stopping;
        self.shared.board.post();
        cancel.cancel();
        let mut first = outcome;
        while let Some(ended) = parts.join_next().await {
            match (&first, ended) {
                // It waited for something, and was told to end.
                (_, Ok((_, Err(EngineError::Stopped)))) => {}
                (Ok(()), Ok((_, Err(error)))) => first = Err(error),
                _ => {}
            }
        }
        self.stopped().and(first)
    }

    /// Leaves everything durable and says so.
    fn stopped(&self) -> Result<(), EngineError> {
        self.shared.store.sync()?;
        self.shared.board.write().state = ServiceState::Stopped;
        self.write_status_file(&self.shared.board.post());
        Ok(())
    }

    /// Checks and recovers what must be whole before anything runs, and turns the main loop
    /// meanwhile: an absent server may take a while. `None` if told to stop first.
    async fn start(
        &mut self,
        shutdown: &CancellationToken,
    ) -> Result<Option<(Vec<CaptureTable>, Publisher, Refresher)>, EngineError> {
        let shared = self.shared.clone();
        let starting = async {
            let tables = continue_source(&shared, shutdown).await?;
            let publisher = recover(&shared).await?;
            let refresher = Refresher::new(&shared, plan(&shared).await?)?;
            Ok((tables, publisher, refresher))
        };
        tokio::pin!(starting);
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                outcome = &mut starting => return match outcome {
                    Err(EngineError::Stopped) if shutdown.is_cancelled() => Ok(None),
                    outcome => outcome.map(Some),
                },
                _ = tick.tick() => self.tick()?,
                Some((_, answer)) = self.commands.recv() => {
                    let message = "the service is starting; try again when `status` says streaming";
                    // The one who asked may have gone.
                    let _ = answer.send(Err(reconfigure("F0021", message)));
                }
            }
        }
    }

    /// Turns the main loop until shutdown or until a part ends.
    async fn turn(
        &mut self,
        parts: &mut JoinSet<(&'static str, Result<(), EngineError>)>,
        orders: &mpsc::Sender<Order>,
        shutdown: &CancellationToken,
    ) -> Result<(), EngineError> {
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                _ = tick.tick() => self.tick()?,
                Some((command, answer)) = self.commands.recv() => {
                    let (shared, orders) = (self.shared.clone(), orders.clone());
                    tokio::spawn(async move {
                        // The one who asked may have gone.
                        let _ = answer.send(execute(&shared, &orders, command).await);
                    });
                }
                Some(ended) = parts.join_next() => {
                    let (part, outcome) = ended.map_err(|error| EngineError::Invariant(error.to_string()))?;
                    if shutdown.is_cancelled() {
                        return outcome;
                    }
                    return outcome.and(Err(EngineError::Invariant(format!("{part} ended by itself"))));
                }
                () = shutdown.cancelled() => return Ok(()),
            }
        }
    }

    /// Runs one command on a stopped service.
    ///
    /// # Errors
    /// What the command met.
    pub async fn execute(&mut self, command: Command) -> Result<Reply, EngineError> {
        recover(&self.shared).await?;
        let plan = plan(&self.shared).await?;
        let refresher = Refresher::new(&self.shared, plan)?;
        let (orders, queue) = mpsc::channel(COMMAND_QUEUE);
        let cancel = CancellationToken::new();
        let running = tokio::spawn(refresher.run_orders(queue, cancel.clone()));
        let outcome = execute(&self.shared, &orders, command).await;
        cancel.cancel();
        running
            .await
            .map_err(|error| EngineError::Invariant(error.to_string()))??;
        self.shared.store.sync()?;
        outcome
    }

    fn tick(&mut self) -> Result<(), EngineError> {
        self.beat();
        let shared = &self.shared;
        let (local, lake) = free_bytes(shared)?;
        let floor = shared.options().limits.min_free_bytes;
        // Resuming a little above the floor keeps the parts from stopping and starting by turns.
        let limit = if shared.disk_is_low() {
            floor + floor / 10
        } else {
            floor
        };
        let free = local.min(lake);
        if free < limit && !shared.disk_is_low() {
            let what = if lake < limit {
                "capture, copies and publishing"
            } else {
                "capture"
            };
            tracing::warn!(
                code = "F0018",
                free_bytes = free,
                min_free_bytes = floor,
                "{what} paused: the disk is nearly full"
            );
        }
        // Publishing makes room in the journal, so it waits for the lake's disks alone.
        shared.set_disk_low(free < limit, lake < limit);
        shared.board.write().storage.free_bytes = free;
        let status = shared.board.post();
        self.write_status_file(&status);
        Ok(())
    }

    /// Keeps the last status for `status` on a stopped service. A lost one costs a stale answer only.
    fn write_status_file(&self, status: &Status) {
        let dir = &self.shared.options().state_dir;
        let (temporary, path) = (dir.join("status.json.tmp"), dir.join("status.json"));
        let written = serde_json::to_vec(status)
            .map_err(std::io::Error::other)
            .and_then(|bytes| std::fs::write(&temporary, bytes))
            .and_then(|()| std::fs::rename(&temporary, &path));
        if let Err(error) = written {
            tracing::warn!(%error, "the status file could not be written");
        }
    }
}

/// Drops every state of dynamic tables that no record names.
fn drop_other_states(shared: &Shared, named: &BTreeSet<StateId>) -> Result<(), EngineError> {
    match shared.store.states().drop_others(named) {
        // Met again by the refresh that reads it, which builds it anew.
        Err(error) if error.remedy == Remedy::Replan => {
            tracing::warn!("state of a dynamic table is damaged: {}", crate::board::chain(&error));
        }
        dropped => drop(dropped?),
    }
    Ok(())
}

/// Counts free bytes for `state_dir`, and for the fuller of warehouse and catalog.
fn free_bytes(shared: &Shared) -> Result<(u64, u64), EngineError> {
    let catalog = shared.lake.catalog_path();
    let folder = catalog.parent().filter(|folder| !folder.as_os_str().is_empty());
    let warehouse = flow_store::free_bytes(shared.lake.warehouse())?;
    let catalog = flow_store::free_bytes(folder.unwrap_or(Path::new(".")))?;
    Ok((shared.store.free_bytes()?, warehouse.min(catalog)))
}

/// Carries out a command of a running service.
async fn execute(shared: &Arc<Shared>, orders: &mpsc::Sender<Order>, command: Command) -> Result<Reply, EngineError> {
    match command {
        Command::Apply => refresh(orders, None, false).await,
        Command::Refresh { name, full } => refresh(orders, Some(name), full).await,
        Command::Suspend { name } => suspend(orders, name, true).await,
        Command::Resume { name } => suspend(orders, name, false).await,
        Command::Drop { name } => {
            let dropped = ask(orders, |answer| Order::Drop { name, answer }).await;
            dropped.map(|()| Reply::Done)
        }
        Command::Verify { name } => {
            let verified = ask(orders, |answer| Order::Verify { name, answer }).await?;
            Ok(Reply::Verified(Box::new(verified)))
        }
        Command::History { name } => {
            let runs = ask(orders, |answer| Order::History { name, answer }).await?;
            Ok(Reply::History(runs))
        }
        Command::Reload(options) => {
            let wanted = wanted::resolve(&options).await?;
            let comparison = wanted::compare(&wanted, &shared.store.tables().all()?)?;
            if !comparison.missing.is_empty() {
                return Err(reconfigure(
                    "F0017",
                    "new tables need a first copy: restart with `run --init`",
                ));
            }
            comparison.warn_of_unwanted();
            shared.set_options(*options);
            let plan = plan(shared).await?;
            orders
                .send(Order::Replan(Box::new(plan)))
                .await
                .map_err(|_| EngineError::Stopped)?;
            shared.committed.notify_waiters();
            Ok(Reply::Done)
        }
    }
}

/// Gives the refresher an order and waits for the answer.
async fn ask<T>(
    orders: &mpsc::Sender<Order>,
    order: impl FnOnce(oneshot::Sender<Result<T, EngineError>>) -> Order,
) -> Result<T, EngineError> {
    let (answer, reply) = oneshot::channel();
    orders.send(order(answer)).await.map_err(|_| EngineError::Stopped)?;
    reply.await.map_err(|_| EngineError::Stopped)?
}

async fn refresh(orders: &mpsc::Sender<Order>, name: Option<TableName>, full: bool) -> Result<Reply, EngineError> {
    let refreshed = ask(orders, |answer| Order::Refresh { name, full, answer }).await?;
    Ok(Reply::Refreshed(refreshed))
}

async fn suspend(orders: &mpsc::Sender<Order>, name: TableName, suspended: bool) -> Result<Reply, EngineError> {
    let order = |answer| Order::Suspend {
        name,
        suspended,
        answer,
    };
    ask(orders, order).await.map(|()| Reply::Done)
}

/// Finishes every operation that an earlier run left open, in the order they began.
async fn recover(shared: &Arc<Shared>) -> Result<Publisher, EngineError> {
    crate::block::mark_all(shared).await?;
    copy::recover(shared).await?;
    capture::drop_unfinished(&shared.store)?;
    let position = shared.store.facts().ledger()?;
    let uid = shared
        .store
        .identity()?
        .map(|identity| identity.source_uid)
        .unwrap_or_default();
    note_backlog(shared, position.published_lsn)?;
    let mut publisher = Publisher::new(shared, position, uid);
    for operation in shared.store.operations().open_operations()? {
        tracing::info!(operation = %operation.id(), "continuing an operation that an earlier run left open");
        match operation.kind() {
            Kind::Epoch { .. } => publisher.resume(operation).await?,
            Kind::Refresh { .. } => refresh_work::recover(shared, operation).await?,
            Kind::Copy { .. } => return Err(EngineError::Invariant("a copy was recovered and is open".to_owned())),
        }
    }
    note_backlog(shared, shared.store.facts().ledger()?.published_lsn)?;
    Ok(publisher)
}

/// Counts what waits in the journal, once, at the start.
fn note_backlog(shared: &Shared, published: Lsn) -> Result<(), EngineError> {
    let journal = shared.store.journal();
    let (mut rows, mut bytes, mut oldest) = (0, 0, None);
    for meta in journal.transactions(published, journal.position()) {
        let meta = meta?;
        rows += meta.changes;
        bytes += meta.bytes;
        if meta.changes > 0 {
            oldest.get_or_insert(meta.commit_time);
        }
    }
    let now = shared.clock.monotonic();
    let look = shared.backlog.look(now);
    shared
        .backlog
        .admitted(look.waiting.rows, look.waiting.bytes, None, now);
    shared.backlog.journaled(rows, bytes, oldest, now);
    Ok(())
}
