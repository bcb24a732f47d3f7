//! Rows held in order of a key: `[node][part] ‖ key ‖ the other columns` → weight.
//!
//! Columns that the key holds as they are, are not held again.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_row::SortField;
use arrow_schema::{SchemaRef, SortOptions};
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use flow_core::changes::ChangeBatch;
use flow_core::state::StateBuilder;

use super::access::Access;
use super::faults::{store, too_many};
use super::rows::{self, RowCodec};

/// Is an expression of a key, and how it is ordered.
pub(super) type KeyColumn = (Arc<dyn PhysicalExpr>, SortOptions);

/// Lays rows out by a key.
#[derive(Debug)]
pub(super) struct Arrangement {
    pub(super) schema: SchemaRef,
    operator: &'static str,
    head: [u8; 3],
    keys: Vec<Arc<dyn PhysicalExpr>>,
    key: RowCodec,
    rest: RowCodec,
    /// Decodes both: the bytes of a row are those of its columns, one after the other.
    whole: RowCodec,
    rest_columns: Vec<usize>,
    /// Says of each column which one of key and rest holds it.
    held: Vec<usize>,
}

/// Is state keys, each with the length of its part up to the row's key.
#[derive(Debug, Default)]
pub(super) struct Entries {
    bytes: Vec<u8>,
    ends: Vec<(usize, usize)>,
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    fn start(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.ends[before].1)
    }

    /// Is a whole state key.
    pub(super) fn entry(&self, at: usize) -> &[u8] {
        &self.bytes[self.start(at)..self.ends[at].1]
    }

    /// Is the part of a state key that all rows with the same key share.
    pub(super) fn prefix(&self, at: usize) -> &[u8] {
        &self.bytes[self.start(at)..self.ends[at].0]
    }

    /// Is the row's key.
    pub(super) fn key(&self, at: usize) -> &[u8] {
        &self.bytes[self.start(at) + 3..self.ends[at].0]
    }

    /// Adds a state key whose first `prefix` bytes are shared.
    pub(super) fn push(&mut self, entry: &[u8], prefix: usize) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(entry);
        self.ends.push((start + prefix, self.bytes.len()));
    }
}

/// Is changed rows with their state keys; equal rows are added up.
#[derive(Debug)]
pub(super) struct Arranged {
    pub(super) rows: RecordBatch,
    pub(super) weights: Vec<i64>,
    pub(super) entries: Entries,
    /// Says of each row whether a part of its key is NULL.
    pub(super) null_key: Vec<bool>,
}

impl Arrangement {
    /// Lays out rows of `schema` for one part of an operator's state.
    pub(super) fn new(
        (node, part): (u16, u8),
        operator: &'static str,
        schema: SchemaRef,
        keys: Vec<KeyColumn>,
    ) -> Result<Arrangement> {
        let mut held = vec![None; schema.fields().len()];
        let mut fields = Vec::with_capacity(keys.len());
        for (at, (expr, options)) in keys.iter().enumerate() {
            fields.push(SortField::new_with_options(expr.data_type(&schema)?, *options));
            if let Some(column) = expr.as_any().downcast_ref::<Column>() {
                held[column.index()] = Some(at);
            }
        }
        let rest_columns: Vec<usize> = (0..held.len()).filter(|at| held[*at].is_none()).collect();
        for (at, column) in rest_columns.iter().enumerate() {
            held[*column] = Some(keys.len() + at);
        }
        let rest = rest_columns
            .iter()
            .map(|at| SortField::new(schema.field(*at).data_type().clone()));
        let rest: Vec<SortField> = rest.collect();
        let whole = fields.iter().chain(&rest).cloned().collect();
        let [high, low] = node.to_be_bytes();
        Ok(Arrangement {
            operator,
            head: [high, low, part],
            keys: keys.into_iter().map(|(expr, _)| expr).collect(),
            key: RowCodec::new(fields)?,
            rest: RowCodec::new(rest)?,
            whole: RowCodec::new(whole)?,
            rest_columns,
            held: held.into_iter().flatten().collect(),
            schema,
        })
    }

    /// Says whether all rows have the same key.
    pub(super) fn is_keyless(&self) -> bool {
        self.keys.is_empty()
    }

    /// Is the prefix of all rows.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Makes the prefix of a key's rows.
    pub(super) fn prefix(&self, key: &[u8]) -> Vec<u8> {
        [&self.head[..], key].concat()
    }

