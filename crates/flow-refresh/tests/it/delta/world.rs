//! Tables that change, and a dynamic table over them that is kept by changes and judged by recompute.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    RecordBatchOptions, StringArray, UInt32Array,
};
use arrow_row::{RowConverter, SortField};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use flow_core::TableName;
use flow_core::changes::ChangeBatch;
use flow_core::lake::SnapshotReader;
use flow_refresh::{
    DeltaPlan, InputChanges, PlannedTable, RefreshError, RefreshInput, begin_delta, build_state, refresh_delta,
};

use super::state::MemoryState;
use crate::lake::{Draw, MemoryLake};
use crate::sample::{context, refresh, table, try_planned};

/// Counts rows by their bytes.
pub(crate) type Multiset = BTreeMap<Vec<u8>, i64>;

pub(crate) fn count(batches: &[RecordBatch], weights: &[Vec<i64>], columns: usize) -> Multiset {
    let mut counted = Multiset::new();
    for (batch, weights) in batches.iter().zip(weights) {
        let columns = &batch.columns()[..columns];
        let fields = columns.iter().map(|c| SortField::new(c.data_type().clone()));
        let converter = RowConverter::new(fields.collect()).expect("columns can be compared");
        let rows = converter.convert_columns(columns).expect("columns of the batch");
        for (row, weight) in rows.iter().zip(weights) {
            *counted.entry(row.data().to_vec()).or_insert(0) += weight;
        }
    }
    counted.retain(|_, weight| *weight != 0);
    counted
}

/// Is the columns of every table in these tests; the types of the keys differ.
pub(crate) fn schema(keys: [DataType; 2]) -> SchemaRef {
    let [k, g] = keys;
    Arc::new(Schema::new(vec![
        Field::new("k", k, true),
        Field::new("g", g, true),
        Field::new("n", DataType::Int64, true),
        Field::new("x", DataType::Float64, true),
        Field::new("s", DataType::Utf8, true),
        Field::new("b", DataType::Boolean, true),
    ]))
}

fn column(data_type: &DataType, domain: u64, rows: usize, draw: &mut Draw) -> ArrayRef {
    let values: Vec<Option<i64>> = (0..rows)
        .map(|_| (draw.below(7) > 0).then(|| draw.below(domain) as i64))
        .collect();
    let each = values.into_iter();
    match data_type {
        DataType::Int32 => Arc::new(Int32Array::from_iter(each.map(|v| v.map(|v| v as i32 - 1)))),
        DataType::Int64 => Arc::new(Int64Array::from_iter(each.map(|v| v.map(|v| v - 1)))),
        DataType::Date32 => Arc::new(Date32Array::from_iter(each.map(|v| v.map(|v| v as i32 + 19_000)))),
        DataType::Boolean => Arc::new(BooleanArray::from_iter(each.map(|v| v.map(|v| v % 2 == 0)))),
        DataType::Decimal128(p, s) => {
            let values = Decimal128Array::from_iter(each.map(|v| v.map(|v| i128::from(v) * 50 - 50)));
            Arc::new(values.with_precision_and_scale(*p, *s).expect("values are small"))
        }
        DataType::Utf8 => {
            let words = ["a", "", "ab", "Zü", "b", "abc", "a\u{0}b", "zz"];
            Arc::new(StringArray::from_iter(each.map(|v| v.map(|v| words[v as usize % 8]))))
        }
        DataType::Float64 => {
            let floats = [
                0.0,
                -0.0,
                1.5,
                f64::NAN,
                -2.25,
                0.1,
                f64::from_bits(0xfff8_0000_0000_0001),
                1e17,
            ];
            Arc::new(Float64Array::from_iter(each.map(|v| v.map(|v| floats[v as usize % 8]))))
        }
        other => panic!("no values of {other}"),
    }
}

pub(crate) fn random_rows(schema: &SchemaRef, rows: usize, draw: &mut Draw) -> RecordBatch {
    let columns = schema.fields().iter().map(|field| {
        let domain = match field.name().as_str() {
            "k" => 4,
            "g" => 3,
            "n" => 6,
            _ => 8,
        };
        column(field.data_type(), domain, rows, draw)
    });
    let columns = columns.collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options).expect("columns of the schema")
}

