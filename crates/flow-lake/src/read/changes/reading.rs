//! Reading the rows of tasks, on blocking threads, into batches worth handing on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::RecordBatch;
use flow_core::changes::ChangeBatch;
use futures::Stream;

use super::cancel::{Batches, Canceller};
use super::tasks::{Part, Task};
use crate::blocking;
use crate::error::LakeError;
use crate::lake::Shared;
use crate::read::channel::{self, Sender};
use crate::read::native;
use crate::read::rows::RowReader;

/// Counts the rows that are gathered from small batches: a few deleted rows of each of many files
/// would cost more to hand on than to read.
const GATHERED_ROWS: usize = 8192;

/// Bounds what is gathered, in bytes.
const GATHERED_BYTES: usize = 16 << 20;

/// Is what the readers of one change read share.
struct Reading {
    shared: Arc<Shared>,
    rows: RowReader,
    tasks: Vec<Task>,
    next_task: AtomicUsize,
}

/// Plans the tasks and begins to read them.
pub(super) async fn start(
    shared: Arc<Shared>,
    rows: RowReader,
    tasks: impl FnOnce() -> Result<Vec<Task>, LakeError> + Send + 'static,
) -> Result<impl Stream<Item = Result<ChangeBatch, LakeError>> + Send + 'static, LakeError> {
    let tasks = blocking::run(tasks).await?;
    let reading = Arc::new(Reading {
        shared,
        rows,
        tasks,
        next_task: AtomicUsize::new(0),
    });
    let (senders, stream) = channel::channel(native::readers(reading.tasks.len()));
    for sender in senders {
        let reading = reading.clone();
        tokio::task::spawn_blocking(move || {
            let mut gathered = Gathered::new(&sender);
            let result = reading.run(&mut gathered);
            sender.finish(result);
        });
    }
    Ok(stream)
}

impl Reading {
    /// Does tasks until none is left, or nobody listens.
    fn run(&self, out: &mut Gathered<'_>) -> Result<(), LakeError> {
        loop {
            let index = self.next_task.fetch_add(1, Ordering::Relaxed);
            let listening = match self.tasks.get(index) {
                None => return out.flush().map(drop),
                Some(Task::Rows(part, weight)) => self.read_part(part, *weight, out)?,
                Some(Task::Rewrite { added, removed }) => self.read_rewrite(added, removed, out)?,
            };
            if !listening {
                return Ok(());
            }
        }
    }

    fn read_part(&self, part: &Part, weight: i64, out: &mut Gathered<'_>) -> Result<bool, LakeError> {
        for batch in self.batches(part) {
            if !out.push(batch?, weight)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn read_rewrite(&self, added: &[Part], removed: &[Part], out: &mut Gathered<'_>) -> Result<bool, LakeError> {
        let Some(canceller) = Canceller::new(self.rows.schema()) else {
            // Weights of equal rows add up, so what cannot be compared here is told.
            let parts = added.iter().map(|part| (part, 1));
            for (part, weight) in parts.chain(removed.iter().map(|part| (part, -1))) {
                if !self.read_part(part, weight, out)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        };
        let mut error = None;
        let listening = canceller.run(&|| self.all(removed), &|| self.all(added), &mut |batch, weight| {
            out.push(batch, weight).unwrap_or_else(|failed| {
                error = Some(failed);
                false
            })
        })?;
        match error {
            Some(error) => Err(error),
            None => Ok(listening),
        }
    }

    fn all<'a>(&'a self, parts: &'a [Part]) -> Batches<'a> {
        Box::new(parts.iter().flat_map(|part| self.batches(part)))
    }

    /// Reads a part's rows, and counts them.
    fn batches<'a>(&'a self, part: &'a Part) -> Batches<'a> {
        let counter = &self.shared.change_rows_read;
        match self.rows.open(&part.file, part.wanted()) {
            Err(error) => Box::new(std::iter::once(Err(error))),
            Ok(rows) => Box::new(rows.inspect(move |batch| {
                let rows = batch.as_ref().map_or(0, RecordBatch::num_rows);
                counter.fetch_add(rows as u64, Ordering::Relaxed);
            })),
        }
    }
}

/// Puts small batches together.
struct Gathered<'a> {
    sender: &'a Sender<ChangeBatch>,
    batches: Vec<RecordBatch>,
    weights: Vec<i64>,
    bytes: usize,
}

impl<'a> Gathered<'a> {
    fn new(sender: &'a Sender<ChangeBatch>) -> Self {
        Gathered {
            sender,
            batches: Vec::new(),
            weights: Vec::new(),
            bytes: 0,
        }
    }

    /// Takes a batch; `false` if nobody listens any more.
    fn push(&mut self, batch: RecordBatch, weight: i64) -> Result<bool, LakeError> {
        if batch.num_rows() == 0 {
            return Ok(true);
        }
        self.bytes += batch.get_array_memory_size();
        self.weights.resize(self.weights.len() + batch.num_rows(), weight);
        self.batches.push(batch);
        if self.weights.len() >= GATHERED_ROWS || self.bytes >= GATHERED_BYTES {
            return self.flush();
        }
        Ok(true)
    }

    fn flush(&mut self) -> Result<bool, LakeError> {
        let batches = std::mem::take(&mut self.batches);
        let weights = std::mem::take(&mut self.weights);
        self.bytes = 0;
        let Some(first) = batches.first() else {
            return Ok(true);
        };
        let rows = match batches.len() {
            1 => first.clone(),
            _ => arrow_select::concat::concat_batches(first.schema_ref(), &batches)
                .map_err(LakeError::arrow("gather rows", "a table"))?,
        };
        Ok(self.sender.send(ChangeBatch { rows, weights }))
    }
}
