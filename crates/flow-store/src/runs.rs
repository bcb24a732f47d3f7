//! Filling a part of a family that nobody reads yet, past the log and the write buffers.
//!
//! 1. Entries gather in memory until they make a run, which goes to a thread of its own and is sorted.
//! 2. While each run begins behind the end of the one before it, as when rows come in the order of
//!    their key, it is appended to a table file, and full files are taken in whole: nothing has to be
//!    merged later.
//! 3. From the first run that does not, all go through the write buffers, which merge them and hold
//!    their writer back when merging cannot keep up.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use rocksdb::{IngestExternalFileOptions, Options, SstFileWriter, WriteBatch};

use crate::database::{Database, Durability};
use crate::error::StoreError;
use crate::layout::Family;
use crate::tuning;

/// Is how many bytes of keys and values make a run.
const RUN_BYTES: usize = 1 << 20;

/// Is how many runs wait for the thread that writes them.
const QUEUE: usize = 2;

/// Is the size in bytes at which a file is taken in.
const FILE_BYTES: u64 = 64 << 20;

/// Is how many bytes of a run go into the write buffers at once.
const BATCH_BYTES: usize = 256 << 10;

/// Numbers the files of this process.
static NEXT_FILE: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u32,
    key: u32,
    value: u32,
}

/// Holds entries in the order in which they were put.
#[derive(Debug, Default)]
struct Run {
    arena: Vec<u8>,
    entries: Vec<Entry>,
}

impl Run {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("a value is far below 4 GiB");
        let start = u32::try_from(self.arena.len()).expect("a run is far below 4 GiB");
        self.entries.push(Entry {
            start,
            key: length(key),
            value: length(value),
        });
        self.arena.extend_from_slice(key);
        self.arena.extend_from_slice(value);
    }

    fn key(&self, entry: &Entry) -> &[u8] {
        &self.arena[entry.start as usize..][..entry.key as usize]
    }

    fn value(&self, entry: &Entry) -> &[u8] {
        &self.arena[(entry.start + entry.key) as usize..][..entry.value as usize]
    }

    /// Sorts by key; of a key that stands twice the later one stays.
    fn sort(&mut self) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_unstable_by(|a, b| self.key(a).cmp(self.key(b)).then(b.start.cmp(&a.start)));
        entries.dedup_by(|later, first| self.key(later) == self.key(first));
        self.entries = entries;
    }
}

enum Message {
    Run(Run),
    /// Says that no run follows, and that what was written counts.
    Finish,
}

/// Gathers entries of one family. A key put twice keeps what was put last.
#[derive(Debug)]
pub(crate) struct Runs {
    run: Run,
    /// Are there until the end.
    writer: Option<(SyncSender<Message>, JoinHandle<Result<(), StoreError>>)>,
}

impl Runs {
    pub(crate) fn new(database: Arc<Database>, family: Family) -> Self {
        let (sender, runs) = sync_channel(QUEUE);
        let writer = std::thread::Builder::new()
            .name("flow-fill".to_owned())
            .spawn(move || write(&database, family, &runs))
            .expect("the system gives a thread");
        Runs {
            run: Run::default(),
            writer: Some((sender, writer)),
        }
    }

