//! Whether one table can be captured as asked, and as what.
//!
//! Pure: the catalog's description and the request go in, faults or a schema come out.

use flow_core::{Column, ColumnType, Lsn, TableId, TableSchema};

use crate::capture::{
    CaptureColumn, CaptureTable, ReplicaIdentity, SourceColumn, SourceTable, TableKind, TableRequest,
};
use crate::error::SourceError;
use crate::wire_types::{Target, Wire, choose};

/// Is one reason against capturing a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Names the question, as a check of preflight.
    pub(crate) check: &'static str,
    /// Says what was found.
    pub(crate) message: String,
    /// Says what to do.
    pub(crate) remedy: String,
}

/// Is the outcome: a schema that counts only without faults.
#[derive(Clone, Debug)]
pub(crate) struct Agreement {
    pub(crate) faults: Vec<Fault>,
    /// Says what is left out and the like: nothing to act on.
    pub(crate) notes: Vec<String>,
    pub(crate) schema: TableSchema,
    pub(crate) columns: Vec<CaptureColumn>,
}

fn fault(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Fault {
    Fault {
        check,
        message: message.into(),
        remedy: remedy.into(),
    }
}

/// Agrees a request with the catalog.
pub(crate) fn agree(request: &TableRequest, table: &SourceTable) -> Agreement {
    let mut agreement = Agreement {
        faults: Vec::new(),
        notes: Vec::new(),
        schema: TableSchema {
            columns: Vec::new(),
            key: Vec::new(),
        },
        columns: Vec::new(),
    };
    check_kind(table, &mut agreement.faults);
    check_publication(request, table, &mut agreement);
    let key = key_columns(request, table, &mut agreement.faults);
    for name in request.types.keys() {
        if !table.columns.iter().any(|c| c.published && &c.name == name) {
            let message = format!("types names column {name}, which is not captured");
            agreement.faults.push(fault("types", message, "correct the name"));
        }
    }
    let published = table.published_columns();
    for &index in &published {
        add_column(request, &table.columns[index], key.contains(&index), &mut agreement);
    }
    if agreement.columns.len() == published.len() {
        let place = |index: &usize| published.iter().position(|p| p == index);
        agreement.schema.key = key.iter().filter_map(place).collect();
        if agreement.schema.key.len() != key.len() {
            agreement.faults.push(fault(
                "primary key",
                "the publication does not send every key column",
                "add the key's columns to the publication's column list",
            ));
        }
    }
    agreement.schema.assign_field_ids();
    agreement
}

fn check_kind(table: &SourceTable, faults: &mut Vec<Fault>) {
    let what = match table.kind {
        TableKind::Ordinary => None,
        TableKind::Partitioned => Some("it is partitioned"),
        TableKind::Partition => Some("it is a partition"),
        TableKind::Inherited => Some("it inherits or is inherited from"),
        TableKind::Other => Some("it is not an ordinary, logged table"),
    };
    if let Some(what) = what {
        let remedy = "such tables cannot be captured; remove it from [[tables]]";
        faults.push(fault("table kind", what, remedy));
    }
    if table.row_security {
        faults.push(fault(
            "row-level security",
            "row-level security would hide rows from the role",
            format!("use a role with BYPASSRLS, or the owner of {}", table.name.quoted()),
        ));
    }
    if !table.selectable {
        faults.push(fault(
            "SELECT",
            "the role may not read the table",
            format!("GRANT SELECT ON {} TO the role", table.name.quoted()),
        ));
    }
}

fn check_publication(request: &TableRequest, table: &SourceTable, agreement: &mut Agreement) {
    if !table.published {
        agreement.faults.push(fault(
            "publication",
            "the publication does not contain the table",
            format!("ALTER PUBLICATION … ADD TABLE {}", table.name.quoted()),
        ));
        return;
    }
    let left_out = |c: &&SourceColumn| c.generated && !c.published;
    let generated: Vec<&str> = table.columns.iter().filter(left_out).map(|c| c.name.as_str()).collect();
    if !generated.is_empty() {
        let text = format!(
            "generated columns are not sent and are left out: {}",
            generated.join(", ")
        );
        agreement.notes.push(text);
    }
    let Some(wanted) = &request.columns else { return };
    let sent: Vec<&str> = table
        .columns
        .iter()
        .filter(|c| c.published)
        .map(|c| c.name.as_str())
        .collect();
    let missing: Vec<&str> = wanted
        .iter()
        .map(String::as_str)
        .filter(|c| !sent.contains(c))
        .collect();
    let extra: Vec<&str> = sent
        .iter()
        .copied()
        .filter(|c| !wanted.iter().any(|w| w == c))
        .collect();
    if !missing.is_empty() {
        agreement.faults.push(fault(
            "columns",
            format!("the publication does not send {}", missing.join(", ")),
            "correct columns, or the publication's column list",
        ));
    }
    if !extra.is_empty() {
        agreement.faults.push(fault(
            "columns",
            format!("the publication also sends {}", extra.join(", ")),
            format!(
                "give the publication the column list: ALTER PUBLICATION … SET TABLE {} ({}) (PostgreSQL 15 and later)",
                table.name.quoted(),
                wanted.join(", ")
            ),
        ));
    }
}

/// Finds the key's columns, as indexes into the table's.
fn key_columns(request: &TableRequest, table: &SourceTable, faults: &mut Vec<Fault>) -> Vec<usize> {
    if request.append_only {
        if request.primary_key.is_some() {
            let message = "append_only and primary_key exclude each other";
            faults.push(fault("primary key", message, "remove one of them"));
        }
        return Vec::new();
    }
    let full = table.replica_identity == ReplicaIdentity::Full;
    let key = match &request.primary_key {
        Some(names) => {
            let mut key = Vec::new();
            for name in names {
                match table.columns.iter().position(|c| &c.name == name) {
                    Some(index) if !key.contains(&index) => key.push(index),
                    Some(_) => faults.push(fault("primary key", format!("{name} is named twice"), "name it once")),
                    None => faults.push(fault(
                        "primary key",
                        format!("there is no column {name}"),
                        "correct primary_key",
                    )),
                }
            }
            key
        }
        None if full => table.primary_key.clone(),
        None => table.identity_columns.clone(),
    };
    if key.is_empty() {
        faults.push(no_key(table));
        return key;
    }
    let mut same = key.clone();
    same.sort_unstable();
    let mut identity = table.identity_columns.clone();
    identity.sort_unstable();
    if !full && same != identity {
        faults.push(fault(
            "replica identity",
            match identity.is_empty() {
                true => "the table sends no old rows: it has no usable replica identity",
                false => "primary_key is not the replica identity",
            },
            format!(
                "ALTER TABLE {} REPLICA IDENTITY FULL, or USING INDEX on exactly these columns",
                table.name.quoted()
            ),
        ));
    }
    key
}

fn no_key(table: &SourceTable) -> Fault {
    let name = table.name.quoted();
    match table.deferrable_key {
        // A deferrable key may hold two rows for a while, so PostgreSQL never identifies rows by it.
        true => fault(
            "replica identity",
            "the primary key is deferrable and so is not the replica identity",
            format!("ALTER TABLE {name} REPLICA IDENTITY FULL"),
        ),
        false => fault(
            "primary key",
            "the table has no key",
            format!(
                "add a primary key; or ALTER TABLE {name} REPLICA IDENTITY FULL and set primary_key; \
                 or set append_only = true if rows are only ever inserted"
            ),
        ),
    }
}

fn add_column(request: &TableRequest, column: &SourceColumn, in_key: bool, agreement: &mut Agreement) {
    let choice = request.types.get(&column.name);
    let (wire, column_type, target) = match (&column.column_type, &column.wire, choice) {
        (Ok(_), Some(wire), Some(choice)) => match choose(wire, choice) {
            Ok((column_type, target)) => (wire, column_type, target),
            Err(reason) => {
                let message = format!("column {}: {reason}", column.name);
                agreement.faults.push(fault("types", message, "correct types"));
                return;
            }
        },
        (Ok(column_type), Some(wire), None) => (wire, column_type.clone(), Target::Native),
        (Err(refusal), ..) => {
            let message = format!("column {}: {}", column.name, refusal.reason);
            agreement.faults.push(fault("types", message, refusal.remedy.clone()));
            return;
        }
        (Ok(_), None, _) => return,
    };
    if in_key && let Some(reason) = why_no_key(column, wire, &column_type, &target) {
        agreement.faults.push(fault(
            "primary key",
            format!("key column {} {reason}", column.name),
            "choose another key, with REPLICA IDENTITY FULL or USING INDEX",
        ));
    }
    agreement.columns.push(CaptureColumn {
        attnum: column.attnum,
        type_oid: column.type_oid,
        type_mod: column.type_mod,
        wire: wire.clone(),
        target,
    });
    agreement.schema.columns.push(Column {
        name: column.name.clone(),
        field_id: 0,
        element_id: None,
        column_type,
        required: in_key,
        source_type: column.type_name.clone(),
    });
}

/// Says why a column cannot be part of a key: its values could be equal for PostgreSQL and differ here.
fn why_no_key(column: &SourceColumn, wire: &Wire, column_type: &ColumnType, target: &Target) -> Option<&'static str> {
    let element = match wire {
        Wire::Array(element) => element,
        scalar => scalar,
    };
    let text_number = match column_type {
        ColumnType::List(element) => **element == ColumnType::String,
        other => other == &ColumnType::String,
    };
    if column.generated {
        return Some("is generated");
    }
    if !column.not_null {
        return Some("may be NULL; declare it NOT NULL");
    }
    if column.nondeterministic {
        return Some("has a nondeterministic collation: different texts are equal");
    }
    match element {
        Wire::Jsonb => Some("is jsonb, where different texts are equal"),
        Wire::Text if column.type_name.starts_with("json") => Some("is json, which has no equality"),
        Wire::Bpchar if column.type_mod < 0 && !column.type_name.starts_with("character(") => {
            Some("is bpchar without a length, where trailing blanks do not count")
        }
        Wire::Float4 | Wire::Float8 if *target == Target::Text => {
            Some("is a float taken as text, where 0 and -0 differ")
        }
        // The key's encoder recognises numbers kept as text by the type's name.
        Wire::Numeric if text_number && !column.type_name.starts_with("numeric") => {
            Some("is an array of a domain over numeric, where different texts are equal")
        }
        Wire::Numeric if matches!(wire, Wire::Array(_)) && *target == Target::Text => {
            Some("is a numeric array taken as text, where different texts are equal")
        }
        _ => None,
    }
}

impl CaptureTable {
    /// Agrees a request with what the catalog says.
    ///
    /// # Errors
    /// [`SourceError::TableRefused`] (reconfigure) with the first reason; preflight lists them all.
    pub fn new(
        id: TableId,
        request: &TableRequest,
        table: &SourceTable,
        skip_until: Lsn,
    ) -> Result<CaptureTable, SourceError> {
        let agreement = agree(request, table);
        let refused = |reason: String| SourceError::TableRefused {
            table: table.name.clone(),
            reason,
        };
        if let Some(fault) = agreement.faults.first() {
            return Err(refused(format!("{}; {}", fault.message, fault.remedy)));
        }
        Ok(CaptureTable {
            id,
            oid: table.oid,
            name: table.name.clone(),
            schema: agreement.schema,
            columns: agreement.columns,
            append_only: request.append_only,
            skip_until,
            row_filter: table.row_filter.clone(),
        })
    }
}
