//! A steady load on PostgreSQL and how soon the lake shows it.
//!
//! 1. Arrivals are scheduled at fixed times before the run and never wait for each other (open loop).
//! 2. Each worker owns the keys of its residue class, so arrivals do not queue on row locks.
//! 3. A thread polls the catalog and notes when each published LSN was first seen.
//! 4. A transaction is visible when the catalog's LSN is at or above one read after its COMMIT
//!    returned: an upper bound of its own, so freshness is never understated.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use flow_core::Lsn;
use serde::Serialize;
use tokio_postgres::{Client, NoTls};

use crate::catalog::{CatalogReader, current_snapshot};
use crate::percentile::{Summary, summarise};

/// How often the catalog is looked at; it bounds the error of each measured time.
const POLL: Duration = Duration::from_millis(2);
/// An arrival that starts later than this after its scheduled time counts as missed.
const START_DELAY_MAX: Duration = Duration::from_secs(1);
/// How long the tail may take to arrive before it counts as never visible.
const TAIL_MAX: Duration = Duration::from_secs(60);
const MUTATIONS_EACH: u64 = 10;

/// Says what to load and where to look.
#[derive(Clone, Debug)]
pub struct Options {
    /// Is the connection string of the client.
    pub url: String,
    /// Is the catalog file.
    pub catalog: PathBuf,
    /// Counts transactions a second.
    pub rate: u64,
    /// Is how long the measured load lasts.
    pub measured: Duration,
    /// Is how long the load runs before and, so that the last ones have successors, after it.
    pub margin: Duration,
    /// Counts connections.
    pub workers: u64,
    /// Counts rows in the changed table at the start, with keys from 1.
    pub rows: u64,
    /// Says what the transactions change.
    pub workload: Workload,
    /// Is the dynamic table, as namespace and name, whose data counts as visible; without it, what is published.
    pub watched: Option<(String, String)>,
}

/// Says what the transactions change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// The one table of the other benchmarks, `load`.
    Load,
    /// The tables of the demo, that many packages and deliveries; defect reports come and go.
    Deliveries,
}

/// Is what was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Counts the measured transactions.
    pub transactions: usize,
    /// Counts the changed rows of one transaction.
    pub mutations_each: u64,
    /// Counts transactions a second, as scheduled.
    pub rate: u64,
    /// Counts arrivals that failed or started too late.
    pub missed_arrivals: usize,
    /// Says why the first arrival failed that did.
    pub first_failure: Option<String>,
    /// Counts transactions that never became visible.
    pub never_visible: usize,
    /// Is the time from COMMIT returned to visible in the catalog.
    pub freshness: Summary,
    /// Is the time from an arrival's schedule to its start.
    pub start_delay: Summary,
    /// Is the time from an arrival's start to COMMIT returned.
    pub commit: Summary,
}

struct Arrival {
    scheduled: Instant,
    started: Instant,
    committed: Instant,
    /// Is at or above the end of the transaction.
    lsn: Lsn,
}

/// Is what became of the arrivals that did not commit.
#[derive(Default)]
struct Failures {
    count: usize,
    first: Option<String>,
}

/// Runs the load and reports.
///
/// # Errors
/// When PostgreSQL or the catalog cannot be reached. Failed arrivals are counted, and the first is
/// reported with its reason.
pub async fn run(options: Options) -> Result<Report> {
    let over = Arc::new(AtomicBool::new(false));
    let poller = {
        let (over, options) = (over.clone(), options.clone());
        std::thread::spawn(move || poll(&options, &over))
    };
    let start = Instant::now() + Duration::from_millis(200);
    let next = Arc::new(AtomicU64::new(0));
    let mut workers = Vec::new();
    for number in 0..options.workers {
        let client = connect(&options.url).await?;
        workers.push(tokio::spawn(work(client, options.clone(), number, start, next.clone())));
    }
    let mut arrivals = Vec::new();
    let mut failures = Failures::default();
    for worker in workers {
        let (done, failed) = worker.await.context("a worker panicked")?;
        arrivals.extend(done);
        failures.count += failed.count;
        failures.first = failures.first.or(failed.first);
    }
    wait_for_tail(&options, &arrivals).await?;
    over.store(true, Ordering::Relaxed);
    let sightings = poller.join().ok().context("the poller panicked")??;
    Ok(report(&options, start, arrivals, failures, &sightings))
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.context("cannot connect")?;
    tokio::spawn(connection);
    Ok(client)
}