    /// Finds the state keys of changed rows, and adds up equal rows.
    pub(super) fn arrange(&self, changes: &ChangeBatch) -> Result<Arranged> {
        let count = changes.weights.len();
        let keys = evaluate(&self.keys, &changes.rows)?;
        let rest: Vec<ArrayRef> = self
            .rest_columns
            .iter()
            .map(|at| changes.rows.column(*at).clone())
            .collect();
        let (key_bytes, rest_bytes) = (self.key.encode(&keys)?, self.rest.encode(&rest)?);
        let mut all = Entries::default();
        for row in 0..count {
            let entry = [&self.head[..], key_bytes.row(row), rest_bytes.row(row)];
            let start = all.bytes.len();
            entry.iter().for_each(|part| all.bytes.extend_from_slice(part));
            all.ends.push((start + 3 + key_bytes.row(row).len(), all.bytes.len()));
        }
        let (firsts, weights) = rows::sums((0..count).map(|at| all.entry(at)), &changes.weights)?;
        let null_key = firsts
            .iter()
            .map(|at| keys.iter().any(|column| column.is_null(*at as usize)))
            .collect();
        let mut entries = Entries::default();
        for at in &firsts {
            let at = *at as usize;
            entries.push(all.entry(at), all.prefix(at).len());
        }
        Ok(Arranged {
            rows: rows::take(&changes.rows, firsts)?,
            weights,
            entries,
            null_key,
        })
    }

    /// Makes rows of state keys.
    pub(super) fn decode(&self, entries: &Entries) -> Result<RecordBatch> {
        let count = entries.len();
        let rows = (0..count).map(|at| &entries.entry(at)[self.head.len()..]);
        let columns = self.whole.decode(rows)?;
        let columns = self.held.iter().map(|at| columns[*at].clone());
        rows::batch(&self.schema, columns.collect(), count)
    }

    /// Reads the rows under prefixes, which must ascend: their state keys, weights, and prefixes.
    pub(super) fn load(&self, prefixes: &[&[u8]], access: &mut Access<'_>) -> Result<Loaded> {
        let mut loaded = Loaded::default();
        access.scan_weights(prefixes, self.operator, |prefix, key, weight| {
            loaded.entries.push(key, prefixes[prefix].len());
            loaded.weights.push(weight);
            loaded.prefixes.push(u32::try_from(prefix).map_err(|_| too_many())?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(loaded)
    }

    /// Adds rows' weights to the state; those of the rows that `known` tells need not be read.
    pub(super) fn write(
        &self,
        arranged: &Arranged,
        known: impl Fn(usize) -> Option<i64>,
        access: &mut Access<'_>,
    ) -> Result<()> {
        let unknown: Vec<usize> = (0..arranged.weights.len()).filter(|at| known(*at).is_none()).collect();
        let keys: Vec<&[u8]> = unknown.iter().map(|at| arranged.entries.entry(*at)).collect();
        let read = access.weights(&keys, self.operator)?;
        for (at, old) in unknown.into_iter().zip(read) {
            access.add(arranged.entries.entry(at), old, arranged.weights[at])?;
        }
        for (at, weight) in arranged.weights.iter().enumerate() {
            if let Some(old) = known(at) {
                access.add(arranged.entries.entry(at), old, *weight)?;
            }
        }
        Ok(())
    }

    /// Adds whole rows to state that is built.
    pub(super) fn fill(&self, rows: RecordBatch, null_keys: bool, builder: &mut dyn StateBuilder) -> Result<()> {
        let arranged = self.arrange(&ChangeBatch::of(rows, 1))?;
        for (at, weight) in arranged.weights.iter().enumerate() {
            if null_keys || !arranged.null_key[at] {
                builder.add(arranged.entries.entry(at), *weight).map_err(store)?;
            }
        }
        Ok(())
    }
}

/// Is rows read from state.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) entries: Entries,
    pub(super) weights: Vec<i64>,
    /// Holds the number of the prefix each row was found under.
    pub(super) prefixes: Vec<u32>,
}

impl Arranged {
    /// Keeps some of the rows.
    pub(super) fn only(&self, keep: impl Fn(usize) -> bool) -> Result<Arranged> {
        let kept: Vec<u32> = (0..self.weights.len() as u32).filter(|at| keep(*at as usize)).collect();
        self.take(kept)
    }

    /// Gives the rows with these numbers.
    pub(super) fn take(&self, numbers: Vec<u32>) -> Result<Arranged> {
        let mut entries = Entries::default();
        for at in &numbers {
            let at = *at as usize;
            entries.push(self.entries.entry(at), self.entries.prefix(at).len());
        }
        Ok(Arranged {
            weights: numbers.iter().map(|at| self.weights[*at as usize]).collect(),
            null_key: numbers.iter().map(|at| self.null_key[*at as usize]).collect(),
            rows: rows::take(&self.rows, numbers)?,
            entries,
        })
    }

    /// Finds rows by their state keys.
    pub(super) fn places(&self) -> HashMap<&[u8], usize> {
        (0..self.entries.len()).map(|at| (self.entries.entry(at), at)).collect()
    }

    /// Gives the rows as changes.
    pub(super) fn changes(&self) -> ChangeBatch {
        ChangeBatch {
            rows: self.rows.clone(),
            weights: self.weights.clone(),
        }
    }
}

/// Computes expressions over a batch.
pub(super) fn evaluate(exprs: &[Arc<dyn PhysicalExpr>], batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
    let rows = batch.num_rows();
    exprs
        .iter()
        .map(|expr| expr.evaluate(batch)?.into_array(rows))
        .collect()
}
