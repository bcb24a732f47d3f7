//! What changed between two snapshots, compared with two full scans.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use flow_core::arrow::arrow_schema;
use flow_core::changes::{ChangeBatch, Changes, Gap};
use flow_core::lake::SnapshotReader;
use flow_core::{Attempt, TableName};
use flow_lake::{Lake, SealInput, Table, WrittenFile};
use futures::TryStreamExt;
use iceberg::TableUpdate;
use iceberg::spec::{DataFile, NestedField, Operation, PrimitiveType, Schema, Type};
use serde_json::json;

use crate::fixture::{
    Readers, Warehouse, append, commit, operation, progress, reload, seal, small_batch, small_schema, small_table,
};
use crate::forge::{Forged, described, equality_deletes, main_at, point, update};

mod random;

/// Is rows as text, and how often each came or went.
type Multiset = BTreeMap<String, i64>;

fn count(into: &mut Multiset, rows: &RecordBatch, weight: impl Fn(usize) -> i64) {
    for row in 0..rows.num_rows() {
        let text = |column: &ArrayRef| arrow_cast::display::array_value_to_string(column, row).expect("has a text");
        let texts: Vec<String> = rows.columns().iter().map(text).collect();
        *into.entry(texts.join("|")).or_default() += weight(row);
    }
    into.retain(|_, weight| *weight != 0);
}

async fn scanned(lake: &Lake, name: &TableName, snapshot: Option<i64>, projection: &Option<Vec<usize>>) -> Multiset {
    let mut out = Multiset::new();
    let Some(snapshot) = snapshot else { return out };
    let stream = lake.scan(name, snapshot, projection.clone()).await.expect("scans");
    let batches: Vec<RecordBatch> = stream.try_collect().await.expect("reads");
    batches.iter().for_each(|batch| count(&mut out, batch, |_| 1));
    out
}

/// Is what a change read told.
#[derive(Debug, Default)]
struct Told {
    rows: Multiset,
    inserted: u64,
    deleted: u64,
    /// Counts the rows told, those that cancel too.
    told: u64,
    /// Counts the rows decoded.
    decoded: u64,
}

async fn told(
    lake: &Lake,
    name: &TableName,
    from: Option<i64>,
    to: Option<i64>,
    projection: Option<Vec<usize>>,
) -> Result<Told, Gap> {
    let before = lake.change_rows_read();
    let changes = lake.changes(name, from, to, projection).await.expect("answers");
    assert_eq!(lake.change_rows_read(), before, "rows are read when they are asked for");
    let (inserted, deleted, batches) = match changes {
        Changes::Rows {
            inserted,
            deleted,
            batches,
        } => (inserted, deleted, batches),
        Changes::Unknown(gap) => return Err(gap),
    };
    let batches: Vec<ChangeBatch> = batches.try_collect().await.expect("reads");
    let mut rows = Multiset::new();
    for batch in &batches {
        assert_eq!(batch.rows.num_rows(), batch.weights.len());
        count(&mut rows, &batch.rows, |row| batch.weights[row]);
    }
    Ok(Told {
        rows,
        inserted,
        deleted,
        told: batches.iter().map(|batch| batch.weights.len() as u64).sum(),
        decoded: lake.change_rows_read() - before,
    })
}

/// Checks an interval against two scans, with all columns, some, and none; gives what all columns told.
async fn check(lake: &Lake, table: &Table, from: Option<i64>, to: Option<i64>) -> Told {
    let name = table.name();
    let mut all = Told::default();
    for projection in [Some(vec![]), Some(vec![1]), Some(vec![1, 0]), None] {
        let mut wanted = scanned(lake, name, to, &projection).await;
        for (row, weight) in scanned(lake, name, from, &projection).await {
            *wanted.entry(row).or_default() -= weight;
        }
        wanted.retain(|_, weight| *weight != 0);
        let case = format!("{from:?} to {to:?}, columns {projection:?}");
        let found = told(lake, name, from, to, projection).await;
        let found = found.unwrap_or_else(|gap| panic!("{case}: {gap:?}"));
        assert_eq!(found.rows, wanted, "{case}");
        all = found;
    }
    all
}

fn now(table: &Table) -> Option<i64> {
    table.current_snapshot_id()
}

