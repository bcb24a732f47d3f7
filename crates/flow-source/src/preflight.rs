//! Reads whether the source can be captured, before anything is changed.
//!
//! Every answer becomes a [`Check`], good or bad, so that a user sees all problems at once.

use flow_core::{Lsn, TableName, TableSchema};

use crate::agree::agree;
use crate::capture::{SourceTable, TableRequest};
use crate::catalog::{self, Which};
use crate::error::SourceError;
use crate::options::SourceOptions;
use crate::sql::{self, Sql};

/// Is the answer to one question about the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Names the question: `wal_level`, `primary key`.
    pub name: String,
    /// Says whether the answer permits capture.
    pub ok: bool,
    /// Says what was found.
    pub message: String,
    /// Says what to do; empty if nothing is needed.
    pub remedy_text: String,
    /// Is the table concerned.
    pub table: Option<TableName>,
}

/// Is what identifies the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemInfo {
    /// Is `server_version_num`, such as 170004.
    pub version_num: u32,
    /// Numbers the cluster; a restored or promoted copy keeps it.
    pub system_identifier: u64,
    /// Is the database's name.
    pub database: String,
    /// Is the server's WAL position.
    pub server_lsn: Lsn,
    /// Says that the server is a standby.
    pub in_recovery: bool,
}

/// Is everything preflight found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Holds the answers in the order they were asked.
    pub checks: Vec<Check>,
    /// Holds each requested table that exists; the schema is there if it can be captured.
    pub tables: Vec<(TableRequest, SourceTable, Option<TableSchema>)>,
    /// Identifies the server.
    pub system: SystemInfo,
}

impl Report {
    /// Says whether every check permits capture.
    pub fn is_ok(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }

    /// Lists the checks that do not permit capture.
    pub fn problems(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| !check.ok)
    }
}

/// Is the oldest server that is captured from.
const VERSION_MIN: u32 = 140_000;

/// Is the first server that was not tried.
const VERSION_END: u32 = 190_000;

/// Asks the server everything capture relies on. Read-only.
///
/// With `for_init` the slot must not exist yet and there must be room for two slots and senders;
/// without, an existing slot is accepted.
///
/// # Errors
/// Only where no answer could be had: unreachable, login, TLS, a failed statement, another system
/// than the options name. What the answers forbid is in the report.
pub async fn preflight(
    options: &SourceOptions,
    wanted: &[TableRequest],
    for_init: bool,
) -> Result<Report, SourceError> {
    let sql = sql::connect(options).await?;
    let mut report = Report {
        system: system_info(&sql).await?,
        ..Report::default()
    };
    check_server(&sql, &mut report).await?;
    check_room(&sql, options, for_init, &mut report).await?;
    check_retention(&sql, &mut report).await?;
    check_publication(&sql, options, &mut report).await?;
    let names: Vec<TableName> = wanted.iter().map(|request| request.source.clone()).collect();
    let tables = catalog::read_tables(&sql, &options.publication, Which::Named(&names)).await?;
    for request in wanted {
        match tables.iter().find(|table| table.name == request.source) {
            Some(table) => check_table(request, table, &mut report),
            None => report.checks.push(Check {
                name: "table".to_owned(),
                ok: false,
                message: "there is no such table".to_owned(),
                remedy_text: "correct source in [[tables]]; names are case-sensitive".to_owned(),
                table: Some(request.source.clone()),
            }),
        }
    }
    Ok(report)
}

async fn system_info(sql: &Sql) -> Result<SystemInfo, SourceError> {
    let text = "SELECT (SELECT system_identifier FROM pg_control_system()), current_database()::text, \
         (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END)::text, \
         pg_is_in_recovery()";
    let row = sql.one("identifying the system", text, &[]).await?;
    let lsn: Option<String> = row.get(2);
    Ok(SystemInfo {
        version_num: sql.version,
        system_identifier: row.get::<_, i64>(0) as u64,
        database: row.get(1),
        server_lsn: lsn.and_then(|lsn| lsn.parse().ok()).unwrap_or(Lsn::ZERO),
        in_recovery: row.get(3),
    })
}

impl Report {
    fn add(&mut self, name: &str, ok: bool, message: impl Into<String>, remedy: impl Into<String>) {
        self.checks.push(Check {
            name: name.to_owned(),
            ok,
            message: message.into(),
            remedy_text: if ok { String::new() } else { remedy.into() },
            table: None,
        });
    }
}

async fn check_server(sql: &Sql, report: &mut Report) -> Result<(), SourceError> {
    let version = sql.version;
    report.add(
        "version",
        (VERSION_MIN..VERSION_END).contains(&version),
        format!("PostgreSQL {}.{}", version / 10_000, version % 10_000),
        "use PostgreSQL 14 to 18",
    );
    let in_recovery = report.system.in_recovery;
    let role = if in_recovery { "a standby" } else { "a primary" };
    report.add(
        "primary",
        !in_recovery,
        format!("the server is {role}"),
        "connect to the primary",
    );
    let text = "SELECT current_setting('wal_level'), \
         (SELECT rolsuper OR rolreplication FROM pg_roles WHERE rolname = current_user), \
         current_setting('server_encoding'), current_user::text";
    let row = sql.one("reading settings", text, &[]).await?;
    let wal_level: String = row.get(0);
    report.add(
        "wal_level",
        wal_level == "logical",
        format!("wal_level is {wal_level}"),
        "ALTER SYSTEM SET wal_level = logical, then restart the server",
    );
    let user: String = row.get(3);
    report.add(
        "REPLICATION",
        row.get(1),
        format!("role {user} connects"),
        format!("ALTER ROLE {} REPLICATION", flow_core::schema::quote_identifier(&user)),
    );
    let encoding: String = row.get(2);
    report.add(
        "encoding",
        encoding != "SQL_ASCII",
        format!("the database's encoding is {encoding}"),
        "texts of unknown encoding cannot be stored as UTF-8; use a database with an encoding",
    );
    Ok(())
}