    /// Adds an entry.
    ///
    /// # Durability
    /// None before [`Runs::finish`].
    ///
    /// # Errors
    /// Crash if a write failed, this one or an earlier one.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.run.put(key, value);
        if self.run.arena.len() < RUN_BYTES {
            return Ok(());
        }
        let run = std::mem::take(&mut self.run);
        self.send(Message::Run(run))
    }

    fn send(&mut self, message: Message) -> Result<(), StoreError> {
        let sent = match &self.writer {
            Some((sender, _)) => sender.send(message).is_ok(),
            None => return Err(StoreError::Poisoned),
        };
        // The thread takes nothing any more because it failed: it says how.
        if sent { Ok(()) } else { self.join() }
    }

    /// Waits for the thread's end and gives its answer.
    fn join(&mut self) -> Result<(), StoreError> {
        let Some((sender, thread)) = self.writer.take() else {
            return Err(StoreError::Poisoned);
        };
        drop(sender);
        match thread.join() {
            Ok(written) => written,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Writes what is left and makes every entry durable.
    ///
    /// # Errors
    /// Crash if a write failed, this one or an earlier one.
    pub(crate) fn finish(mut self) -> Result<(), StoreError> {
        let run = std::mem::take(&mut self.run);
        self.send(Message::Run(run))?;
        self.send(Message::Finish)?;
        self.join()
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        // What was given up is nobody's; its thread must not outlive the database's owner.
        if self.writer.is_some() {
            let _ = self.join();
        }
    }
}

/// Writes runs until the last one.
fn write(database: &Database, family: Family, messages: &Receiver<Message>) -> Result<(), StoreError> {
    let options = tuning::incoming(family);
    let mut end: Option<Vec<u8>> = None;
    let mut ascending = true;
    let mut file: Option<Incoming<'_>> = None;
    for message in messages {
        let Message::Run(mut run) = message else {
            file.map_or(Ok(()), |file| file.take_in(database, family))?;
            return match ascending {
                true => database.refuse_if_poisoned(),
                false => database.flush(&[family]),
            };
        };
        run.sort();
        let (Some(first), Some(last)) = (run.entries.first(), run.entries.last()) else {
            continue;
        };
        ascending &= end.as_deref().is_none_or(|end| end < run.key(first));
        if !ascending {
            file.take().map_or(Ok(()), |file| file.take_in(database, family))?;
            put_all(database, family, &run)?;
            continue;
        }
        let mut open = match file.take() {
            Some(open) => open,
            None => Incoming::create(database, &options)?,
        };
        open.append(database, &run)?;
        end = Some(run.key(last).to_vec());
        if open.is_full() {
            open.take_in(database, family)?;
        } else {
            file = Some(open);
        }
    }
    // Given up.
    if let Some(file) = file {
        file.abandon();
    }
    Ok(())
}

fn put_all(database: &Database, family: Family, run: &Run) -> Result<(), StoreError> {
    let handle = database.family(family);
    let mut batch = WriteBatch::default();
    for entry in &run.entries {
        batch.put_cf(handle, run.key(entry), run.value(entry));
        if batch.size_in_bytes() >= BATCH_BYTES {
            database.write(std::mem::take(&mut batch), Durability::Unlogged)?;
        }
    }
    database.write(batch, Durability::Unlogged)
}

/// Is a file being written, of ascending keys.
pub(crate) struct Incoming<'a> {
    writer: SstFileWriter<'a>,
    path: PathBuf,
}

/// Is how much of a file is read at once, in bytes.
const WARM_BYTES: usize = 1 << 20;

/// Says what fails, for all that is done to such a file.
const FILL: &str = "fill the state directory";

impl<'a> Incoming<'a> {
    pub(crate) fn create(database: &Database, options: &'a Options) -> Result<Self, StoreError> {
        let number = NEXT_FILE.fetch_add(1, Ordering::Relaxed);
        let path = database.incoming().join(format!("{number}.sst"));
        let writer = SstFileWriter::create(options);
        database.guard(FILL, |_| writer.open(&path))?;
        Ok(Incoming { writer, path })
    }

    /// Sets a value; keys must ascend.
    pub(crate) fn put(&mut self, database: &Database, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        database.guard(FILL, |_| self.writer.put(key, value))
    }

    /// Adds to a sum; keys must ascend.
    pub(crate) fn add(&mut self, database: &Database, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        database.guard(FILL, |_| self.writer.merge(key, value))
    }

    /// Says that the file has its size.
    pub(crate) fn is_full(&self) -> bool {
        self.writer.file_size() >= FILE_BYTES
    }

    /// Gives the file up. What stays behind goes at the next start.
    pub(crate) fn abandon(self) {
        drop(self.writer);
        let _ = std::fs::remove_file(self.path);
    }

    fn append(&mut self, database: &Database, run: &Run) -> Result<(), StoreError> {
        let mut entries = run.entries.iter();
        database.guard(FILL, |_| {
            entries.try_for_each(|entry| self.writer.put(run.key(entry), run.value(entry)))
        })
    }

    /// Ends the file and takes it in. It is synced, and so is its place in the database.
    pub(crate) fn take_in(mut self, database: &Database, family: Family) -> Result<(), StoreError> {
        database.guard(FILL, |_| self.writer.finish())?;
        warm(&self.path)?;
        database.guard(FILL, |db| {
            let mut options = IngestExternalFileOptions::default();
            options.set_move_files(true);
            db.ingest_external_file_cf_opts(database.family(family), &options, vec![&self.path])
        })
    }
}

/// Reads a file once: RocksDB's writer asks the system to forget what it wrote, and the first reads of each
/// block would go to the disk.
fn warm(path: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::Directory {
        action: "read",
        path: path.to_owned(),
        source,
    };
    let mut file = File::open(path).map_err(failed)?;
    let mut buffer = vec![0; WARM_BYTES];
    while file.read(&mut buffer).map_err(failed)? > 0 {}
    Ok(())
}