/// Writes rows and deletes in one commit and gives the table after it.
async fn change(lake: &Lake, table: &Table, id: &str, ids: &[i64], deletes: Vec<(Arc<str>, u64)>) -> Table {
    let rows: Vec<_> = (!ids.is_empty())
        .then(|| small_batch(ids.iter().copied()))
        .into_iter()
        .collect();
    let sealed = seal(lake, &reload(lake, table).await, id, &rows, deletes).await;
    commit(lake, id, &[sealed]).await;
    reload(lake, table).await
}

fn file_of(table: &Table, id: &str) -> Arc<str> {
    format!("{}/data/{id}-1-0.parquet", table.location()).into()
}

/// Writes a data file that no commit of ours names.
async fn loose_file(lake: &Lake, table: &Table, id: &str, ids: impl IntoIterator<Item = i64>) -> DataFile {
    let mut writer = lake.data_writer(table, &operation(id), Attempt(1), 0).expect("writer");
    writer.write(&small_batch(ids)).await.expect("written");
    let files: Vec<WrittenFile> = writer.finish().await.expect("finished");
    described(table, &files[0])
}

async fn loose_deletes(lake: &Lake, table: &Table, id: &str, deletes: Vec<(Arc<str>, u64)>) -> DataFile {
    let files = lake.write_deletes(table, &operation(id), Attempt(1), 0, deletes).await;
    described(table, &files.expect("written")[0])
}

#[tokio::test]
async fn appends_and_position_deletes_are_exactly_the_rows() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let table = small_table(lake, "t").await;
    let mut cuts = vec![None];
    let steps: [(&[i64], &[(&str, u64)]); 5] = [
        (&[1, 2, 3, 4, 5, 6], &[]),
        (&[7, 8, 1], &[]),
        (&[], &[("op-0", 1), ("op-0", 5), ("op-1", 0)]),
        (&[2, 2], &[("op-0", 0)]),
        (&[], &[("op-3", 1)]),
    ];
    for (n, (ids, deletes)) in steps.into_iter().enumerate() {
        let deletes = deletes.iter().map(|(id, at)| (file_of(&table, id), *at)).collect();
        cuts.push(now(&change(lake, &table, &format!("op-{n}"), ids, deletes).await));
    }
    for (at, from) in cuts.iter().enumerate() {
        for to in &cuts[at..] {
            let found = check(lake, &table, *from, *to).await;
            if from == to {
                assert_eq!((found.inserted, found.deleted, found.told), (0, 0, 0));
            }
        }
    }
    // Nothing but what came and went is decoded, whatever stands in the files.
    let check_work = async |from: usize, to: usize, counts: (u64, u64), decoded: u64| {
        let found = check(lake, &table, cuts[from], cuts[to]).await;
        assert_eq!((found.inserted, found.deleted), counts, "{from} to {to}");
        assert_eq!((found.decoded, found.told), (decoded, decoded), "{from} to {to}");
    };
    check_work(2, 3, (0, 3), 3).await;
    check_work(2, 5, (2, 5), 5).await;
    // A row that came and went between is not read.
    check_work(3, 5, (2, 2), 2).await;
    check_work(1, 2, (3, 0), 3).await;
    // Backwards: the newer one does not descend from the older.
    let back = told(lake, table.name(), cuts[3], cuts[1], None).await;
    assert_eq!(back.err(), Some(Gap::NotDescended));
    // The way back to no rows.
    check(lake, &table, cuts[5], None).await;
}

#[tokio::test]
async fn what_a_rewrite_carries_over_is_not_told() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let table = small_table(lake, "t").await;
    let table = append(lake, &table, "op-0", (0..1000).chain(0..10)).await;
    let first = now(&table);
    let table = change(lake, &table, "op-1", &[5000], vec![(file_of(&table, "op-0"), 4)]).await;
    let second = now(&table);
    // Another program rewrites the file to change one row, and keeps one copy of a double one.
    let kept = (0..1000).filter(|id| *id != 4 && *id != 500).chain([7777]).chain(1..10);
    let rewritten = loose_file(lake, &table, "op-2", kept).await;
    let forged = Forged::new(Operation::Overwrite).add([rewritten]);
    let table = forged.remove(&*file_of(&table, "op-0")).commit(lake, &table).await;
    let third = now(&table);
    let found = check(lake, &table, second, third).await;
    assert_eq!((found.inserted, found.deleted, found.told), (1008, 1010, 3));
    check(lake, &table, first, third).await;
    check(lake, &table, None, third).await;
    // Removed without anything in its place.
    let forged = Forged::new(Operation::Delete).remove(&*file_of(&table, "op-2"));
    let table = forged.commit(lake, &table).await;
    assert_eq!(check(lake, &table, third, now(&table)).await.told, 1008);
    let all = check(lake, &table, second, now(&table)).await;
    assert_eq!((all.told, all.inserted), (1009, 0));
    let last = append(lake, &table, "op-3", 20..25).await;
    assert_eq!(check(lake, &last, now(&table), now(&last)).await.told, 5);
}

