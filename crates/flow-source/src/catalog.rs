//! Tables as PostgreSQL's catalog describes them, seen through our publication.
//!
//! Types are resolved here: domains to their base, arrays to their element, enums to text. Two
//! types of one name in different schemas stay apart, since everything goes by oid.

use std::collections::BTreeMap;

use flow_core::{ColumnType, TableName};
use tokio_postgres::Row;

use crate::capture::{ReplicaIdentity, SourceColumn, SourceTable, TableKind};
use crate::error::SourceError;
use crate::sql::Sql;
use crate::wire_types::{Refusal, Resolved, Wire, default_type, scalar};

/// Bounds how deep domains over domains are followed; a cycle cannot exist, corruption can.
const TYPE_DEPTH_MAX: usize = 32;

/// Says which tables to read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which<'a> {
    /// Tables of the publication; of one schema only, if given.
    Published(Option<&'a str>),
    /// Tables by name, published or not.
    Named(&'a [TableName]),
}

/// Is one type's row in `pg_type`.
#[derive(Clone, Debug)]
struct TypeRow {
    name: String,
    kind: i8,
    category: i8,
    base: u32,
    base_mod: i32,
    element: u32,
    output_is_array: bool,
}

/// Is what the catalog says of types, by oid.
#[derive(Debug, Default)]
struct Types(BTreeMap<u32, TypeRow>);

impl Types {
    /// Follows a type to what its values are. Gives the base's name too, where a domain stood before it.
    fn resolve(&self, oid: u32, type_mod: i32) -> Result<(Resolved, Option<String>), Refusal> {
        let mut oid = oid;
        let mut type_mod = type_mod;
        let mut base_name = None;
        for _ in 0..TYPE_DEPTH_MAX {
            if let Some(wire) = scalar(oid) {
                let column_type = default_type(&wire, type_mod);
                return Ok((Resolved { wire, column_type }, base_name));
            }
            let Some(row) = self.0.get(&oid) else { break };
            match row.kind as u8 {
                b'e' => {
                    let resolved = Resolved {
                        wire: Wire::Text,
                        column_type: ColumnType::String,
                    };
                    return Ok((resolved, base_name));
                }
                b'd' => {
                    oid = row.base;
                    if row.base_mod >= 0 {
                        type_mod = row.base_mod;
                    }
                    base_name = Some(self.name_of(oid, type_mod));
                }
                _ if row.element != 0 && row.output_is_array && row.category as u8 == b'A' => {
                    let (element, _) = self.resolve(row.element, type_mod)?;
                    if matches!(element.wire, Wire::Array(_)) {
                        return Err(refusal(&row.name));
                    }
                    let column_type = ColumnType::List(Box::new(element.column_type));
                    let wire = Wire::Array(Box::new(element.wire));
                    return Ok((Resolved { wire, column_type }, base_name));
                }
                _ => return Err(refusal(&row.name)),
            }
        }
        Err(refusal(&self.name_of(oid, -1)))
    }

    fn name_of(&self, oid: u32, type_mod: i32) -> String {
        let name = self
            .0
            .get(&oid)
            .map_or_else(|| format!("with oid {oid}"), |row| row.name.clone());
        match crate::wire_types::numeric_modifier(type_mod) {
            Some((precision, scale)) if name.starts_with("numeric") => {
                let rest = &name["numeric".len()..];
                format!("numeric({precision},{scale}){rest}")
            }
            _ => name,
        }
    }
}

fn refusal(type_name: &str) -> Refusal {
    Refusal {
        reason: format!("type {type_name} cannot be captured"),
        remedy: "leave the column out of the publication with a column list (PostgreSQL 15 and later), \
                 or give it a type that docs/postgres-types.md lists"
            .to_owned(),
    }
}

/// Reads tables with their columns, in name order.
///
/// # Errors
/// Connection errors by their kind.
pub(crate) async fn read_tables(
    sql: &Sql,
    publication: &str,
    which: Which<'_>,
) -> Result<Vec<SourceTable>, SourceError> {
    let rows = table_rows(sql, publication, which).await?;
    let oids: Vec<u32> = rows.iter().map(|row| row.get("oid")).collect();
    let columns = sql.query("reading columns", COLUMNS_SQL, &[&oids]).await?;
    let types = read_types(sql, &columns).await?;
    let generated_sent = sends_generated(sql, publication).await?;
    Ok(rows
        .iter()
        .map(|row| {
            let oid: u32 = row.get("oid");
            let own = columns.iter().filter(|column| column.get::<_, u32>("attrelid") == oid);
            table(row, own, &types, generated_sent)
        })
        .collect())
}

/// Says whether the publication sends stored generated columns (PostgreSQL 18).
async fn sends_generated(sql: &Sql, publication: &str) -> Result<bool, SourceError> {
    let text = "SELECT coalesce(to_jsonb(p)->>'pubgencols', 'n') FROM pg_publication p WHERE pubname = $1";
    let rows = sql.query("reading the publication", text, &[&publication]).await?;
    Ok(rows.first().is_some_and(|row| row.get::<_, String>(0) == "s"))
}

async fn table_rows(sql: &Sql, publication: &str, which: Which<'_>) -> Result<Vec<Row>, SourceError> {
    // Before 15 there are neither column lists nor row filters.
    let schemas = match sql.version {
        ..150_000 => "false",
        _ => "EXISTS (SELECT FROM pg_publication_namespace x WHERE x.pnpubid = p.oid AND x.pnnspid = c.relnamespace)",
    };
    let (filter, list) = match sql.version {
        ..150_000 => ("NULL::text", "NULL::int2[]"),
        // A publication that has the table's whole schema, or all tables, ignores the table's own row.
        _ => (
            "CASE WHEN w.whole THEN NULL ELSE pg_get_expr(pr.prqual, pr.prrelid) END",
            "CASE WHEN w.whole THEN NULL ELSE pr.prattrs::int2[] END",
        ),
    };
    let text = format!(
        "SELECT c.oid, n.nspname::text AS schema, c.relname::text AS name, c.relkind, c.relispartition, \
         c.relpersistence, c.relreplident, c.reltuples::float8, pg_table_size(c.oid) AS bytes, \
         EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid OR i.inhparent = c.oid) AS inherits, \
         row_security_active(c.oid) AS row_security, \
         has_table_privilege(c.oid, 'SELECT') OR NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid \
           AND a.attnum > 0 AND NOT a.attisdropped AND NOT has_column_privilege(c.oid, a.attnum, 'SELECT')) AS selectable, \
         pt.relid IS NOT NULL AS published, {filter} AS row_filter, {list} AS column_list, \
         k.indkey::int2[] AS primary_key, NOT k.indimmediate AS deferrable_key, r.indkey::int2[] AS identity_key \
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         LEFT JOIN (SELECT DISTINCT g.relid FROM pg_publication p, pg_get_publication_tables(p.pubname::text) g \
           WHERE p.pubname = $1) pt ON pt.relid = c.oid \
         LEFT JOIN (pg_publication_rel pr JOIN pg_publication p ON p.oid = pr.prpubid AND p.pubname = $1) \
           ON pr.prrelid = c.oid \
         LEFT JOIN LATERAL (SELECT p.puballtables OR {schemas} AS whole FROM pg_publication p \
           WHERE p.pubname = $1) w ON true \
         LEFT JOIN pg_index k ON k.indrelid = c.oid AND k.indisprimary \
         LEFT JOIN pg_index r ON r.indrelid = c.oid AND r.indisreplident \
         WHERE ($2 AND pt.relid IS NOT NULL AND ($3::text IS NULL OR n.nspname = $3)) \
           OR (NOT $2 AND (n.nspname, c.relname) IN (SELECT * FROM unnest($4::text[], $5::text[]))) \
         ORDER BY n.nspname COLLATE \"C\", c.relname COLLATE \"C\""
    );
    let (published, schema, names): (bool, Option<&str>, &[TableName]) = match which {
        Which::Published(schema) => (true, schema, &[]),
        Which::Named(names) => (false, None, names),
    };
    let name_schemas: Vec<&str> = names.iter().map(|n| n.schema.as_str()).collect();
    let tables: Vec<&str> = names.iter().map(|n| n.name.as_str()).collect();
    sql.query(
        "reading tables",
        &text,
        &[&publication, &published, &schema, &name_schemas, &tables],
    )
    .await
}

const COLUMNS_SQL: &str = "SELECT a.attrelid, a.attname::text, a.attnum, a.atttypid, a.atttypmod, \
     format_type(a.atttypid, a.atttypmod) AS type_name, a.attnotnull, a.attgenerated, \
     coalesce(NOT l.collisdeterministic, false) AS nondeterministic \
     FROM pg_attribute a LEFT JOIN pg_collation l ON l.oid = a.attcollation \
     WHERE a.attrelid = ANY($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attrelid, a.attnum";

/// Reads the types of columns and whatever types those stand on.
async fn read_types(sql: &Sql, columns: &[Row]) -> Result<Types, SourceError> {
    let oids: Vec<u32> = columns.iter().map(|column| column.get("atttypid")).collect();
    let text = "WITH RECURSIVE needed(oid) AS (SELECT unnest($1::oid[]) UNION \
         SELECT x FROM needed JOIN pg_type t ON t.oid = needed.oid, unnest(ARRAY[t.typbasetype, t.typelem]) x \
         WHERE x <> 0) \
         SELECT t.oid, format_type(t.oid, NULL) AS name, t.typtype, t.typcategory, t.typbasetype, t.typtypmod, \
         t.typelem, t.typoutput = 'array_out'::regproc AS output_is_array \
         FROM needed JOIN pg_type t ON t.oid = needed.oid";
    let rows = sql.query("reading types", text, &[&oids]).await?;
    let row = |row: &Row| {
        let value = TypeRow {
            name: row.get("name"),
            kind: row.get("typtype"),
            category: row.get("typcategory"),
            base: row.get("typbasetype"),
            base_mod: row.get("typtypmod"),
            element: row.get("typelem"),
            output_is_array: row.get("output_is_array"),
        };
        (row.get("oid"), value)
    };
    Ok(Types(rows.iter().map(row).collect()))
}

fn table<'a>(row: &Row, columns: impl Iterator<Item = &'a Row>, types: &Types, generated_sent: bool) -> SourceTable {
    let list: Option<Vec<i16>> = row.get("column_list");
    let published: bool = row.get("published");
    let columns = columns.map(|row| {
        let mut column = column(row, types);
        column.published = published
            && match (&list, row.get::<_, i8>("attgenerated") as u8) {
                (Some(list), _) => list.contains(&column.attnum),
                (None, 0) => true,
                // A virtual column (PostgreSQL 18) is computed when it is read, and never sent.
                (None, kind) => generated_sent && kind == b's',
            };
        column
    });
    let columns: Vec<SourceColumn> = columns.collect();
    let places = |attnums: Option<Vec<i16>>| -> Vec<usize> {
        let attnums = attnums.unwrap_or_default();
        let place = |attnum: &i16| columns.iter().position(|c| c.attnum == *attnum);
        attnums.iter().filter_map(place).collect()
    };
    let primary_key = places(row.get("primary_key"));
    let deferrable_key = row.get::<_, Option<bool>>("deferrable_key").unwrap_or(false);
    let identity = places(row.get("identity_key"));
    let (replica_identity, identity_columns) = match row.get::<_, i8>("relreplident") as u8 {
        b'f' => (ReplicaIdentity::Full, (0..columns.len()).collect()),
        b'i' => (ReplicaIdentity::Index, identity),
        b'n' => (ReplicaIdentity::Nothing, Vec::new()),
        // A deferrable key is never the identity: it may be violated between two changes.
        _ if deferrable_key => (ReplicaIdentity::Default, Vec::new()),
        _ => (ReplicaIdentity::Default, primary_key.clone()),
    };
    let kind = match row.get::<_, i8>("relkind") as u8 {
        b'p' => TableKind::Partitioned,
        b'r' if row.get("relispartition") => TableKind::Partition,
        b'r' if row.get("inherits") => TableKind::Inherited,
        b'r' if row.get::<_, i8>("relpersistence") as u8 == b'p' => TableKind::Ordinary,
        _ => TableKind::Other,
    };
    let list_names = list.map(|list| {
        let listed = columns.iter().filter(|c| list.contains(&c.attnum));
        listed.map(|c| c.name.clone()).collect()
    });
    SourceTable {
        oid: row.get("oid"),
        name: TableName::new(row.get::<_, String>("schema"), row.get::<_, String>("name")),
        kind,
        primary_key,
        deferrable_key,
        replica_identity,
        identity_columns,
        published,
        row_filter: row.get("row_filter"),
        column_list: list_names,
        row_security: row.get("row_security"),
        selectable: row.get("selectable"),
        estimated_rows: row.get::<_, f64>("reltuples") as i64,
        estimated_bytes: u64::try_from(row.get::<_, i64>("bytes")).unwrap_or(0),
        columns,
    }
}

fn column(row: &Row, types: &Types) -> SourceColumn {
    let type_oid: u32 = row.get("atttypid");
    let type_mod: i32 = row.get("atttypmod");
    let declared: String = row.get("type_name");
    let resolved = types.resolve(type_oid, type_mod);
    let type_name = match &resolved {
        // The base comes first: what a value is matters more than what it is called.
        Ok((_, Some(base))) => format!("{base} (domain {declared})"),
        _ => declared,
    };
    let (wire, column_type) = match resolved {
        Ok((resolved, _)) => (Some(resolved.wire), Ok(resolved.column_type)),
        Err(refusal) => (None, Err(refusal)),
    };
    SourceColumn {
        name: row.get("attname"),
        attnum: row.get("attnum"),
        type_oid,
        type_mod,
        type_name,
        column_type,
        wire,
        generated: row.get::<_, i8>("attgenerated") != 0,
        not_null: row.get("attnotnull"),
        published: false,
        nondeterministic: row.get("nondeterministic"),
    }
}
