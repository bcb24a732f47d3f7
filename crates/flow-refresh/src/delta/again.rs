//! Operators that are evaluated again for the keys that changed: windows by partition, aggregates
//! that take no rows back by group.
//!
//! All rows are kept in order of the key. The engine's own operator runs over the old rows of the
//! touched keys and over the new ones, and what differs goes on.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::common::Result;
use flow_core::changes::ChangeBatch;

use super::KEYS_AT_ONCE;
use super::access::Access;
use super::arrangement::{Arranged, Arrangement, Entries};
use super::engine::Template;
use super::faults::{negative, too_many};
use super::rows::{self, RowCodec};

/// Is such an operator.
#[derive(Debug)]
pub(super) struct Again {
    pub(super) arrangement: Arrangement,
    pub(super) template: Template,
    pub(super) schema: SchemaRef,
}

impl Again {
    /// Computes the change from the change of the input.
    pub(super) async fn step(&self, changes: &ChangeBatch, access: &mut Access<'_>) -> Result<ChangeBatch> {
        let arranged = self.arrangement.arrange(changes)?;
        let mut parts = Vec::new();
        for part in by_keys(&arranged) {
            let change = self.step_keys(&arranged.take(part)?, access).await?;
            access.settle(change.rows.get_array_memory_size())?;
            parts.push(change);
        }
        match parts.is_empty() {
            true => Ok(rows::none(&self.schema)),
            false => rows::concat(&self.schema, &parts),
        }
    }

    /// Computes the change of some keys' rows, and writes their state.
    async fn step_keys(&self, arranged: &Arranged, access: &mut Access<'_>) -> Result<ChangeBatch> {
        let (rows, weights) = self.touched(arranged, access)?;
        self.arrangement.write(arranged, |at| Some(weights[at].0), access)?;
        let old = self.evaluate(&rows, weights.iter().map(|(old, _)| *old), -1, access);
        let old = old.await?;
        let new = self.evaluate(&rows, weights.iter().map(|(_, new)| *new), 1, access);
        let new = new.await?;
        let parts: Vec<ChangeBatch> = old.into_iter().chain(new).collect();
        if parts.is_empty() {
            return Ok(rows::none(&self.schema));
        }
        rows::consolidate(&RowCodec::of(&self.schema)?, rows::concat(&self.schema, &parts)?)
    }

    /// Reads the rows of the touched keys, with their old and new weights; those that changed first.
    fn touched(&self, arranged: &Arranged, access: &mut Access<'_>) -> Result<(RecordBatch, Vec<(i64, i64)>)> {
        let mut prefixes: Vec<&[u8]> = (0..arranged.entries.len())
            .map(|at| arranged.entries.prefix(at))
            .collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        let loaded = self.arrangement.load(&prefixes, access)?;
        let places = arranged.places();
        let mut weights: Vec<(i64, i64)> = arranged.weights.iter().map(|weight| (0, *weight)).collect();
        let mut others = Entries::default();
        for (at, weight) in loaded.weights.iter().enumerate() {
            let entry = loaded.entries.entry(at);
            match places.get(entry) {
                Some(row) => weights[*row] = (*weight, weight + arranged.weights[*row]),
                None => {
                    others.push(entry, loaded.entries.prefix(at).len());
                    weights.push((*weight, *weight));
                }
            }
        }
        let others = ChangeBatch::of(self.arrangement.decode(&others)?, 0);
        let rows = rows::concat(&self.arrangement.schema, &[arranged.changes(), others])?.rows;
        Ok((rows, weights))
    }

    /// Runs the operator over rows, each as often as its weight says.
    async fn evaluate(
        &self,
        rows: &RecordBatch,
        weights: impl Iterator<Item = i64> + Clone,
        weight: i64,
        access: &Access<'_>,
    ) -> Result<Vec<ChangeBatch>> {
        let repeated = repeat(rows, weights)?;
        if repeated.num_rows() == 0 {
            return Ok(Vec::new());
        }
        access.grow(repeated.get_array_memory_size())?;
        let batches = self.template.run(&repeated, access.task.clone()).await?;
        let batches = batches.into_iter().map(|columns| {
            let count = columns.first().map_or(0, |column| column.len());
            let rows = rows::batch(&self.schema, columns, count)?;
            access.grow(rows.get_array_memory_size())?;
            Ok(ChangeBatch::of(rows, weight))
        });
        batches.collect()
    }
}

/// Divides changed rows into parts, each of all rows of a bounded number of keys.
fn by_keys(arranged: &Arranged) -> Vec<Vec<u32>> {
    let key = |at: &u32| arranged.entries.prefix(*at as usize);
    let mut order: Vec<u32> = (0..arranged.weights.len() as u32).collect();
    order.sort_unstable_by(|a, b| key(a).cmp(key(b)));
    let keys: Vec<&[u32]> = order.chunk_by(|a, b| key(a) == key(b)).collect();
    keys.chunks(KEYS_AT_ONCE).map(|part| part.concat()).collect()
}

/// Takes rows as often as their weights say.
fn repeat(rows: &RecordBatch, weights: impl Iterator<Item = i64> + Clone) -> Result<RecordBatch> {
    let mut total: usize = 0;
    for weight in weights.clone() {
        let weight = usize::try_from(weight).map_err(|_| negative())?;
        total = total.checked_add(weight).ok_or_else(too_many)?;
    }
    u32::try_from(total).map_err(|_| too_many())?;
    let mut indices = Vec::with_capacity(total);
    for (row, weight) in weights.enumerate() {
        indices.extend(std::iter::repeat_n(row as u32, weight as usize));
    }
    rows::take(rows, indices)
}