pub(crate) fn take(rows: &RecordBatch, indices: &[u32]) -> RecordBatch {
    take_record_batch(rows, &UInt32Array::from(indices.to_vec())).expect("rows of the batch")
}

/// Holds tables as they are.
pub(crate) struct World {
    pub(crate) lake: Arc<MemoryLake>,
    pub(crate) rows: BTreeMap<TableName, RecordBatch>,
}

impl World {
    pub(crate) fn new(tables: &[(&str, RecordBatch)]) -> World {
        let lake = MemoryLake::new();
        let mut rows = BTreeMap::new();
        for (name, batch) in tables {
            lake.put(&table(name), batch.clone());
            rows.insert(table(name), batch.clone());
        }
        World { lake, rows }
    }

    /// Is three tables of random rows.
    pub(crate) fn random(schema: &SchemaRef, draw: &mut Draw) -> World {
        let names = ["bronze.t0", "bronze.t1", "bronze.t2"];
        let tables = names.map(|name| {
            let rows = draw.below(14) as usize;
            (name, random_rows(schema, rows, draw))
        });
        World::new(&tables)
    }

    /// Changes a table's rows; gives the change, cut into batches that hold more than is needed.
    pub(crate) fn change(&mut self, name: &TableName, draw: &mut Draw) -> Vec<ChangeBatch> {
        let old = self.rows[name].clone();
        let count = old.num_rows() as u64;
        let gone: Vec<u32> = match draw.below(12) {
            0 => (0..count as u32).collect(),
            1 => (0..count as u32).filter(|_| draw.below(4) > 0).collect(),
            2 => Vec::new(),
            _ => (0..count as u32).filter(|_| draw.below(4) == 0).collect(),
        };
        let mut come = vec![random_rows(&old.schema(), draw.below(5) as usize, draw)];
        if !gone.is_empty() && draw.below(2) == 0 {
            // Updates: some of what went comes back, one column or none changed.
            let back = take(&old, &gone);
            let changed = draw.below(old.num_columns() as u64 + 1) as usize;
            let other = random_rows(&old.schema(), back.num_rows(), draw);
            let columns = (0..old.num_columns()).map(|at| match at == changed {
                true => other.column(at).clone(),
                false => back.column(at).clone(),
            });
            come.push(RecordBatch::try_new(old.schema(), columns.collect()).expect("columns of the schema"));
        }
        if count > 0 && draw.below(3) == 0 {
            come.push(take(&old, &[draw.below(count) as u32]));
        }
        self.replace(name, &gone, &come)
    }

    /// Takes rows away by number, and adds others.
    pub(crate) fn replace(&mut self, name: &TableName, gone: &[u32], come: &[RecordBatch]) -> Vec<ChangeBatch> {
        let old = self.rows[name].clone();
        let kept: Vec<u32> = (0..old.num_rows() as u32).filter(|row| !gone.contains(row)).collect();
        let mut parts = vec![take(&old, &kept)];
        parts.extend_from_slice(come);
        let new = concat_batches(&old.schema(), &parts).expect("rows of one table");
        self.lake.put(name, new.clone());
        self.rows.insert(name.clone(), new);
        let mut changes = vec![ChangeBatch::of(take(&old, gone), -1)];
        changes.extend(come.iter().map(|rows| ChangeBatch::of(rows.clone(), 1)));
        changes
    }

    /// Is all rows as changes.
    pub(crate) fn all(&self) -> InputChanges {
        let all = self.rows.iter();
        all.map(|(name, rows)| (name.clone(), vec![ChangeBatch::of(rows.clone(), 1)]))
            .collect()
    }
}

/// Is a dynamic table that is kept by changes.
pub(crate) struct Kept {
    pub(crate) table: PlannedTable,
    pub(crate) plan: Arc<DeltaPlan>,
    pub(crate) state: MemoryState,
    pub(crate) content: Multiset,
}