async fn work(
    client: Client,
    options: Options,
    number: u64,
    start: Instant,
    next: Arc<AtomicU64>,
) -> (Vec<Arrival>, Failures) {
    let whole = options.measured + 2 * options.margin;
    let last = (whole.as_secs_f64() * options.rate as f64) as u64;
    let mut keys = Keys::new(number, options.workers, options.rows);
    let (mut done, mut failed) = (Vec::new(), Failures::default());
    loop {
        let arrival = next.fetch_add(1, Ordering::Relaxed);
        if arrival >= last {
            return (done, failed);
        }
        let scheduled = start + Duration::from_secs_f64(arrival as f64 / options.rate as f64);
        tokio::time::sleep_until(scheduled.into()).await;
        let started = Instant::now();
        let measured = scheduled >= start + options.margin && scheduled < start + options.margin + options.measured;
        match transaction(&client, &keys.statements(options.workload)).await {
            Ok((committed, lsn)) if measured => done.push(Arrival {
                scheduled,
                started,
                committed,
                lsn,
            }),
            Ok(_) => {}
            Err(error) => {
                failed.count += 1;
                failed.first.get_or_insert_with(|| format!("{error:#}"));
                // The session would stay in the failed transaction. If this fails too, so does the
                // next arrival, which is counted.
                let _ = client.batch_execute("ROLLBACK").await;
            }
        }
    }
}

/// Makes one transaction. IMPORTANT: the LSN is asked for after the time is taken, so the question
/// itself does not shorten the measured time.
async fn transaction(client: &Client, statements: &str) -> Result<(Instant, Lsn)> {
    client.batch_execute(statements).await?;
    let committed = Instant::now();
    let row = client.query_one("SELECT pg_current_wal_flush_lsn()::text", &[]).await?;
    Ok((committed, row.get::<_, &str>(0).parse()?))
}

/// Chooses the keys of one worker: seven updates, two inserts, one delete a transaction.
struct Keys {
    number: u64,
    workers: u64,
    rows: u64,
    inserted: u64,
    random: u64,
}

