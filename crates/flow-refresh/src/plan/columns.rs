//! The columns of inputs: which a definition may name, which it reads, and what became of them.
//!
//! 1. The first refresh of a definition writes the columns of its inputs into its table's properties
//!    ([`DeclaredColumns`]). From then on they are what its SELECT, `*` included, is compiled over.
//! 2. Columns that came later are not taken up. Where the SELECT would read them, that is drift.
//! 3. A column that went or has another type matters only to a SELECT that reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use flow_core::lake::LakeTable;
use flow_core::{ColumnType, TableName};
use serde::{Deserialize, Serialize};

use crate::delta::DeltaPlan;
use crate::output::column_type;

/// Is the property of a dynamic table that holds its [`DeclaredColumns`].
pub const INPUT_COLUMNS: &str = "flow.input-columns";

/// Is the property that holds the hash of the query which they belong to.
pub const QUERY_HASH: &str = "flow.query-hash";

/// Holds what a definition may name of its inputs, by input and in order: their columns when the
/// definition was first refreshed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeclaredColumns(BTreeMap<String, Vec<DeclaredColumn>>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DeclaredColumn {
    name: String,
    #[serde(rename = "type")]
    data_type: DeclaredType,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum DeclaredType {
    Known(ColumnType),
    /// Is a type that no dynamic table stores, a struct say, as the engine calls it.
    Other(String),
}

impl DeclaredType {
    fn of(data_type: &DataType) -> DeclaredType {
        match column_type(data_type) {
            Ok(known) if flow_core::arrow::data_type(&known, None) == *data_type => DeclaredType::Known(known),
            _ => DeclaredType::Other(data_type.to_string()),
        }
    }
}

impl std::fmt::Display for DeclaredType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DeclaredType::Known(known) => known.fmt(f),
            DeclaredType::Other(text) => f.write_str(text),
        }
    }
}

impl DeclaredColumns {
    /// Takes the columns that inputs have.
    pub(crate) fn of(schemas: &BTreeMap<TableName, SchemaRef>) -> DeclaredColumns {
        let columns = |schema: &SchemaRef| {
            let fields = schema.fields().iter().map(|field| DeclaredColumn {
                name: field.name().clone(),
                data_type: DeclaredType::of(field.data_type()),
            });
            fields.collect()
        };
        let inputs = schemas.iter().map(|(name, schema)| (name.to_string(), columns(schema)));
        DeclaredColumns(inputs.collect())
    }

    /// Reads what a table was declared over, if it was by this query.
    pub(crate) fn stored(table: &LakeTable, query_hash: &str) -> Option<DeclaredColumns> {
        let property = |key: &str| table.properties.get(key);
        if property(QUERY_HASH).map(String::as_str) != Some(query_hash) {
            return None;
        }
        // What another program wrote there counts for nothing.
        serde_json::from_str(property(INPUT_COLUMNS)?).ok()
    }

    /// Is an input's columns as they were declared; those of today for an input that is not known.
    pub(crate) fn fix(&self, name: &TableName, today: &SchemaRef) -> SchemaRef {
        let Some(columns) = self.0.get(&name.to_string()) else {
            return today.clone();
        };
        let fields = columns.iter().filter_map(|column| {
            let now = today.field_with_name(&column.name).ok();
            match (&column.data_type, now) {
                (declared, Some(now)) if DeclaredType::of(now.data_type()) == *declared => Some(now.clone()),
                (DeclaredType::Known(known), _) => {
                    let data_type = flow_core::arrow::data_type(known, None);
                    Some(Field::new(&column.name, data_type, true))
                }
                // Without its type nothing can be compiled over it.
                (DeclaredType::Other(_), _) => None,
            }
        });
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }
}

/// Appends the columns that came later.
pub(crate) fn with_later(declared: &SchemaRef, today: &SchemaRef) -> SchemaRef {
    let later = today.fields().iter().filter(|field| {
        let known = declared.field_with_name(field.name());
        known.is_err()
    });
    let fields = declared.fields().iter().chain(later).cloned();
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Holds the columns that a definition reads, of each input.
pub(crate) type ReadColumns = BTreeMap<TableName, BTreeMap<String, DataType>>;

/// Finds what an optimised plan and the operators over changes read.
pub(crate) fn read_columns(optimised: &LogicalPlan, delta: Option<&DeltaPlan>) -> Result<ReadColumns> {
    let mut read = ReadColumns::new();
    optimised.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let name = TableName::new(scan.table_name.schema().unwrap_or_default(), scan.table_name.table());
            let fields = scan.projected_schema.fields().iter();
            let columns = fields.map(|field| (field.name().clone(), field.data_type().clone()));
            read.entry(name).or_default().extend(columns);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    for (name, field) in delta.into_iter().flat_map(DeltaPlan::read_fields) {
        let columns = read.entry(name.clone()).or_default();
        columns.insert(field.name().clone(), field.data_type().clone());
    }
    Ok(read)
}

/// Is a column that is read and is not there as it was declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) column: String,
    /// Says what became of it.
    pub(crate) message: String,
}

