//! Random histories of a table, each interval compared with two full scans.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use flow_core::TableName;
use flow_core::lake::{LocatedBatch, SnapshotReader};
use flow_lake::{Lake, Table};
use futures::TryStreamExt;
use iceberg::spec::Operation;

use super::{Multiset, change, count, loose_deletes, loose_file, now, scanned, told};
use crate::fixture::{Draw, Warehouse, property_budget, small_table};
use crate::forge::Forged;

/// Is a live row: its file, its place there and its id.
type Live = (Arc<str>, u64, i64);

async fn live(lake: &Lake, table: &Table) -> Vec<Live> {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    let Some(snapshot) = now(table) else { return Vec::new() };
    let stream = lake.scan_located(table.name(), snapshot).await.expect("scans");
    let batches: Vec<LocatedBatch> = stream.try_collect().await.expect("reads");
    let mut out: Vec<Live> = Vec::new();
    for located in batches {
        let ids = located.batch.column(0).as_primitive::<Int64Type>();
        let places = located.positions.iter().zip(ids.values());
        out.extend(places.map(|(at, id)| (located.file.clone(), *at, *id)));
    }
    out.sort();
    out
}

/// Draws some live rows to delete.
fn some(draw: &mut Draw, live: &[Live], of: usize) -> Vec<(Arc<str>, u64)> {
    let chosen = live.iter().filter(|_| draw.below(of) == 0);
    chosen.map(|(file, at, _)| (file.clone(), *at)).collect()
}

/// Makes one random commit; `foreign` says whether other programs write too.
async fn random_commit(lake: &Lake, table: &Table, draw: &mut Draw, n: usize, foreign: bool) -> Table {
    let id = format!("op-{n}");
    let live = live(lake, table).await;
    // Few different rows, so that equal ones are frequent.
    let ids: Vec<i64> = (0..draw.below(12)).map(|_| draw.below(30) as i64).collect();
    let kind = draw.below(if foreign { 8 } else { 4 });
    if kind < 4 || live.is_empty() {
        let deletes = if kind == 0 { Vec::new() } else { some(draw, &live, 4) };
        let ids = if ids.is_empty() && deletes.is_empty() {
            vec![1]
        } else {
            ids
        };
        return change(lake, table, &id, &ids, deletes).await;
    }
    if kind == 4 {
        // Deletes that meet what was deleted already.
        let mut deletes: Vec<_> = some(draw, &live, 3);
        deletes.extend((0..2).map(|at| (live[0].0.clone(), at)));
        deletes.sort();
        deletes.dedup();
        let file = loose_deletes(lake, table, &id, deletes).await;
        return Forged::new(Operation::Delete).add([file]).commit(lake, table).await;
    }
    // One or two files are rewritten, by a compaction or with another content.
    let files: BTreeSet<Arc<str>> = live.iter().map(|(file, ..)| file.clone()).collect();
    let files: Vec<_> = files.into_iter().filter(|_| draw.below(2) == 0).take(2).collect();
    let mut rows: Vec<i64> = live
        .iter()
        .filter(|row| files.contains(&row.0))
        .map(|row| row.2)
        .collect();
    let compaction = kind == 5;
    if !compaction {
        rows.retain(|_| draw.below(6) > 0);
        rows.extend(ids);
    }
    let operation = if compaction {
        Operation::Replace
    } else {
        Operation::Overwrite
    };
    let mut forged = Forged::new(operation);
    if !rows.is_empty() {
        forged = forged.add([loose_file(lake, table, &id, rows).await]);
    }
    for file in files {
        forged = forged.remove(&*file);
    }
    forged.commit(lake, table).await
}

/// Reads a change by place, and then what went; `None` if it is not told by place.
async fn by_place(
    lake: &Lake,
    name: &TableName,
    from: i64,
    to: i64,
    projection: Option<Vec<usize>>,
) -> Option<Multiset> {
    let placed = lake
        .changes_by_place(name, from, to, projection.clone())
        .await
        .expect("answers")?;
    let went = lake.rows_at(name, to, placed.went, projection).await.expect("answers");
    let mut rows = Multiset::new();
    let came: Vec<LocatedBatch> = placed.came.try_collect().await.expect("reads");
    came.iter().for_each(|located| count(&mut rows, &located.batch, |_| 1));
    let went: Vec<LocatedBatch> = went.try_collect().await.expect("reads");
    for located in &went {
        assert_eq!(located.positions.len(), located.batch.num_rows());
        count(&mut rows, &located.batch, |_| -1);
    }
    Some(rows)
}

async fn random_history(seed: u64, commits: usize) {
    let mut draw = Draw(seed);
    let (foreign, trimmed) = (seed % 2 == 1, seed % 3 == 2);
    let warehouse = Warehouse::with(|options| {
        if trimmed {
            options.keep_snapshots = 6;
            options.keep_for = Duration::ZERO;
        }
    });
    let lake = &warehouse.lake;
    let mut table = small_table(lake, "t").await;
    for n in 0..commits {
        table = random_commit(lake, &table, &mut draw, n, foreign).await;
        let retained = table.main_snapshots();
        let mut cuts: Vec<_> = retained.iter().map(|snapshot| Some(snapshot.snapshot_id())).collect();
        cuts.insert(0, None);
        let to = draw.below(cuts.len());
        let from = draw.below(to + 1);
        let name = table.name();
        let projection = [None, Some(vec![0]), Some(vec![1])][draw.below(3)].clone();
        let mut wanted = scanned(lake, name, cuts[to], &projection).await;
        for (row, weight) in scanned(lake, name, cuts[from], &projection).await {
            *wanted.entry(row).or_default() -= weight;
        }
        wanted.retain(|_, weight| *weight != 0);
        let found = told(lake, name, cuts[from], cuts[to], projection.clone()).await;
        let found = found.unwrap_or_else(|gap| panic!("seed {seed}, commit {n}: {gap:?}"));
        assert_eq!(found.rows, wanted, "seed {seed}, commit {n}, {from} to {to}");
        if let (Some(before), Some(after)) = (cuts[from], cuts[to]) {
            let placed = by_place(lake, name, before, after, projection).await;
            assert!(foreign || placed.is_some(), "seed {seed}, commit {n}, {from} to {to}");
            assert!(
                placed.is_none_or(|rows| rows == wanted),
                "seed {seed}, commit {n}, {from} to {to}"
            );
        }
    }
}

#[tokio::test]
async fn random_histories_are_told_right() {
    let begun = tokio::time::Instant::now();
    let budget = property_budget();
    for seed in 0.. {
        // Every kind of history is tried, however slow the machine.
        if seed >= 6 && begun.elapsed() > budget {
            break;
        }
        random_history(seed, 24).await;
    }
}