impl Keys {
    fn new(number: u64, workers: u64, rows: u64) -> Self {
        Self {
            number,
            workers,
            rows,
            inserted: 0,
            random: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    /// Is a key of the first rows that this worker owns (xorshift, seeded by the worker's number).
    fn owned(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let owned = self.rows / self.workers;
        self.number + 1 + self.workers * (self.random % owned)
    }

    fn fresh(&mut self) -> u64 {
        self.inserted += 1;
        self.rows + self.inserted * self.workers + self.number + 1
    }

    fn statements(&mut self, workload: Workload) -> String {
        match workload {
            Workload::Load => self.load_statements(),
            Workload::Deliveries => self.delivery_statements(),
        }
    }

    /// Is a key that this worker inserted some transactions ago: it is committed, and nothing else touches it.
    fn gone(&self, each: u64) -> u64 {
        let back = if self.inserted < 2 * each {
            each - 1
        } else {
            2 * each - 1
        };
        self.rows + (self.inserted - back) * self.workers + self.number + 1
    }

    fn delivery_statements(&mut self) -> String {
        let mut sql = String::from("BEGIN;");
        for _ in 0..4 {
            sql += &format!(
                "UPDATE deliveries SET delivered_at = delivered_at + (random() - 0.5) * interval '2 hours' \
                 WHERE package_id = {};",
                self.owned()
            );
        }
        for _ in 0..2 {
            sql += &format!(
                "UPDATE deliveries SET associate_id = 1 + associate_id % 8 WHERE package_id = {};",
                self.owned()
            );
        }
        sql += &format!(
            "UPDATE packages SET weight_kg = 0.1 + weight_kg % 40 WHERE id = {};",
            self.owned()
        );
        for _ in 0..2 {
            let (id, package) = (self.fresh(), self.owned());
            sql += &format!("INSERT INTO defect_reports VALUES ({id}, {package}, 'damaged', now());");
        }
        sql + &format!("DELETE FROM defect_reports WHERE id = {};COMMIT;", self.gone(2))
    }

    fn load_statements(&mut self) -> String {
        let mut sql = String::from("BEGIN;");
        for _ in 0..7 {
            sql += &format!(
                "UPDATE load SET n = n + 1, payload = repeat(md5(random()::text), 8) WHERE id = {};",
                self.owned()
            );
        }
        for _ in 0..2 {
            sql += &format!(
                "INSERT INTO load VALUES ({}, 0, repeat(md5(random()::text), 8), now());",
                self.fresh()
            );
        }
        sql + &format!("DELETE FROM load WHERE id = {};COMMIT;", self.gone(2))
    }
}

/// Notes when each LSN was first seen.
fn poll(options: &Options, over: &AtomicBool) -> Result<Vec<(Instant, Lsn)>> {
    let mut visible = Visible::open(options)?;
    let mut sightings: Vec<(Instant, Lsn)> = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let lsn = visible.lsn()?;
        let seen = Instant::now();
        if sightings.last().is_none_or(|(_, last)| lsn > *last) {
            sightings.push((seen, lsn));
        }
        std::thread::sleep(POLL);
    }
    Ok(sightings)
}

/// Tells up to which LSN the lake shows what is watched.
struct Visible {
    reader: CatalogReader,
    watched: Option<(String, String)>,
    /// Is where the watched table's metadata lay when it was read last, and its LSN.
    last: (String, Lsn),
}

impl Visible {
    fn open(options: &Options) -> Result<Self> {
        Ok(Self {
            reader: CatalogReader::open(&options.catalog)?,
            watched: options.watched.clone(),
            last: (String::new(), Lsn::ZERO),
        })
    }