/// Finds the first column that is read of an input and is gone or has another type in `found`.
pub(crate) fn changed(read: &ReadColumns, input: &TableName, found: &Schema) -> Option<Changed> {
    let shown = |data_type: &DataType| DeclaredType::of(data_type).to_string();
    read.get(input)?.iter().find_map(|(column, declared)| {
        let message = match found.field_with_name(column) {
            Ok(field) => {
                let plain = crate::source::plain_type(field.data_type());
                if plain == *declared {
                    return None;
                }
                let (had, has) = (shown(declared), shown(&plain));
                format!("column {column} of {input} was {had} and is {has}")
            }
            Err(_) => format!("column {column} of {input}, {}, is gone", shown(declared)),
        };
        Some(Changed {
            column: column.clone(),
            message,
        })
    })
}

/// Says which of the columns that came later a SELECT would read: one note an input.
pub(crate) fn drift(declared: &BTreeMap<TableName, SchemaRef>, read_today: &ReadColumns) -> Vec<String> {
    let inputs = declared.iter().filter_map(|(name, schema)| {
        let known: BTreeSet<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let columns = read_today.get(name)?.keys().map(String::as_str);
        let later: Vec<&str> = columns.filter(|column| !known.contains(column)).collect();
        (!later.is_empty()).then(|| note(name, &later))
    });
    inputs.collect()
}

/// Lists every column that came later, where the SELECT cannot be compiled with them.
pub(crate) fn all_later(
    declared: &BTreeMap<TableName, SchemaRef>,
    today: &BTreeMap<TableName, SchemaRef>,
) -> Vec<String> {
    let inputs = declared.iter().filter_map(|(name, schema)| {
        let fields = today.get(name)?.fields().iter().map(|field| field.name().as_str());
        let later: Vec<&str> = fields.filter(|field| schema.field_with_name(field).is_err()).collect();
        (!later.is_empty()).then(|| note(name, &later))
    });
    inputs.collect()
}

fn note(input: &TableName, later: &[&str]) -> String {
    let (noun, verb) = match later.len() {
        1 => ("column", "is"),
        _ => ("columns", "are"),
    };
    format!(
        "drift: {input} has {noun} {} since this table was declared, which `*` does not take up: its columns are \
         fixed; declare another table to read what {verb} new",
        later.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use arrow_schema::TimeUnit;

    use super::*;

    fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
        let fields = columns.iter().map(|(name, kind)| Field::new(*name, kind.clone(), true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    #[test]
    fn declared_columns_outlive_what_becomes_of_the_input() {
        let name = TableName::new("n", "t");
        let list = flow_core::arrow::data_type(&ColumnType::List(Box::new(ColumnType::Long)), None);
        let other = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let before = schema(&[
            ("a", DataType::Int32),
            ("b", DataType::Decimal128(12, 2)),
            ("c", list),
            ("d", other.clone()),
            ("e", other.clone()),
        ]);
        let declared = DeclaredColumns::of(&BTreeMap::from([(name.clone(), before.clone())]));
        let text = serde_json::to_string(&declared).expect("it has a text");
        let declared: DeclaredColumns = serde_json::from_str(&text).expect("its own text");
        assert_eq!(declared.fix(&name, &before), before);
        // One came, one went, one has another type; of those without a known type one went.
        let after = schema(&[("x", DataType::Utf8), ("b", DataType::Int64), ("d", other.clone())]);
        let fixed = schema(&[
            ("a", DataType::Int32),
            ("b", DataType::Decimal128(12, 2)),
            ("c", before.field(2).data_type().clone()),
            ("d", other),
        ]);
        assert_eq!(declared.fix(&name, &after), fixed);
        assert_eq!(with_later(&fixed, &after).field(4).name(), "x");
        let unknown = TableName::new("n", "u");
        assert_eq!(declared.fix(&unknown, &after), after);
    }
}