#[tokio::test]
async fn compaction_is_no_change_also_between_changes() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let table = small_table(lake, "t").await;
    let table = append(lake, &table, "op-0", 0..100).await;
    let table = change(lake, &table, "op-1", &[200, 201], vec![(file_of(&table, "op-0"), 7)]).await;
    let before = now(&table);
    let compacted = loose_file(lake, &table, "op-2", (0..100).filter(|id| *id != 7).chain([200, 201])).await;
    let deletes = format!("{}/data/op-1-1-0-deletes.parquet", table.location());
    let deletes = [deletes].into_iter().filter(|path| std::path::Path::new(path).exists());
    let mut forged = Forged::new(Operation::Replace).add([compacted]);
    for path in [file_of(&table, "op-0").to_string(), file_of(&table, "op-1").to_string()] {
        forged = forged.remove(path);
    }
    for path in deletes {
        forged = forged.remove(path);
    }
    let table = forged.commit(lake, &table).await;
    let after = now(&table);
    let found = check(lake, &table, before, after).await;
    assert_eq!((found.inserted, found.deleted, found.decoded), (0, 0, 0));

    // Added before, deleted after, in the rewritten file.
    let table = append(lake, &table, "op-3", [300, 301]).await;
    let compacted = loose_file(lake, &table, "op-4", [300, 301]).await;
    let forged = Forged::new(Operation::Replace).add([compacted]);
    let table = forged.remove(&*file_of(&table, "op-3")).commit(lake, &table).await;
    let gone = vec![(file_of(&table, "op-2"), 0), (file_of(&table, "op-4"), 1)];
    let table = change(lake, &table, "op-5", &[400], gone).await;
    let found = check(lake, &table, before, now(&table)).await;
    assert_eq!((found.inserted, found.deleted), (3, 2));
    assert_eq!(found.decoded, 5, "the compacted file is not gone through");
    check(lake, &table, after, now(&table)).await;

    // Two at once, and nothing else.
    let start = now(&table);
    for n in 6..8 {
        let [old, new] = [n - 1, n].map(|n| format!("op-{n}"));
        let file = loose_file(lake, &table, &new, [400]).await;
        let forged = Forged::new(Operation::Replace).add([file]);
        forged.remove(&*file_of(&table, &old)).commit(lake, &table).await;
    }
    let table = reload(lake, &table).await;
    assert_eq!(check(lake, &table, start, now(&table)).await.inserted, 0);

    // Where the snapshot before a compaction was trimmed, the rows tell.
    let middle = table
        .metadata()
        .current_snapshot()
        .expect("current")
        .parent_snapshot_id();
    let remove = TableUpdate::RemoveSnapshots {
        snapshot_ids: middle.into_iter().collect(),
    };
    let table = update(lake, &table, vec![remove]).await;
    let found = check(lake, &table, start, now(&table)).await;
    assert_eq!((found.inserted, found.deleted, found.told), (1, 1, 0));
}

