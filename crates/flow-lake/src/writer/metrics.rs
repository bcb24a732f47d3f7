//! Column statistics of a Parquet file, as Iceberg's manifests hold them.
//!
//! Bounds come from the footer, where a long string's may be cut: a cut lower bound is lower and
//! a cut upper bound was rounded up, so both still bound. Lists get sizes only, as elsewhere.

use std::collections::HashMap;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use flow_core::{ColumnType, TableSchema};
use iceberg::spec::{DataFileBuilder, Datum, PrimitiveType};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::statistics::Statistics;

/// Is one leaf column of the file, in file order.
#[derive(Clone, Debug)]
pub(super) struct MetricColumn {
    pub(super) field_id: i32,
    /// Is the type of its bounds; a list's element has none.
    pub(super) bound: Option<PrimitiveType>,
}

/// Lists a table's leaf columns: each column has exactly one.
pub(super) fn columns_of(schema: &TableSchema) -> Vec<MetricColumn> {
    let bound = |column_type: &ColumnType| {
        Some(match column_type {
            ColumnType::Boolean => PrimitiveType::Boolean,
            ColumnType::Int => PrimitiveType::Int,
            ColumnType::Long => PrimitiveType::Long,
            ColumnType::Float => PrimitiveType::Float,
            ColumnType::Double => PrimitiveType::Double,
            ColumnType::Decimal { precision, scale } => PrimitiveType::Decimal {
                precision: u32::from(*precision),
                scale: u32::from(*scale),
            },
            ColumnType::Date => PrimitiveType::Date,
            ColumnType::Time => PrimitiveType::Time,
            ColumnType::Timestamp => PrimitiveType::Timestamp,
            ColumnType::Timestamptz => PrimitiveType::Timestamptz,
            ColumnType::String => PrimitiveType::String,
            ColumnType::Binary => PrimitiveType::Binary,
            ColumnType::Uuid => PrimitiveType::Uuid,
            ColumnType::List(_) => return None,
        })
    };
    let columns = schema.columns.iter().map(|column| MetricColumn {
        field_id: column.element_id.unwrap_or(column.field_id),
        bound: bound(&column.column_type),
    });
    columns.collect()
}

/// Collects the statistics of one file.
#[derive(Debug)]
pub(super) struct Metrics {
    nans: Vec<u64>,
    sizes: HashMap<i32, u64>,
    values: HashMap<i32, u64>,
    nulls: HashMap<i32, u64>,
    lower: HashMap<i32, Datum>,
    upper: HashMap<i32, Datum>,
    nan_counts: HashMap<i32, u64>,
}

impl Metrics {
    pub(super) fn new(columns: usize) -> Self {
        Metrics {
            nans: vec![0; columns],
            sizes: HashMap::new(),
            values: HashMap::new(),
            nulls: HashMap::new(),
            lower: HashMap::new(),
            upper: HashMap::new(),
            nan_counts: HashMap::new(),
        }
    }

    /// Counts the NaNs of a batch; Parquet's own statistics leave them out.
    pub(super) fn count_nans(&mut self, columns: &[MetricColumn], batch: &RecordBatch) {
        for ((count, column), array) in self.nans.iter_mut().zip(columns).zip(batch.columns()) {
            *count += match &column.bound {
                Some(PrimitiveType::Float) => array.as_primitive_opt::<Float32Type>().map_or(0, |array| {
                    array.iter().flatten().filter(|value| value.is_nan()).count() as u64
                }),
                Some(PrimitiveType::Double) => array.as_primitive_opt::<Float64Type>().map_or(0, |array| {
                    array.iter().flatten().filter(|value| value.is_nan()).count() as u64
                }),
                _ => 0,
            };
        }
    }

    /// Reads the footer of the finished file.
    pub(super) fn read(&mut self, columns: &[MetricColumn], footer: &ParquetMetaData) -> Result<(), iceberg::Error> {
        for group in footer.row_groups() {
            for (chunk, column) in group.columns().iter().zip(columns) {
                let id = column.field_id;
                *self.sizes.entry(id).or_default() += u64::try_from(chunk.compressed_size()).unwrap_or(0);
                let Some(bound) = &column.bound else { continue };
                *self.values.entry(id).or_default() += u64::try_from(chunk.num_values()).unwrap_or(0);
                let Some(statistics) = chunk.statistics() else { continue };
                *self.nulls.entry(id).or_default() += statistics.null_count_opt().unwrap_or(0);
                if let Some((low, high)) = bounds(statistics, bound)? {
                    keep(&mut self.lower, id, low, |new, old| new < old);
                    keep(&mut self.upper, id, high, |new, old| new > old);
                }
            }
        }
        for (count, column) in self.nans.iter().zip(columns) {
            if matches!(column.bound, Some(PrimitiveType::Float | PrimitiveType::Double)) {
                self.nan_counts.insert(column.field_id, *count);
            }
        }
        Ok(())
    }

    pub(super) fn fill(self, builder: &mut DataFileBuilder) {
        builder
            .column_sizes(self.sizes)
            .value_counts(self.values)
            .null_value_counts(self.nulls)
            .nan_value_counts(self.nan_counts)
            .lower_bounds(self.lower)
            .upper_bounds(self.upper);
    }
}

fn keep(bounds: &mut HashMap<i32, Datum>, id: i32, new: Datum, better: impl Fn(&Datum, &Datum) -> bool) {
    match bounds.get(&id) {
        Some(old) if !better(&new, old) => {}
        _ => {
            bounds.insert(id, new);
        }
    }
}

/// Reads both bounds; `None` if the footer has none, as for a column of NULLs or NaNs.
fn bounds(statistics: &Statistics, bound: &PrimitiveType) -> Result<Option<(Datum, Datum)>, iceberg::Error> {
    let (Some(low), Some(high)) = (statistics.min_bytes_opt(), statistics.max_bytes_opt()) else {
        return Ok(None);
    };
    let datum = |bytes: &[u8]| {
        // Parquet stores small decimals little-endian, Iceberg all of them big-endian.
        let little_endian = matches!(statistics, Statistics::Int32(_) | Statistics::Int64(_));
        match bound {
            PrimitiveType::Decimal { .. } if little_endian => {
                let big: Vec<u8> = bytes.iter().rev().copied().collect();
                Datum::try_from_bytes(&big, bound.clone())
            }
            _ => Datum::try_from_bytes(bytes, bound.clone()),
        }
    };
    Ok(Some((datum(low)?, datum(high)?)))
}