async fn check_room(
    sql: &Sql,
    options: &SourceOptions,
    for_init: bool,
    report: &mut Report,
) -> Result<(), SourceError> {
    let text = "SELECT current_setting('max_replication_slots')::int8 - (SELECT count(*) FROM pg_replication_slots), \
         current_setting('max_wal_senders')::int8 - (SELECT count(*) FROM pg_stat_activity \
           WHERE backend_type = 'walsender'), \
         EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1)";
    let row = sql.one("counting slots", text, &[&options.slot]).await?;
    let (slots, senders, exists): (i64, i64, bool) = (row.get(0), row.get(1), row.get(2));
    // The permanent slot, and a temporary one when a copy has to be done again. Once ours exists it
    // may be streaming at this moment, and nothing more is asked.
    let needed = if exists { 0 } else { 2 };
    report.add(
        "replication slots",
        slots >= needed,
        format!("{slots} slots are free, {needed} are needed"),
        "raise max_replication_slots and restart the server, or drop an unused slot",
    );
    report.add(
        "wal senders",
        senders >= needed,
        format!("{senders} WAL senders are free, {needed} are needed"),
        "raise max_wal_senders and restart the server",
    );
    if for_init {
        report.add(
            "slot name",
            !exists,
            match exists {
                true => format!("slot \"{}\" exists already", options.slot),
                false => format!("slot \"{}\" will be made", options.slot),
            },
            "choose another source.slot, or drop the slot if nothing uses it",
        );
    }
    Ok(())
}

/// Checks that the server will not throw away what we still need, or says that it may.
async fn check_retention(sql: &Sql, report: &mut Report) -> Result<(), SourceError> {
    let text = "SELECT name, setting FROM pg_settings \
         WHERE name IN ('max_slot_wal_keep_size', 'idle_replication_slot_timeout') ORDER BY name";
    for row in sql.query("reading settings", text, &[]).await? {
        let (name, setting): (String, String) = (row.get(0), row.get(1));
        let unit = if name == "max_slot_wal_keep_size" { "MB" } else { "s" };
        // Not a fault: a bound is a decision of the server's owner. It is said so that he knows
        // what a long stop costs.
        let unlimited = matches!(
            (name.as_str(), setting.as_str()),
            ("max_slot_wal_keep_size", "-1") | ("idle_replication_slot_timeout", "0")
        );
        let message = match unlimited {
            true => format!("{name} is unlimited: WAL is kept as long as the slot needs it"),
            false => format!("{name} is {setting} {unit}: a longer stop invalidates the slot and asks for a resync"),
        };
        report.add("WAL retention", true, message, "");
    }
    Ok(())
}

async fn check_publication(sql: &Sql, options: &SourceOptions, report: &mut Report) -> Result<(), SourceError> {
    let text = "SELECT pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot FROM pg_publication WHERE pubname = $1";
    let rows = sql
        .query("reading the publication", text, &[&options.publication])
        .await?;
    let name = flow_core::schema::quote_identifier(&options.publication);
    let Some(row) = rows.first() else {
        report.add(
            "publication",
            false,
            format!("publication {name} does not exist"),
            "embrasure-flow init --create-publication makes it, or CREATE PUBLICATION … FOR TABLE …",
        );
        return Ok(());
    };
    let missing: Vec<&str> = ["insert", "update", "delete", "truncate"]
        .into_iter()
        .enumerate()
        .filter(|(index, _)| !row.get::<_, bool>(*index))
        .map(|(_, operation)| operation)
        .collect();
    report.add(
        "publication",
        missing.is_empty(),
        match missing.is_empty() {
            true => format!("publication {name} sends every operation"),
            false => format!("publication {name} does not send {}", missing.join(", ")),
        },
        format!("ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')"),
    );
    Ok(())
}

fn check_table(request: &TableRequest, table: &SourceTable, report: &mut Report) {
    let agreement = agree(request, table);
    let check = |name: &str, ok: bool, message: String, remedy_text: String| Check {
        name: name.to_owned(),
        ok,
        message,
        remedy_text,
        table: Some(table.name.clone()),
    };
    for note in agreement.notes {
        report.checks.push(check("columns", true, note, String::new()));
    }
    let sound = agreement.faults.is_empty();
    for fault in agreement.faults {
        report
            .checks
            .push(check(fault.check, false, fault.message, fault.remedy));
    }
    if sound {
        let count = agreement.schema.columns.len();
        report.checks.push(check(
            "table",
            true,
            format!("{count} columns can be captured"),
            String::new(),
        ));
    }
    let schema = sound.then_some(agreement.schema);
    report.tables.push((request.clone(), table.clone(), schema));
}
