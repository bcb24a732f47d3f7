//! From what the SQL engine gives to what an Iceberg table holds.

use flow_core::TableSchema;

/// Names the four lineage columns of every dynamic table, in their order.
pub const LINEAGE_COLUMNS: [&str; 4] = [
    "_flow_input_snapshot_id",
    "_flow_job_run_id",
    "_flow_processed_at",
    "_flow_refresh_mode",
];

/// Shows both sides where a definition's columns and the stored ones differ in name, type or order.
pub fn schema_difference(planned: &TableSchema, stored: &TableSchema) -> Option<String> {
    let show = |schema: &TableSchema| {
        let columns: Vec<String> = schema
            .columns
            .iter()
            .filter(|column| !LINEAGE_COLUMNS.contains(&column.name.as_str()))
            .map(|column| format!("{} {}", column.name, column.column_type))
            .collect();
        columns.join(", ")
    };
    let (planned, stored) = (show(planned), show(stored));
    (planned != stored).then(|| format!("definition gives ({planned}), table has ({stored})"))
}
