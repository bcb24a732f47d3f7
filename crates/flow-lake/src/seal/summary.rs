//! A snapshot's summary: what it added, and the table's totals after it.

use std::collections::HashMap;

use iceberg::spec::{DataFile, SnapshotSummaryCollector, TableMetadata};

use super::Plan;
use crate::OPERATION_ID;

/// Pairs each total with what a snapshot of ours adds to it.
const TOTALS: [(&str, &str); 6] = [
    ("total-records", "added-records"),
    ("total-data-files", "added-data-files"),
    ("total-files-size", "added-files-size"),
    ("total-delete-files", "added-delete-files"),
    ("total-position-deletes", "added-position-deletes"),
    ("total-equality-deletes", "added-equality-deletes"),
];

/// Builds the summary without its `operation`.
///
/// A total that the parent lacks stays unknown, as the specification's totals are optional and a
/// wrong one would mislead planners.
pub(super) fn build(base: &TableMetadata, plan: &Plan, files: &[DataFile]) -> HashMap<String, String> {
    let mut collector = SnapshotSummaryCollector::default();
    for file in files {
        let schema = base.current_schema().clone();
        collector.add_file(file, schema, base.default_partition_spec().clone());
    }
    let mut summary = collector.build();
    let number = |summary: &HashMap<String, String>, key: &str| summary.get(key).map(|text| text.parse::<u64>());
    for (total, added) in TOTALS {
        let before = match base.current_snapshot() {
            None => Some(0),
            Some(parent) => match number(&parent.summary().additional_properties, total) {
                Some(Ok(before)) => Some(before),
                _ => None,
            },
        };
        let added = match number(&summary, added) {
            Some(Ok(added)) => added,
            _ => 0,
        };
        if let Some(before) = before {
            summary.insert(total.to_owned(), (before + added).to_string());
        }
    }
    summary.extend(plan.summary.clone());
    summary.insert(OPERATION_ID.to_owned(), plan.attempt_id.clone());
    summary
}
