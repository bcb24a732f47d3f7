//! Tables as batches in memory, read in any order.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arrow_array::{RecordBatch, UInt32Array};
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use flow_core::TableName;
use flow_core::changes::{ChangeBatch, Changes};
use flow_core::lake::{
    BatchStream, LakeReadError, LakeTable, LocatedBatch, LocatedStream, SnapshotInfo, SnapshotReader,
};

/// Draws numbers without a random source: SplitMix64.
#[derive(Debug)]
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

#[derive(Debug)]
struct Table {
    schema: SchemaRef,
    snapshots: Vec<(i64, RecordBatch)>,
}

/// Holds tables; gives their rows in an order and in batches that `seed` decides.
#[derive(Debug, Default)]
pub(crate) struct MemoryLake {
    tables: Mutex<BTreeMap<TableName, Table>>,
    seed: Mutex<u64>,
}

impl MemoryLake {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn shuffle(&self, seed: u64) {
        *self.seed.lock().expect("no test panics with the lock") = seed;
    }

    /// Gives a table its next snapshot; returns the snapshot's id.
    pub(crate) fn put(&self, name: &TableName, rows: RecordBatch) -> i64 {
        let mut tables = self.tables.lock().expect("no test panics with the lock");
        let table = tables.entry(name.clone()).or_insert_with(|| Table {
            schema: rows.schema(),
            snapshots: Vec::new(),
        });
        let id = 100 + table.snapshots.len() as i64;
        table.schema = rows.schema();
        table.snapshots.push((id, rows));
        id
    }

    fn rows(&self, name: &TableName, snapshot_id: i64) -> RecordBatch {
        let tables = self.tables.lock().expect("no test panics with the lock");
        let snapshots = &tables[name].snapshots;
        let snapshot = snapshots.iter().find(|(id, _)| *id == snapshot_id);
        snapshot.expect("tests read snapshots they put").1.clone()
    }

    /// Cuts rows into batches in an order the seed decides; with the original row numbers.
    fn pieces(&self, rows: &RecordBatch) -> Vec<(Vec<u64>, RecordBatch)> {
        let mut draw = Draw(*self.seed.lock().expect("no test panics with the lock"));
        let mut order: Vec<u32> = (0..rows.num_rows() as u32).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, draw.below(at as u64 + 1) as usize);
        }
        // Small ones, and some hundred of many rows.
        let size = 1 + draw.below(50) as usize + order.len() / 200;
        let pieces = order.chunks(size).map(|chunk| {
            let mut chunk = chunk.to_vec();
            chunk.sort_unstable();
            let positions = chunk.iter().map(|row| u64::from(*row)).collect();
            let taken = arrow_select::take::take_record_batch(rows, &UInt32Array::from(chunk));
            (positions, taken.expect("rows of the batch"))
        });
        pieces.collect()
    }
}

#[async_trait]
impl SnapshotReader for MemoryLake {
    async fn load(&self, name: &TableName) -> Result<Option<LakeTable>, LakeReadError> {
        let tables = self.tables.lock().expect("no test panics with the lock");
        Ok(tables.get(name).map(|table| LakeTable {
            name: name.clone(),
            uuid: name.to_string(),
            schema: table.schema.clone(),
            snapshots: table
                .snapshots
                .iter()
                .map(|(id, rows)| SnapshotInfo {
                    snapshot_id: *id,
                    parent_id: None,
                    timestamp_ms: 0,
                    operation: "append".into(),
                    summary: BTreeMap::from([("total-records".into(), rows.num_rows().to_string())]),
                    schema: rows.schema(),
                })
                .collect(),
            properties: BTreeMap::new(),
        }))
    }

    async fn list(&self) -> Result<Vec<TableName>, LakeReadError> {
        let tables = self.tables.lock().expect("no test panics with the lock");
        Ok(tables.keys().cloned().collect())
    }

    async fn scan(
        &self,
        name: &TableName,
        snapshot_id: i64,
        projection: Option<Vec<usize>>,
    ) -> Result<BatchStream, LakeReadError> {
        let rows = self.rows(name, snapshot_id);
        let pieces = self.pieces(&rows).into_iter().map(move |(_, piece)| match &projection {
            Some(columns) => Ok(piece.project(columns).expect("columns of the snapshot")),
            None => Ok(piece),
        });
        Ok(Box::pin(futures::stream::iter(pieces.collect::<Vec<_>>())))
    }

    async fn scan_located(&self, name: &TableName, snapshot_id: i64) -> Result<LocatedStream, LakeReadError> {
        let rows = self.rows(name, snapshot_id);
        let file: Arc<str> = Arc::from(format!("{name}.parquet"));
        let pieces = self.pieces(&rows).into_iter().map(move |(positions, batch)| {
            Ok(LocatedBatch {
                file: file.clone(),
                positions,
                batch,
            })
        });
        Ok(Box::pin(futures::stream::iter(pieces.collect::<Vec<_>>())))
    }

    /// Gives all rows of both ends: weights of equal rows add up.
    async fn changes(
        &self,
        name: &TableName,
        from: Option<i64>,
        to: Option<i64>,
        projection: Option<Vec<usize>>,
    ) -> Result<Changes, LakeReadError> {
        let mut batches = Vec::new();
        let mut counts = [0, 0];
        for (end, (snapshot_id, weight)) in [(to, 1), (from, -1)].into_iter().enumerate() {
            let Some(snapshot_id) = snapshot_id else { continue };
            for (_, piece) in self.pieces(&self.rows(name, snapshot_id)) {
                let piece = match &projection {
                    Some(columns) => piece.project(columns).expect("columns of the snapshot"),
                    None => piece,
                };
                counts[end] += piece.num_rows() as u64;
                batches.push(Ok(ChangeBatch::of(piece, weight)));
            }
        }
        Ok(Changes::Rows {
            inserted: counts[0],
            deleted: counts[1],
            batches: Box::pin(futures::stream::iter(batches)),
        })
    }
}
