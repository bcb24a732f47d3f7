//! What is asked of the refresher out of turn: a refresh, a suspension, another plan.

use flow_core::{Remedial, Remedy, TableName};

use flow_core::clock::iso_utc;
use flow_store::RefreshRun;

use super::{Dynamic, Order, Refresher, frontier_text, run_status};
use crate::error::EngineError;
use crate::failpoint;
use crate::inputs::{Moment, Sight};
use crate::publish::retrying;
use crate::refresh_work::is_ours;
use crate::status::{DynamicTableState, RefreshStatus, RunStatus};
use crate::verify::{Verification, verify};

fn undroppable(name: &TableName, why: &str) -> EngineError {
    EngineError::Reconfigure {
        code: "F0024",
        message: format!("{name} cannot be dropped: {why}; nothing was changed"),
    }
}

fn history_entry(run: RefreshRun) -> RunStatus {
    RunStatus {
        frontier: frontier_text(&run.frontier),
        time: run.at_us.map(iso_utc),
        started_at: iso_utc(run.started_us),
        run_id: run.run_id,
        mode: run.mode,
        reason: run.reason,
        runs: run.runs,
        data_lsn: run.data_lsn,
        predicted_ms: run.predicted_ms,
        duration_ms: run.duration_ms,
        rows_changed: run.rows_changed,
        rows_read: run.rows_read,
        rows_inserted: run.rows_inserted,
        rows_deleted: run.rows_deleted,
    }
}

impl Refresher {
    /// Carries an order out and answers it. Who is answered finds it in the status.
    pub(super) async fn order(&mut self, order: Order) -> Result<(), EngineError> {
        match order {
            Order::Refresh { name, full, answer } => {
                let outcome = self.refresh_now(name, full).await;
                self.shared.board.post();
                // The one who asked may have gone; the refresh stands either way.
                let _ = answer.send(outcome);
            }
            Order::Suspend {
                name,
                suspended,
                answer,
            } => {
                let outcome = self.suspend(&name, suspended).await;
                self.shared.board.post();
                let _ = answer.send(outcome);
            }
            Order::Drop { name, answer } => {
                let outcome = self.drop_detached(&name).await;
                self.shared.board.post();
                let _ = answer.send(outcome);
            }
            Order::Verify { name, answer } => {
                let _ = answer.send(self.verify(&name).await);
            }
            Order::History { name, answer } => {
                let _ = answer.send(self.history(&name));
            }
            Order::Replan(plan) => self.take_plan(*plan)?,
        }
        Ok(())
    }

    /// Refreshes one table, or all that are not suspended in plan order, out of turn and at one moment.
    ///
    /// A table that cannot be refreshed does not keep the others from it; it is named at the end.
    async fn refresh_now(
        &mut self,
        name: Option<TableName>,
        full: bool,
    ) -> Result<Vec<(TableName, RefreshStatus)>, EngineError> {
        let suspended = |table: &Dynamic| table.record.as_ref().is_some_and(|record| record.suspended);
        let indexes: Vec<usize> = match &name {
            Some(name) => vec![self.index(name)?],
            None => (0..self.tables.len())
                .filter(|at| !suspended(&self.tables[*at]))
                .collect(),
        };
        while let Some(ended) = self.running.join_next().await {
            self.ended(ended)?;
        }
        let mut moment = Moment::now(&self.shared);
        let (mut done, mut failures) = (Vec::new(), Vec::new());
        for index in indexes {
            let name = self.tables[index].planned.name.clone();
            match self.refresh_one(index, full, &mut moment).await? {
                Ok(run) => done.push((name, run)),
                Err(reason) => failures.push(format!("table {name} cannot be refreshed: {reason}")),
            }
        }
        if failures.is_empty() {
            return Ok(done);
        }
        Err(EngineError::Reconfigure {
            code: "F0014",
            message: failures.join("; "),
        })
    }

    /// Refreshes one table now. Gives its run, or why there was none.
    async fn refresh_one(
        &mut self,
        index: usize,
        full: bool,
        moment: &mut Moment,
    ) -> Result<Result<RefreshStatus, String>, EngineError> {
        let name = self.tables[index].planned.name.clone();
        let began = self.shared.clock.monotonic();
        let inputs = match self.inputs(index, moment).await {
            Ok(Sight::Ready(inputs)) if inputs.data_lsn >= self.tables[index].data_lsn => inputs,
            Ok(Sight::NotYet(Some(missing))) => return Ok(Err(format!("its input {missing} has no content yet"))),
            Ok(_) => return Ok(Err("its inputs have no common cut yet; try again".to_owned())),
            Err(error) if error.remedy() == Remedy::Crash => return Err(error),
            Err(error) => return Ok(Err(crate::board::chain(&error))),
        };
        let table = &self.tables[index];
        if !full && table.blocked.is_none() && !table.planned.time_bound && table.reflects(&inputs) {
            return Ok(Ok(self.no_data(index, &inputs, "requested", began)?));
        }
        let nonce = full.then(|| uuid::Uuid::new_v4().simple().to_string());
        self.tables[index].blocked = None;
        self.tables[index].failure = None;
        self.start(index, inputs, "requested".to_owned(), nonce);
        while self.busy.contains(&name) {
            if let Some(ended) = self.running.join_next().await {
                self.ended(ended)?;
            }
        }
        let table = &self.tables[index];
        if let Some(blocked) = &table.blocked {
            return Ok(Err(format!("{}: {}", blocked.code, blocked.reason)));
        }
        if let Some(failure) = &table.failure {
            return Ok(Err(failure.clone()));
        }
        let last = table.record.as_ref().and_then(|record| record.last.as_ref());
        Ok(last.map(run_status).ok_or_else(|| "it left no run".to_owned()))
    }

