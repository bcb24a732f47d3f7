//! Filling a part of a family that nobody reads yet, from entries in any order: an external sort.
//!
//! 1. Entries gather in memory until they make a run, which goes to a thread of its own, is sorted and
//!    written to a file.
//! 2. So many runs of one level are merged into one of the next: few files are open at a time.
//! 3. At the end all runs are merged into table files, which the database takes in whole: nothing has
//!    to be merged later, and readers find every key in one place.
//!
//! An entry sets a value or adds to a weight. What was set or added later comes later in every merge.

mod entry;
mod merge;
mod spill;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use rocksdb::Options;

use self::entry::{Entry, Kind, Run};
use self::merge::merge;
use self::spill::{Spill, SpillWriter};
use crate::database::Database;
use crate::error::StoreError;
use crate::layout::Family;
use crate::record;
use crate::runs::Incoming;
use crate::tuning;

/// Bounds what is held.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Is how many bytes of keys and values make a run.
    run_bytes: usize,
    /// Is how many runs of one level are merged into one: each holds a file open, and a buffer.
    level_runs: usize,
}

/// Is large enough that a state of gigabytes makes few runs, and small beside a refresh's memory, which
/// holds four of them.
const BOUNDS: Bounds = Bounds {
    run_bytes: 8 << 20,
    level_runs: 64,
};

/// Says what the database holds of the keys that are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beneath {
    /// Nothing: sums are whole, and are written as values, which reads need not add up.
    Nothing,
    /// Entries: weights are added to what is there.
    Entries,
}

/// Is how many runs wait for the thread that sorts them.
const QUEUE: usize = 1;

enum Message {
    Run(Run),
    /// Says that no run follows, and that what was written counts.
    Finish(Beneath),
}

/// Gathers entries of one family in any order.
#[derive(Debug)]
pub(crate) struct Sorted {
    run: Run,
    bounds: Bounds,
    /// Are there until the end.
    writer: Option<(SyncSender<Message>, JoinHandle<Result<(), StoreError>>)>,
}

impl Sorted {
    pub(crate) fn new(database: Arc<Database>, family: Family) -> Self {
        Self::within(database, family, BOUNDS)
    }

    fn within(database: Arc<Database>, family: Family, bounds: Bounds) -> Self {
        let (sender, runs) = sync_channel(QUEUE);
        let writer = std::thread::Builder::new()
            .name("flow-sort".to_owned())
            .spawn(move || Sorting::new(&database, family, bounds).run(&runs))
            .expect("the system gives a thread");
        Sorted {
            run: Run::default(),
            bounds,
            writer: Some((sender, writer)),
        }
    }

    /// Sets a key's value.
    ///
    /// # Durability
    /// None before [`Sorted::finish`].
    ///
    /// # Errors
    /// Crash if a write failed, this one or an earlier one.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.push(Kind::Put, key, value)
    }

    /// Adds to a key's weight, whose bytes `value` is.
    ///
    /// # Durability
    /// None before [`Sorted::finish`].
    ///
    /// # Errors
    /// Crash if a write failed, this one or an earlier one.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.push(Kind::Add, key, value)
    }

    fn push(&mut self, kind: Kind, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.run.push(kind, key, value);
        if self.run.bytes() < self.bounds.run_bytes {
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

    /// Merges all that was gathered and makes it durable.
    ///
    /// # Errors
    /// Crash if a write failed, this one or an earlier one.
    pub(crate) fn finish(mut self, beneath: Beneath) -> Result<(), StoreError> {
        let run = std::mem::take(&mut self.run);
        self.send(Message::Run(run))?;
        self.send(Message::Finish(beneath))?;
        self.join()
    }
}

impl Drop for Sorted {
    fn drop(&mut self) {
        // What was given up is nobody's; its thread must not outlive the database's owner.
        if self.writer.is_some() {
            let _ = self.join();
        }
    }
}

/// Is the work of the thread.
struct Sorting<'a> {
    database: &'a Database,
    family: Family,
    options: Options,
    level_runs: usize,
    /// Holds the runs of each level in the order in which they were made; a higher level is older.
    levels: Vec<Vec<Spill>>,
}

impl<'a> Sorting<'a> {
    fn new(database: &'a Database, family: Family, bounds: Bounds) -> Self {
        Sorting {
            database,
            family,
            options: tuning::incoming(family),
            level_runs: bounds.level_runs,
            levels: Vec::new(),
        }
    }

    /// Takes runs until the last one. What is given up before leaves no file behind.
    fn run(mut self, messages: &Receiver<Message>) -> Result<(), StoreError> {
        let mut last = None;
        for message in messages {
            match message {
                Message::Run(run) => {
                    // The last run need not go through a file.
                    if let Some(before) = last.replace(run) {
                        self.spill(before)?;
                    }
                }
                Message::Finish(beneath) => return self.finish(last.unwrap_or_default(), beneath),
            }
        }
        Ok(())
    }

    fn spill(&mut self, mut run: Run) -> Result<(), StoreError> {
        run.sort();
        let mut writer = SpillWriter::create(&self.database.incoming())?;
        merge(self.family, Vec::new(), run, |entry| writer.write(entry))?;
        self.keep(0, writer.finish()?)
    }

