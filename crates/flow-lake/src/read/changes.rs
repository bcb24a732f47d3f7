//! Change reads: the difference of two snapshots, from the files they do not share.
//!
//! Never reads a data file to find out whether something changed, and of files that both snapshots
//! have only the rows that were deleted between them.
//!
//! 1. `course` finds the steps from the older snapshot to the newer; a `replace` lies between steps.
//! 2. `difference` compares the manifests of a step's ends: files that came and went, and counts.
//! 3. `tasks` reads the delete files among them and says which rows of which file are needed.
//! 4. `reading` reads those on blocking threads; `cancel` keeps back what was only carried over.
//! 5. `placed` tells the same by place: it reads what came and says where that stood which went.

use std::collections::BTreeSet;

use flow_core::TableName;
use flow_core::changes::{ChangeBatch, ChangeStream, Changes, Gap};
use futures::{StreamExt, TryStreamExt};
use iceberg::spec::{NestedFieldRef, SnapshotRef, Transform};

use self::difference::Difference;
pub use self::placed::{PlacedChanges, Places};
use self::tasks::Task;
use super::plan::{self, Content};
use super::rows::RowReader;
use super::{failed, is_ours, snapshot_of};
use crate::blocking;
use crate::error::LakeError;
use crate::lake::{Lake, Shared};
use crate::table::Table;

mod cancel;
mod course;
mod difference;
mod placed;
mod reading;
mod tasks;

/// Is what is known before a row is read.
struct Plan {
    rows: RowReader,
    work: Work,
    inserted: u64,
    deleted: u64,
}

/// Is how far the work is planned.
enum Work {
    /// Delete files are yet to be read.
    Differences(Vec<Difference>),
    /// Only rows are.
    Tasks(Vec<Task>),
}