    /// Suspends or resumes a table, after a refresh of it that is under way.
    async fn suspend(&mut self, name: &TableName, suspended: bool) -> Result<(), EngineError> {
        let index = self.index(name)?;
        // IMPORTANT: the refresh writes the record it began with.
        while self.busy.contains(name) {
            if let Some(ended) = self.running.join_next().await {
                self.ended(ended)?;
            }
        }
        let table = &mut self.tables[index];
        let mut record = table.record();
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

    /// Removes a table that nothing declares and nothing reads: from the catalog, and all that is kept of
    /// it here. Its files stay.
    ///
    /// IMPORTANT: the catalog first. A crash between the two leaves a detached table without content, and
    /// the command can be given again; the other way round a table would be left that nobody shows.
    async fn drop_detached(&mut self, name: &TableName) -> Result<(), EngineError> {
        self.refuse_drop(name)?;
        while self.busy.contains(name) {
            if let Some(ended) = self.running.join_next().await {
                self.ended(ended)?;
            }
        }
        let found = retrying(&self.shared, "the catalog", || self.shared.lake.load(name)).await?;
        let text = name.to_string();
        let kept = self.shared.store.refreshes().get(&text)?;
        if found.is_none() && kept.is_none() {
            return Err(EngineError::Reconfigure {
                code: "F0015",
                message: format!("no dynamic table is called {name}; nothing was changed"),
            });
        }
        if let Some(table) = found {
            if !is_ours(&self.shared, &table) {
                return Err(undroppable(
                    name,
                    "the catalog's table of this name is not a dynamic table of ours",
                ));
            }
            let dropped = retrying(&self.shared, "the catalog", || self.shared.lake.drop_table(&table)).await?;
            if !dropped {
                return Err(undroppable(
                    name,
                    "another program changed it at the same moment; try again",
                ));
            }
        }
        failpoint::hit("table_dropped");
        self.shared.store.refreshes().remove(&text)?;
        if let Some(stamp) = kept.and_then(|record| record.state) {
            self.shared.store.states().drop_generation(stamp.id)?;
        }
        self.shared.reads.forget(name);
        self.unplanned.remove(&text);
        tracing::info!(table = text, "dropped");
        self.note();
        Ok(())
    }

    /// Refuses to drop what is declared, may be, or is read.
    fn refuse_drop(&self, name: &TableName) -> Result<(), EngineError> {
        if let Some(&index) = self.names.get(name) {
            let file = self.tables[index].planned.definition.file.display();
            let why = format!("{file} declares it: remove that and reload, or restart");
            return Err(undroppable(name, &why));
        }
        let mut problems = self.problems.iter();
        if let Some(problem) = problems.find(|p| p.table.as_ref().is_none_or(|table| table == name)) {
            let why = format!("a definition that cannot be planned declares it, or may: {problem}");
            return Err(undroppable(name, &why));
        }
        let mut readers = self.tables.iter().filter(|table| table.planned.inputs.contains(name));
        match readers.next() {
            Some(reader) => Err(undroppable(name, &format!("{} reads it", reader.planned.name))),
            None => Ok(()),
        }
    }

    /// Compares a table with its recomputation, after a refresh of it that is under way.
    async fn verify(&mut self, name: &TableName) -> Result<Verification, EngineError> {
        let index = self.index(name)?;
        while self.busy.contains(name) {
            if let Some(ended) = self.running.join_next().await {
                self.ended(ended)?;
            }
        }
        let table = &self.tables[index];
        let (shared, planned, record) = (self.shared.clone(), table.planned.clone(), table.record.clone());
        let work = async move { verify(&shared, &planned, record.as_ref()).await };
        let found = self.shared.compute.handle().spawn(work).await;
        found.unwrap_or_else(|error| Err(EngineError::Invariant(format!("a comparison ended: {error}"))))
    }

    /// Gives a table's refreshes, newest first.
    fn history(&self, name: &TableName) -> Result<Vec<RunStatus>, EngineError> {
        let runs = self.shared.store.refreshes().history(&name.to_string())?;
        if runs.is_empty() {
            self.index(name)?;
        }
        Ok(runs.into_iter().rev().map(history_entry).collect())
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
}