/// Says why there is nothing to compare.
#[derive(Debug)]
pub(crate) enum Not {
    Planned(String),
    Incremental(Vec<&'static str>),
    Computed(RefreshError),
}

impl Kept {
    /// Computes a table in full, builds its state, and compares both with a beginning by changes.
    pub(crate) async fn new(select: &str, world: &World) -> Result<Kept, Not> {
        let table = try_planned(select, &world.lake).await.map_err(Not::Planned)?;
        let plan = match &table.delta {
            Ok(plan) => plan.clone(),
            Err(reasons) => return Err(Not::Incremental(reasons.iter().map(|reason| reason.code).collect())),
        };
        let content = full(&table, world).await.map_err(Not::Computed)?;
        let state = MemoryState {
            entries: built(&table, &plan, world).await.entries,
            ..MemoryState::default()
        };
        let empty = MemoryState::default();
        let begun = begin_delta(&table, &plan, &world.all(), &empty, &context(1)).await;
        let begun = begun.unwrap_or_else(|error| panic!("{select}: {}", chain(&error)));
        let rows = count(&[begun.rows.rows], &[begun.rows.weights], table.user_columns);
        assert_eq!(show(&rows), show(&content), "{select}: begun by changes");
        let mut by_steps = MemoryState::default();
        by_steps.apply(&begun.state);
        assert_eq!(by_steps.entries, state.entries, "{select}: state begun by changes");
        Ok(Kept {
            table,
            plan,
            state,
            content,
        })
    }

    /// Goes one step, and compares with recompute and a fresh build.
    pub(crate) async fn step(&mut self, changes: &InputChanges, world: &World, what: &str) -> Result<u64, Not> {
        let expected = full(&self.table, world).await.map_err(Not::Computed)?;
        let delta = refresh_delta(&self.table, &self.plan, changes, &self.state, &context(1)).await;
        let delta = delta.unwrap_or_else(|error| panic!("{what}: {}", chain(&error)));
        assert!(
            delta.rows.weights.iter().all(|weight| *weight != 0),
            "{what}: a weight of 0"
        );
        let rows = delta.rows.rows.num_rows();
        let changed = count(&[delta.rows.rows], &[delta.rows.weights], self.table.user_columns);
        assert_eq!(changed.len(), rows, "{what}: equal rows are added up");
        for (row, weight) in changed {
            *self.content.entry(row).or_insert(0) += weight;
        }
        self.content.retain(|_, weight| *weight != 0);
        assert_eq!(show(&self.content), show(&expected), "{what}: content");
        self.state.apply(&delta.state);
        let fresh = built(&self.table, &self.plan, world).await;
        assert_eq!(self.state.entries, fresh.entries, "{what}: state");
        Ok(delta.rows_read)
    }
}

fn chain(error: &RefreshError) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        text += &format!(": {source}");
        next = source.source();
    }
    text
}

fn show(rows: &Multiset) -> Vec<(String, i64)> {
    rows.iter()
        .map(|(row, weight)| (format!("{row:02x?}"), *weight))
        .collect()
}

async fn full(table: &PlannedTable, world: &World) -> Result<Multiset, RefreshError> {
    let output = refresh(table, None, &world.lake, &context(1)).await?;
    let weights: Vec<Vec<i64>> = output.inserted.iter().map(|batch| vec![1; batch.num_rows()]).collect();
    Ok(count(&output.inserted, &weights, table.user_columns))
}

async fn built(table: &PlannedTable, plan: &DeltaPlan, world: &World) -> MemoryState {
    let mut inputs = Vec::new();
    for name in &table.inputs {
        let loaded = world.lake.load(name).await.expect("memory is read");
        inputs.push(RefreshInput {
            name: name.clone(),
            snapshot_id: loaded.and_then(|table| table.snapshots.last().map(|s| s.snapshot_id)),
        });
    }
    let mut state = MemoryState::default();
    let reader: Arc<dyn SnapshotReader> = world.lake.clone();
    build_state(table, plan, &inputs, reader, &mut state, &context(1))
        .await
        .unwrap_or_else(|error| panic!("{}: {}", table.definition.sql, chain(&error)));
    state
}