#[tokio::test]
async fn deletes_of_other_programs_count_once() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let table = small_table(lake, "t").await;
    let table = append(lake, &table, "op-0", 0..10).await;
    let table = append(lake, &table, "op-1", 10..20).await;
    let (first, other) = (file_of(&table, "op-0"), file_of(&table, "op-1"));
    let deletes = vec![(first.clone(), 1), (first.clone(), 2)];
    let table = change(lake, &table, "op-2", &[], deletes).await;
    let start = now(&table);
    // Again the same row, one more, and one of a file that is not there.
    let again = vec![("/nowhere".into(), 3), (first.clone(), 2), (first.clone(), 5)];
    let deletes = loose_deletes(lake, &table, "op-3", again).await;
    let path = deletes.file_path().to_owned();
    let table = Forged::new(Operation::Delete).add([deletes]).commit(lake, &table).await;
    let found = check(lake, &table, start, now(&table)).await;
    assert_eq!((found.deleted, found.told, found.decoded), (3, 1, 1));
    let middle = now(&table);
    // Delete files are rewritten: the same positions, and a new one.
    let deletes = vec![(first.clone(), 2), (first.clone(), 5), (other, 0)];
    let deletes = loose_deletes(lake, &table, "op-4", deletes).await;
    let forged = Forged::new(Operation::Overwrite).add([deletes]).remove(path);
    let table = forged.commit(lake, &table).await;
    assert_eq!(check(lake, &table, middle, now(&table)).await.told, 1);
    check(lake, &table, start, now(&table)).await;
    // Deletes are taken back: the rows are there again, but for those another file deletes too.
    let before = now(&table);
    let path = format!("{}/data/", table.location());
    let files = std::fs::read_dir(path)
        .expect("is there")
        .map(|file| file.expect("listed").path());
    let deletes: Vec<_> = files.filter(|path| path.to_string_lossy().contains("op-4")).collect();
    let forged = Forged::new(Operation::Overwrite).remove(deletes[0].to_str().expect("UTF-8"));
    let table = forged.commit(lake, &table).await;
    let found = check(lake, &table, before, now(&table)).await;
    assert_eq!((found.inserted, found.told), (3, 2));
    // A file goes with rows that were deleted from it, before and in the interval.
    let deletes = loose_deletes(lake, &table, "op-5", vec![(first.clone(), 0)]).await;
    let middle = now(&table);
    let table = Forged::new(Operation::Delete).add([deletes]).commit(lake, &table).await;
    let table = Forged::new(Operation::Delete)
        .remove(&*first)
        .commit(lake, &table)
        .await;
    assert_eq!(check(lake, &table, middle, now(&table)).await.told, 8);
}

#[tokio::test]
async fn equality_deletes_are_a_gap_unless_nothing_changes() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let table = small_table(lake, "t").await;
    let table = append(lake, &table, "op-0", 0..10).await;
    let start = now(&table);
    let deletes = equality_deletes(&table);
    let path = deletes.file_path().to_owned();
    let forged = Forged::new(Operation::Delete).add([deletes]);
    let table = forged.commit(lake, &table).await;
    let with = now(&table);
    let gap = async |table: &Table, from, to| told(lake, table.name(), from, to, None).await.err();
    assert_eq!(gap(&table, start, with).await, Some(Gap::EqualityDeletes));
    assert_eq!(gap(&table, with, with).await, None);
    // Those that stand there already do not meet what is appended, but what is deleted.
    let table = append(lake, &table, "op-1", 20..23).await;
    let appended = now(&table);
    let found = told(lake, table.name(), with, appended, None).await.expect("rows");
    assert_eq!(found.told, 3);
    let first = file_of(&table, "op-0");
    let table = change(lake, &table, "op-2", &[], vec![(first.clone(), 0)]).await;
    assert_eq!(gap(&table, appended, now(&table)).await, Some(Gap::EqualityDeletes));
    // Compacted away, they changed nothing; between the ends of a longer way they did.
    let middle = now(&table);
    let compacted = loose_file(lake, &table, "op-3", 2..10).await;
    let forged = Forged::new(Operation::Replace).add([compacted]).remove(path);
    let table = forged.remove(&*first).commit(lake, &table).await;
    let found = told(lake, table.name(), middle, now(&table), None).await.expect("rows");
    assert_eq!((found.inserted, found.deleted), (0, 0));
    assert_eq!(gap(&table, start, now(&table)).await, Some(Gap::EqualityDeletes));
}

