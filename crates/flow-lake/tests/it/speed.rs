//! Commits do not slow down as history grows.

use std::sync::Arc;
use std::time::Duration;

use flow_lake::Table;

use crate::fixture::{Warehouse, commit, reload, seal, small_batch, small_table};

/// Counts the epochs; `FLOW_LAKE_EPOCHS=10000` runs the long lane.
fn epochs() -> usize {
    std::env::var("FLOW_LAKE_EPOCHS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1000)
}

/// Is the processor time of this process so far. Other programs on the machine do not count in it.
fn processor_time() -> Duration {
    const TICKS_PER_SECOND: u64 = 100;
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let after_name = stat.rsplit(')').next().expect("fields");
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|f| f.parse::<u64>().expect("a number")).sum();
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[times.len() / 2]
}

/// Is one epoch of two tables: a 100-row data file and a 2-row delete file each.
async fn epoch(warehouse: &Warehouse, tables: &mut [Table; 2], n: i64) -> Duration {
    let lake = &warehouse.lake;
    let id = format!("op-{n}");
    let rows = [small_batch(n * 100..n * 100 + 100)];
    let deletes = |table: &Table| {
        let file: Arc<str> = format!("{}/data/op-{}-1-0.parquet", table.location(), n - 1).into();
        let positions = if n > 0 { vec![5, 50] } else { Vec::new() };
        positions.into_iter().map(|position| (file.clone(), position)).collect()
    };
    let begun = tokio::time::Instant::now();
    let (a, b) = tokio::join!(
        seal(lake, &tables[0], &id, &rows, deletes(&tables[0])),
        seal(lake, &tables[1], &id, &rows, deletes(&tables[1])),
    );
    commit(lake, &id, &[a, b]).await;
    *tables = [reload(lake, &tables[0]).await, reload(lake, &tables[1]).await];
    begun.elapsed()
}

#[tokio::test]
async fn commit_time_stays_flat() {
    let warehouse = Warehouse::new();
    let mut tables = [
        small_table(&warehouse.lake, "a").await,
        small_table(&warehouse.lake, "b").await,
    ];
    let count = epochs().max(200);
    let mut times = Vec::new();
    let mut processor = Vec::new();
    for n in 0..count {
        if [0, 100, count - 100].contains(&n) {
            processor.push(processor_time());
        }
        times.push(epoch(&warehouse, &mut tables, n as i64).await);
    }
    processor.push(processor_time());
    let (first, last) = (median(&times[..100]), median(&times[count - 100..]));
    let used = |from: usize, to: usize| (processor[to] - processor[from]) / 100;
    let (first_used, last_used) = (used(0, 1), used(processor.len() - 2, processor.len() - 1));
    let longest = times.iter().max().expect("epochs");
    println!("{count} epochs of two tables: first hundred {first:?} ({first_used:?} of processor time)");
    println!("last hundred {last:?} ({last_used:?} of processor time), longest {longest:?}");
    // A machine that is busy with other things makes wall times jump; the processor time tells
    // whether our own work has grown.
    let grown = last > first * 2 && last_used > first_used * 2;
    assert!(!grown, "the first hundred took {first:?}, the last hundred {last:?}");
}