    /// Takes a run into a level, and merges the level if that fills it.
    fn keep(&mut self, level: usize, spill: Spill) -> Result<(), StoreError> {
        if self.levels.len() == level {
            self.levels.push(Vec::new());
        }
        self.levels[level].push(spill);
        if self.levels[level].len() < self.level_runs {
            return Ok(());
        }
        let full = std::mem::take(&mut self.levels[level]);
        let mut writer = SpillWriter::create(&self.database.incoming())?;
        merge(self.family, full, Run::default(), |entry| writer.write(entry))?;
        self.keep(level + 1, writer.finish()?)
    }

    fn finish(self, mut last: Run, beneath: Beneath) -> Result<(), StoreError> {
        last.sort();
        let Sorting {
            database,
            family,
            options,
            levels,
            ..
        } = self;
        let mut file: Option<Incoming<'_>> = None;
        let mut sealed = Vec::new();
        let spills = levels.into_iter().rev().flatten().collect();
        let merged = merge(family, spills, last, |Entry { kind, key, value }| {
            let mut open = match file.take() {
                Some(open) => open,
                None => Incoming::create(database, &options)?,
            };
            record::seal_into(&mut sealed, key, |out| out.extend_from_slice(value));
            match kind {
                Kind::Add if beneath == Beneath::Entries => open.add(database, key, &sealed)?,
                Kind::Put | Kind::Add => open.put(database, key, &sealed)?,
            }
            if open.is_full() {
                open.take_in(database, family)
            } else {
                file = Some(open);
                Ok(())
            }
        });
        match (merged, file) {
            (Ok(()), Some(file)) => file.take_in(database, family),
            (Ok(()), None) => database.refuse_if_poisoned(),
            (Err(error), file) => {
                if let Some(file) = file {
                    file.abandon();
                }
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use flow_core::Generation;
    use flow_core::state::{decode_weight, encode_weight};
    use rocksdb::IteratorMode;

    use super::*;
    use crate::layout::state_prefix;
    use crate::tuning::MEMORY_BYTES_MIN;

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    fn stored(database: &Database) -> Model {
        let handle = database.family(Family::State);
        let rows = database.raw().iterator_cf(handle, IteratorMode::Start);
        let open = |(key, value): (Box<[u8]>, Box<[u8]>)| {
            let body = record::open(Family::State, &key, &value).expect("is whole").to_vec();
            (key.to_vec(), body)
        };
        rows.map(|row| open(row.expect("reads"))).collect()
    }

    /// Draws numbers without a random source: SplitMix64.
    fn mix(n: u64) -> u64 {
        let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    #[test]
    fn any_order_over_many_levels_is_the_map() {
        let dir = tempfile::tempdir().expect("a folder");
        let database = Arc::new(Database::open(dir.path(), MEMORY_BYTES_MIN).expect("opens"));
        let bounds = Bounds {
            run_bytes: 300,
            level_runs: 3,
        };
        for generation in 1..4_u32 {
            let mut model = Model::new();
            let mut sorted = Sorted::within(database.clone(), Family::State, bounds);
            for n in 0..3000 * u64::from(generation - 1) {
                let draw = mix(n);
                let mut key = state_prefix(1, Generation(generation)).to_vec();
                let (few, weight) = (draw % 500, (draw >> 20) as i64 % 9 - 4);
                key.extend_from_slice(few.to_be_bytes()[7 - (few % 3) as usize..].as_ref());
                if draw.is_multiple_of(7) && few >= 250 {
                    key.push(b'p');
                    let value = vec![b'v'; (draw >> 40) as usize % 20];
                    sorted.put(&key, &value).expect("taken");
                    model.insert(key, value);
                } else {
                    sorted.add(&key, &encode_weight(weight)).expect("taken");
                    let stands = model.get(&key).and_then(|value| decode_weight(value)).unwrap_or(0);
                    model.insert(key, encode_weight(stands + weight).to_vec());
                }
            }
            sorted.finish(Beneath::Entries).expect("durable");
            let prefix = state_prefix(1, Generation(generation));
            let found: Model = stored(&database)
                .into_iter()
                .filter(|(key, _)| key.starts_with(&prefix))
                .collect();
            assert_eq!(found, model);
            assert_eq!(std::fs::read_dir(database.incoming()).expect("reads").count(), 0);
        }
    }

    #[test]
    fn what_is_given_up_leaves_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let database = Arc::new(Database::open(dir.path(), MEMORY_BYTES_MIN).expect("opens"));
        let bounds = Bounds {
            run_bytes: 30,
            level_runs: 3,
        };
        let mut sorted = Sorted::within(database.clone(), Family::State, bounds);
        (0..100_u64).for_each(|n| sorted.put(&mix(n).to_be_bytes(), b"value").expect("taken"));
        drop(sorted);
        assert_eq!(stored(&database), Model::new());
        assert_eq!(std::fs::read_dir(database.incoming()).expect("reads").count(), 0);
    }
}