#[tokio::test]
async fn histories_that_do_not_lead_there_are_gaps() {
    let warehouse = Warehouse::with(|options| {
        options.keep_snapshots = 2;
        options.keep_for = Duration::ZERO;
    });
    let lake = &warehouse.lake;
    let table = small_table(lake, "t").await;
    let mut cuts = Vec::new();
    let mut table = append(lake, &table, "op-0", 0..2).await;
    cuts.push(now(&table));
    let pinned = now(&table);
    for n in 1..6_i64 {
        let id = operation(&format!("op-{n}"));
        let mut writer = lake.data_writer(&table, &id, Attempt(1), 0).expect("writer");
        writer.write(&small_batch([n * 10])).await.expect("written");
        let deletes = vec![(file_of(&table, &format!("op-{}", n - 1)), 0)];
        let input = SealInput {
            operation: &id,
            attempt: Attempt(1),
            added: writer.finish().await.expect("finished"),
            deletes: lake
                .write_deletes(&table, &id, Attempt(1), 0, deletes)
                .await
                .expect("written"),
            summary: BTreeMap::new(),
            properties: BTreeMap::new(),
            protected: pinned.into_iter().collect::<BTreeSet<_>>(),
        };
        let sealed = lake.seal(&table, input).await.expect("sealed");
        lake.commit(&[sealed], &progress(id.as_str())).await.expect("committed");
        table = reload(lake, &table).await;
        cuts.push(now(&table));
    }
    let gap = async |table: &Table, from, to| told(lake, table.name(), from, to, None).await.err();
    assert_eq!(gap(&table, cuts[1], cuts[5]).await, Some(Gap::Expired));
    assert_eq!(gap(&table, Some(77), cuts[5]).await, Some(Gap::Expired));
    assert_eq!(gap(&table, Some(77), None).await, Some(Gap::Expired));
    // What was trimmed between two that are kept does not matter.
    let found = check(lake, &table, pinned, cuts[5]).await;
    assert_eq!((found.inserted, found.deleted, found.told), (5, 5, 2));
    check(lake, &table, cuts[4], cuts[5]).await;
    assert!(lake.changes(table.name(), pinned, Some(77), None).await.is_err());

    // Rolled back, and on from there.
    let table = update(lake, &table, vec![main_at(cuts[4].expect("a snapshot"))]).await;
    let table = append(lake, &table, "op-9", [99]).await;
    assert_eq!(gap(&table, cuts[5], now(&table)).await, Some(Gap::NotDescended));
    assert_eq!(gap(&table, cuts[5], cuts[4]).await, Some(Gap::NotDescended));
    check(lake, &table, cuts[4], now(&table)).await;

    // Another table of that name.
    let other = small_table(lake, "other").await;
    let other = append(lake, &other, "op-10", 0..3).await;
    point(lake, &table, other.metadata_location());
    let table = reload(lake, &table).await;
    assert_eq!(gap(&table, cuts[5], now(&other)).await, Some(Gap::NotDescended));
}

#[tokio::test]
async fn only_columns_that_are_read_must_stay() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let table = small_table(lake, "t").await;
    let table = append(lake, &table, "op-0", 0..5).await;
    // Files are written as the table was created, with two columns.
    let made = table.clone();
    let start = now(&table);
    let shaped = |id: i32, id_type: PrimitiveType, more: &[i32]| {
        let fields = [
            NestedField::required(1, "id", Type::Primitive(id_type)),
            NestedField::optional(2, "renamed", Type::Primitive(PrimitiveType::String)),
        ];
        let more = more
            .iter()
            .map(|n| NestedField::optional(*n, format!("more{n}"), Type::Primitive(PrimitiveType::Int)));
        let fields = fields.into_iter().chain(more).map(Arc::new);
        let schema = Schema::builder().with_schema_id(id).with_fields(fields).build();
        let schema = schema.expect("a schema");
        vec![
            TableUpdate::AddSchema { schema },
            TableUpdate::SetCurrentSchema { schema_id: -1 },
        ]
    };
    let table = update(lake, &table, shaped(1, PrimitiveType::Long, &[3])).await;
    let file = loose_file(lake, &made, "op-1", 5..7).await;
    let deletes = loose_deletes(lake, &made, "op-2", vec![(file_of(&table, "op-0"), 2)]).await;
    let forged = Forged::new(Operation::Overwrite).add([file, deletes]);
    let table = forged.commit(lake, &table).await;
    let end = now(&table);
    let read = async |table: &Table, from, columns: Option<Vec<usize>>| {
        told(lake, table.name(), from, now(table), columns)
            .await
            .map(|found| found.rows)
    };
    assert_eq!(read(&table, start, None).await, Err(Gap::Columns));
    assert_eq!(read(&table, start, Some(vec![0, 2])).await, Err(Gap::Columns));
    let rows = read(&table, start, Some(vec![0])).await.expect("rows");
    assert_eq!(
        rows,
        BTreeMap::from([("2", -1), ("5", 1), ("6", 1)].map(|(id, n)| (id.to_owned(), n)))
    );
    read(&table, start, Some(vec![1]))
        .await
        .expect("renamed is the same column");
    // A column that was there at both ends and is in no file is NULL.
    let file = loose_file(lake, &made, "op-3", [9]).await;
    let table = Forged::new(Operation::Append).add([file]).commit(lake, &table).await;
    let rows = read(&table, end, Some(vec![2, 0])).await.expect("rows");
    assert_eq!(rows, BTreeMap::from([("|9".to_owned(), 1)]));
    let table = update(lake, &table, shaped(2, PrimitiveType::Int, &[4])).await;
    let file = loose_file(lake, &made, "op-4", []).await;
    let table = Forged::new(Operation::Append).add([file]).commit(lake, &table).await;
    assert_eq!(
        read(&table, end, Some(vec![0])).await,
        Err(Gap::Columns),
        "another type"
    );
    assert_eq!(read(&table, end, Some(vec![2])).await, Err(Gap::Columns), "another id");
    assert_eq!(read(&table, now(&table), None).await, Ok(Multiset::new()));
}