    fn lsn(&mut self) -> Result<Lsn> {
        let Some((namespace, name)) = &self.watched else {
            return self.reader.published_lsn();
        };
        let location = self.reader.location(namespace, name)?;
        let location = location.with_context(|| format!("no table {namespace}.{name}"))?;
        if location != self.last.0 {
            let snapshot = current_snapshot(&location)?.context("the watched table has no content")?;
            let lsn = snapshot["summary"]["flow.data-lsn"].as_str();
            self.last = (location, lsn.context("the snapshot has no LSN")?.parse()?);
        }
        Ok(self.last.1)
    }
}

async fn wait_for_tail(options: &Options, arrivals: &[Arrival]) -> Result<()> {
    let Some(last) = arrivals.iter().map(|arrival| arrival.lsn).max() else {
        return Ok(());
    };
    let mut visible = Visible::open(options)?;
    let end = Instant::now() + TAIL_MAX;
    while visible.lsn()? < last && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // One more look of the poller, which may be a step behind this one.
    tokio::time::sleep(10 * POLL).await;
    Ok(())
}

fn report(
    options: &Options,
    start: Instant,
    arrivals: Vec<Arrival>,
    failures: Failures,
    sightings: &[(Instant, Lsn)],
) -> Report {
    let visible = |arrival: &Arrival| {
        let at = sightings.partition_point(|(_, lsn)| *lsn < arrival.lsn);
        sightings
            .get(at)
            .map(|(seen, _)| seen.saturating_duration_since(arrival.committed))
    };
    let fresh: Vec<Duration> = arrivals.iter().filter_map(visible).collect();
    let delays: Vec<Duration> = arrivals
        .iter()
        .map(|arrival| arrival.started - arrival.scheduled)
        .collect();
    debug_assert!(arrivals.iter().all(|arrival| arrival.scheduled >= start));
    Report {
        transactions: arrivals.len(),
        mutations_each: MUTATIONS_EACH,
        rate: options.rate,
        missed_arrivals: failures.count + delays.iter().filter(|delay| **delay > START_DELAY_MAX).count(),
        first_failure: failures.first,
        never_visible: arrivals.len() - fresh.len(),
        freshness: summarise(fresh),
        start_delay: summarise(delays),
        commit: summarise(
            arrivals
                .iter()
                .map(|arrival| arrival.committed - arrival.started)
                .collect(),
        ),
    }
}

/// Waits until the catalog shows `lsn`. Gives how long that took from the call.
///
/// # Errors
/// When the catalog cannot be read once it exists, or the time is over.
pub fn await_published(catalog: &std::path::Path, lsn: Lsn, most: Duration) -> Result<Duration> {
    await_catalog(catalog, most, |reader| Ok(reader.published_lsn()? >= lsn))
}

/// Waits until a table's current snapshot holds `rows` rows. Gives how long that took from the call.
///
/// # Errors
/// As [`await_published`].
pub fn await_rows(
    catalog: &std::path::Path,
    namespace: &str,
    name: &str,
    rows: u64,
    most: Duration,
) -> Result<Duration> {
    await_catalog(catalog, most, |reader| {
        Ok(reader.total_records(namespace, name)? == Some(rows))
    })
}

fn await_catalog(
    catalog: &std::path::Path,
    most: Duration,
    reached: impl Fn(&CatalogReader) -> Result<bool>,
) -> Result<Duration> {
    let start = Instant::now();
    let mut reader = None;
    loop {
        if reader.is_none() {
            // The file appears when the service makes it; its tables a moment later.
            reader = CatalogReader::open(catalog)
                .ok()
                .filter(|reader| reader.published_lsn().is_ok());
        }
        if let Some(reader) = &reader
            && reached(reader)?
        {
            return Ok(start.elapsed());
        }
        ensure!(start.elapsed() < most, "not reached after {} s", most.as_secs());
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_never_share_a_key() {
        let mut seen = std::collections::HashMap::new();
        for number in 0..4 {
            let mut keys = Keys::new(number, 4, 100);
            for _ in 0..200 {
                for key in [keys.owned(), keys.fresh()] {
                    assert_eq!(*seen.entry(key).or_insert(number), number);
                }
            }
        }
        assert!(
            seen.keys().filter(|key| **key <= 100).count() > 90,
            "updates reach all rows"
        );
    }

    #[test]
    fn visibility_is_the_first_sighting_at_or_above() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let arrival = |lsn: u64| Arrival {
            scheduled: at(0),
            started: at(1),
            committed: at(10),
            lsn: Lsn(lsn),
        };
        let options = Options {
            url: String::new(),
            catalog: PathBuf::new(),
            rate: 1,
            measured: Duration::ZERO,
            margin: Duration::ZERO,
            workers: 1,
            rows: 1,
            workload: Workload::Load,
            watched: None,
        };
        let sightings = [(at(20), Lsn(100)), (at(30), Lsn(200))];
        let report = report(
            &options,
            start,
            vec![arrival(100), arrival(101), arrival(201)],
            Failures {
                count: 2,
                first: Some("duplicate key".into()),
            },
            &sightings,
        );
        assert_eq!(
            (report.transactions, report.never_visible, report.missed_arrivals),
            (3, 1, 2)
        );
        assert_eq!(report.first_failure.as_deref(), Some("duplicate key"));
        assert_eq!((report.freshness.p50_ms, report.freshness.max_ms), (10.0, 20.0));
    }
}
