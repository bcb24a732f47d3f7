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
    let mut times = Vec::new();
    for n in 0..epochs() as i64 {
        times.push(epoch(&warehouse, &mut tables, n).await);
    }
    let (first, last) = (median(&times[..100]), median(&times[times.len() - 100..]));
    let longest = times.iter().max().expect("epochs");
    println!(
        "{} epochs: first hundred {first:?}, last hundred {last:?}, longest {longest:?}",
        times.len()
    );
    assert!(
        last <= first * 2,
        "the first hundred took {first:?}, the last hundred {last:?}"
    );
}