#[tokio::test]
async fn a_small_change_of_a_large_table_reads_little() {
    const ROWS: i64 = 1_000_000;
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let table = small_table(lake, "t").await;
    let batch = |from: i64, to: i64| {
        let names = StringArray::from_iter_values((from..to).map(|id| format!("name {id}")));
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_iter_values(from..to)), Arc::new(names)];
        RecordBatch::try_new(arrow_schema(&small_schema()), columns).expect("a batch")
    };
    let rows: Vec<_> = (0..ROWS / 50_000)
        .map(|n| batch(n * 50_000, (n + 1) * 50_000))
        .collect();
    let sealed = seal(lake, &table, "op-0", &rows, Vec::new()).await;
    commit(lake, "op-0", &[sealed]).await;
    let table = reload(lake, &table).await;
    let start = now(&table);
    let deletes = (0..1000).map(|n| (file_of(&table, "op-0"), n * 997)).collect();
    let sealed = seal(lake, &table, "op-1", &[batch(ROWS, ROWS + 1000)], deletes).await;
    commit(lake, "op-1", &[sealed]).await;
    let table = reload(lake, &table).await;
    let found = told(lake, table.name(), start, now(&table), None).await.expect("rows");
    assert_eq!((found.inserted, found.deleted, found.told), (1000, 1000, 2000));
    assert_eq!(found.decoded, 2000);
    for n in 0..1000 {
        let id = n * 997;
        assert_eq!(found.rows.get(&format!("{id}|name {id}")), Some(&-1));
    }
}

#[tokio::test]
async fn what_both_ends_list_is_not_opened() {
    const COMMITS: i64 = 60;
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let mut table = small_table(lake, "t").await;
    let mut cuts = Vec::new();
    for n in 0..COMMITS {
        let deletes = if n > 0 {
            vec![(file_of(&table, &format!("op-{}", n - 1)), 1)]
        } else {
            Vec::new()
        };
        table = change(lake, &table, &format!("op-{n}"), &[n, n + 1], deletes).await;
        cuts.push(now(&table));
    }
    let last = cuts.len() - 1;
    let wanted = check(lake, &table, cuts[last - 3], cuts[last]).await;
    assert_eq!((wanted.inserted, wanted.deleted), (6, 3));
    // Whatever an older commit wrote goes, but for the file whose rows the oldest of the three deletes.
    let old = |path: &std::path::Path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let commit = name
            .strip_prefix("op-")
            .and_then(|rest| rest.split('-').next()?.parse::<i64>().ok());
        commit.is_some_and(|n| n < COMMITS - 4 || (n == COMMITS - 4 && name.contains("-m")))
    };
    let mut gone = 0;
    for folder in ["data", "metadata"] {
        for file in std::fs::read_dir(format!("{}/{folder}", table.location())).expect("is there") {
            let path = file.expect("listed").path();
            if old(&path) {
                std::fs::remove_file(path).expect("removed");
                gone += 1;
            }
        }
    }
    assert!(gone > 100, "{gone}");
    let found = told(&warehouse.reopen(), table.name(), cuts[last - 3], cuts[last], None).await;
    assert_eq!(found.expect("rows").rows, wanted.rows);
}

#[tokio::test]
async fn tables_of_other_programs_are_read_alike() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    small_table(lake, "ours").await;
    let mut readers = Readers::start();
    readers.ask(&json!({"do": "create", "catalog": lake.catalog_path(), "table": "bronze.theirs"}));
    readers.ask(&json!({"do": "append", "catalog": lake.catalog_path(), "table": "bronze.theirs", "times": 2}));
    let name = TableName::new("bronze", "theirs");
    let table = lake.load(&name).await.expect("loads").expect("exists");
    let snapshots: Vec<_> = table.main_snapshots().iter().map(|s| Some(s.snapshot_id())).collect();
    assert!(snapshots.len() > 4, "{snapshots:?}");
    let cuts = [&[None][..], &snapshots].concat();
    for (at, from) in cuts.iter().enumerate() {
        for to in &cuts[at..] {
            check(lake, &table, *from, *to).await;
        }
    }
}