impl Work {
    fn tasks(self) -> Result<Vec<Task>, LakeError> {
        match self {
            Work::Tasks(tasks) => Ok(tasks),
            Work::Differences(differences) => {
                let tasks = differences.iter().map(tasks::resolve);
                Ok(tasks.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
            }
        }
    }
}

/// Is the difference of snapshots that hold the same rows.
fn none() -> Changes {
    Changes::Rows {
        inserted: 0,
        deleted: 0,
        batches: Box::pin(futures::stream::empty()),
    }
}

/// Plans a change read and gives its rows as a stream that reads when it is polled.
pub(super) async fn read(
    lake: &Lake,
    name: &TableName,
    from: Option<i64>,
    to: Option<i64>,
    projection: Option<Vec<usize>>,
) -> Result<Changes, LakeError> {
    let (from, to) = match (from, to) {
        (None, None) => return Ok(none()),
        (None, Some(to)) => return whole(lake, name, to, projection, 1).await,
        (Some(from), None) => return whole(lake, name, from, projection, -1).await,
        (Some(from), Some(to)) => (from, to),
    };
    let (shared, table) = (lake.shared.clone(), name.clone());
    let plan = blocking::run(move || {
        let table = shared.require(&table)?;
        plan(&shared, &table, from, to, projection.as_deref())
    });
    let plan = match plan.await? {
        Ok(plan) => plan,
        Err(gap) => return Ok(Changes::Unknown(gap)),
    };
    if plan.inserted == 0 && plan.deleted == 0 {
        return Ok(none());
    }
    let (shared, failed) = (lake.shared.clone(), failed("read the changes of", name));
    let (rows, work) = (plan.rows, plan.work);
    let batches = futures::stream::once(reading::start(shared, rows, move || work.tasks())).try_flatten();
    Ok(Changes::Rows {
        inserted: plan.inserted,
        deleted: plan.deleted,
        batches: Box::pin(batches.map_err(failed)),
    })
}

/// Gives all rows of a snapshot with one weight: the difference to no rows.
async fn whole(
    lake: &Lake,
    name: &TableName,
    snapshot_id: i64,
    projection: Option<Vec<usize>>,
    weight: i64,
) -> Result<Changes, LakeError> {
    let (shared, table) = (lake.shared.clone(), name.clone());
    let rows = blocking::run(move || {
        let table = shared.require(&table)?;
        if weight < 0 && table.metadata().snapshot_by_id(snapshot_id).is_none() {
            return Ok(None);
        }
        let plan = plan::plan(&shared, &table, &snapshot_of(&table, snapshot_id)?)?;
        Ok(Some(plan.rows))
    });
    let Some(rows) = rows.await? else {
        return Ok(Changes::Unknown(Gap::Expired));
    };
    let (lake, table, failed) = (lake.clone(), name.clone(), failed("read the changes of", name));
    let scan = async move {
        let scan = lake.scan_inner(&table, snapshot_id, projection).await;
        scan.map_err(failed)
    };
    let batches = futures::stream::once(scan).try_flatten();
    let batches: ChangeStream = Box::pin(batches.map(move |batch| Ok(ChangeBatch::of(batch?, weight))));
    Ok(Changes::Rows {
        inserted: if weight > 0 { rows } else { 0 },
        deleted: if weight < 0 { rows } else { 0 },
        batches,
    })
}

/// Compares two snapshots by what their manifests say. Blocks.
fn plan(
    shared: &Shared,
    table: &Table,
    from: i64,
    to: i64,
    projection: Option<&[usize]>,
) -> Result<Result<Plan, Gap>, LakeError> {
    let to = snapshot_of(table, to)?;
    let steps = match course::find(table, from, &to) {
        Ok(steps) => steps,
        Err(gap) => return Ok(Err(gap)),
    };
    let rows = RowReader::new(table, to.snapshot_id(), projection)?;
    if let Some(first) = steps.first()
        && !same_columns(table, &first.from, &to, projection)?
    {
        return Ok(Err(Gap::Columns));
    }
    let trusted = is_ours(table) && table.foreign_snapshots().is_empty();
    let differences = steps
        .iter()
        .map(|step| difference::between(shared, table, step, trusted))
        .collect::<Result<Vec<_>, _>>()?;
    if differences.iter().any(|step| step.has(Content::EqualityDeletes)) {
        return Ok(Err(Gap::EqualityDeletes));
    }
    if !differences.iter().all(tasks::is_plain) {
        return Ok(Err(Gap::Files));
    }
    let counts = differences.iter().map(Difference::counts);
    let (inserted, deleted) = counts.fold((0, 0), |(came, went), (more, less)| (came + more, went + less));
    let mut work = Work::Differences(differences);
    if !trusted {
        // Files of other programs may leave out what only the Iceberg library can fill in.
        let filled = filled_columns(table);
        let tasks = work.tasks()?;
        for file in tasks.iter().flat_map(Task::files) {
            if !rows.understands(file, &filled)? {
                return Ok(Err(Gap::Files));
            }
        }
        work = Work::Tasks(tasks);
    }
    Ok(Ok(Plan {
        rows,
        work,
        inserted,
        deleted,
    }))
}

/// Lists the columns that a file may lack without them being NULL: partitioned by value, or with a
/// default.
fn filled_columns(table: &Table) -> BTreeSet<i32> {
    let metadata = table.metadata();
    let specs = metadata.partition_specs_iter().flat_map(|spec| spec.fields());
    let by_value = specs.filter(|field| field.transform == Transform::Identity);
    let columns = metadata.schemas_iter().flat_map(|schema| schema.as_struct().fields());
    let with_default = columns.filter(|column| column.initial_default.is_some());
    let by_value = by_value.map(|field| field.source_id);
    by_value.chain(with_default.map(|column| column.id)).collect()
}

/// Says whether the columns that are read were the same at both ends, by field id and type.
fn same_columns(
    table: &Table,
    from: &SnapshotRef,
    to: &SnapshotRef,
    projection: Option<&[usize]>,
) -> Result<bool, LakeError> {
    let schema = |snapshot: &SnapshotRef| {
        let schema = snapshot.schema(table.metadata());
        schema.map_err(LakeError::iceberg("find a snapshot's schema", table.name()))
    };
    let (before, after) = (schema(from)?, schema(to)?);
    let columns = after.as_struct().fields();
    let read: Vec<&NestedFieldRef> = match projection {
        Some(indexes) => indexes.iter().filter_map(|index| columns.get(*index)).collect(),
        None => columns.iter().collect(),
    };
    Ok(read.into_iter().all(|column| {
        let known = before.as_struct().field_by_id(column.id);
        known.is_some_and(|known| known.field_type == column.field_type)
    }))
}

impl Lake {
    /// Counts the rows that change reads have decoded since the lake was opened: their work, which
    /// grows with what changed.
    pub fn change_rows_read(&self) -> u64 {
        self.shared.change_rows_read.load(std::sync::atomic::Ordering::Relaxed)
    }
}
