//! The replication slot: what the server promised to keep for us.
//!
//! Never recreates or advances a slot by itself: a slot that cannot continue is an error whose
//! remedy is resynchronisation.

use flow_core::Lsn;
use flow_core::schema::quote_identifier;

use crate::error::SourceError;
use crate::options::SourceOptions;
use crate::session::{self, Kind, Session, TextRow};
use crate::sql::{self, SYSTEM_SQL};

/// Is what `pg_replication_slots` says of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotState {
    /// Is what was acknowledged: nothing below it can be streamed again.
    pub confirmed_flush: Lsn,
    /// Is the oldest WAL the slot keeps.
    pub restart_lsn: Lsn,
    /// Is the server process that streams from it.
    pub active_pid: Option<i32>,
    /// Is `reserved`, `extended`, `unreserved` or `lost`.
    pub wal_status: String,
    /// Is the output plugin: `pgoutput`.
    pub plugin: String,
    /// Is the database it decodes.
    pub database: String,
    /// Says why the server invalidated it (PostgreSQL 17 and later; `conflict` on 16).
    pub invalidation_reason: Option<String>,
    /// Says that it goes with its session.
    pub temporary: bool,
}

/// Is one query for all majors: columns that a major lacks come out NULL.
const SLOT_SQL: &str = "SELECT s.confirmed_flush_lsn::text, s.restart_lsn::text, s.active_pid::text, s.wal_status, \
     s.plugin::text, s.database::text, coalesce(to_jsonb(s)->>'invalidation_reason', \
     CASE WHEN to_jsonb(s)->>'conflicting' = 'true' THEN 'conflict' END), s.temporary::text \
     FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = ";

fn slot_query(slot: &str) -> String {
    format!("{SLOT_SQL}{}", quote_literal(slot))
}

/// Quotes a text for SQL; a backslash makes it an escape string, so that no setting matters.
pub(crate) fn quote_literal(text: &str) -> String {
    match text.contains('\\') {
        true => format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''")),
        false => format!("'{}'", text.replace('\'', "''")),
    }
}

fn parse_state(columns: TextRow) -> Result<SlotState, SourceError> {
    let bad = || SourceError::Protocol("row of pg_replication_slots".to_owned());
    let [
        confirmed,
        restart,
        pid,
        wal_status,
        plugin,
        database,
        invalidation_reason,
        temporary,
    ] = <[Option<String>; 8]>::try_from(columns).map_err(|_| bad())?;
    let lsn = |text: Option<String>| match text {
        None => Ok(Lsn::ZERO),
        Some(text) => text.parse().map_err(|_| bad()),
    };
    Ok(SlotState {
        confirmed_flush: lsn(confirmed)?,
        restart_lsn: lsn(restart)?,
        active_pid: pid.and_then(|pid| pid.parse().ok()),
        wal_status: wal_status.unwrap_or_default(),
        plugin: plugin.unwrap_or_default(),
        database: database.unwrap_or_default(),
        invalidation_reason,
        temporary: matches!(temporary.as_deref(), Some("true" | "t")),
    })
}

/// Reads our slot; `None` if it does not exist.
///
/// # Errors
/// Unreachable (retry), login and TLS (reconfigure), [`SourceError::OtherSystem`] (resync).
pub async fn slot_state(options: &SourceOptions) -> Result<Option<SlotState>, SourceError> {
    let mut session = session::open(options, Kind::Plain).await?;
    require_system(&mut session, options).await?;
    read_state(&mut session, &options.slot).await
}

async fn read_state(session: &mut Session, slot: &str) -> Result<Option<SlotState>, SourceError> {
    let rows = session.query("reading the slot", &slot_query(slot)).await?;
    rows.into_iter().next().map(parse_state).transpose()
}

/// Refuses a session that leads to another system than the options name, if they name one.
pub(crate) async fn require_system(session: &mut Session, options: &SourceOptions) -> Result<(), SourceError> {
    let Some(expected) = options.system_identifier else {
        return Ok(());
    };
    let rows = session.query("identifying the system", SYSTEM_SQL).await?;
    let found: Option<i64> = rows.first().and_then(|row| row.first()?.as_ref()?.parse().ok());
    let found = found.ok_or_else(|| SourceError::Protocol("system identifier".to_owned()))?;
    sql::same_system(found as u64, expected)
}

/// Reads the server's WAL position: what is committed lies below it.
///
/// # Errors
/// As [`slot_state`].
pub async fn server_lsn(options: &SourceOptions) -> Result<Lsn, SourceError> {
    let sql = sql::connect(options).await?;
    let text = "SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() \
                ELSE pg_current_wal_lsn() END)::text";
    let row = sql.one("reading the WAL position", text, &[]).await?;
    row.get::<_, String>(0)
        .parse()
        .map_err(|_| SourceError::Protocol("WAL position".to_owned()))
}

/// Checks, on a replication session, that the slot belongs to the expected system and can continue
/// from `start`. Gives what the slot has confirmed.
///
/// # Errors
/// As [`crate::Stream::connect`] says.
pub(crate) async fn check_continues(
    session: &mut Session,
    options: &SourceOptions,
    start: Lsn,
) -> Result<Lsn, SourceError> {
    let slot = &options.slot;
    require_system(session, options).await?;
    let state = read_state(session, slot).await?;
    let state = state.ok_or_else(|| SourceError::SlotMissing { slot: slot.clone() })?;
    if let Some(reason) = why_unusable(&state, &options.conninfo.dbname, start) {
        return Err(SourceError::SlotUnusable {
            slot: slot.clone(),
            reason,
        });
    }
    if let Some(pid) = state.active_pid {
        return Err(SourceError::SlotHeld {
            slot: slot.clone(),
            pid,
        });
    }
    let sql = format!(
        "SELECT 1 FROM pg_catalog.pg_publication WHERE pubname = {}",
        quote_literal(&options.publication)
    );
    if session.query("reading the publication", &sql).await?.is_empty() {
        return Err(SourceError::PublicationGone {
            publication: options.publication.clone(),
        });
    }
    Ok(state.confirmed_flush)
}

/// Says why a slot cannot continue from `start`, if it cannot.
fn why_unusable(state: &SlotState, database: &str, start: Lsn) -> Option<String> {
    if state.plugin != "pgoutput" {
        return Some(format!("its plugin is \"{}\", not pgoutput", state.plugin));
    }
    if state.database != database {
        return Some(format!("it belongs to database \"{}\"", state.database));
    }
    if let Some(reason) = &state.invalidation_reason {
        return Some(format!("the server invalidated it ({reason})"));
    }
    if state.wal_status == "lost" {
        return Some("the server removed WAL it needs (wal_status lost)".to_owned());
    }
    if state.confirmed_flush > start {
        return Some(format!(
            "it was moved on to {} and what was captured ends at {start}: changes in between are lost",
            state.confirmed_flush
        ));
    }
    None
}

/// Holds a slot's exported snapshot: others can import it while this lives.
#[derive(Debug)]
pub struct ExportedSnapshot {
    /// Names the snapshot for [`crate::open_copy_session`].
    pub name: String,
    /// Is where the slot begins: the snapshot holds exactly what committed at or below it.
    pub consistent_point: Lsn,
    /// Keeps the exporting transaction open. IMPORTANT: nothing is sent on it, since its next
    /// command would end the snapshot.
    _session: Session,
}

/// Makes a slot and exports its snapshot; the permanent one of the options, or a temporary one
/// that lives as long as the returned value.
///
/// PostgreSQL waits for transactions that are running to end.
///
/// # Errors
/// [`SourceError::SlotExists`] (reconfigure); [`SourceError::OtherSystem`] (resync); no free slot or
/// sender (retry).
///
/// # Durability
/// The permanent slot is on the server's disk when this returns.
pub async fn create_slot(options: &SourceOptions, temporary: Option<&str>) -> Result<ExportedSnapshot, SourceError> {
    let slot = temporary.unwrap_or(&options.slot);
    let mut session = session::open(options, Kind::Replication).await?;
    require_system(&mut session, options).await?;
    // A role's or database's timeouts must not end the exporting transaction during a long copy.
    let settings = "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET lock_timeout = 0";
    session.query("setting up a session", settings).await?;
    let version = server_version(&mut session).await?;
    let export = match version {
        ..150_000 => "EXPORT_SNAPSHOT",
        _ => "(SNAPSHOT 'export')",
    };
    let kind = if temporary.is_some() { " TEMPORARY" } else { "" };
    let sql = format!(
        "CREATE_REPLICATION_SLOT {}{kind} LOGICAL pgoutput {export}",
        quote_identifier(slot)
    );
    let rows = match session.query("creating the slot", &sql).await {
        Err(SourceError::Sql { error, .. }) if error.sqlstate == "42710" => {
            return Err(SourceError::SlotExists { slot: slot.to_owned() });
        }
        other => other?,
    };
    let mut columns = rows.into_iter().next().unwrap_or_default().into_iter().skip(1);
    let bad = || SourceError::Protocol("answer to CREATE_REPLICATION_SLOT".to_owned());
    let point = columns.next().flatten().ok_or_else(bad)?;
    let name = columns.next().flatten().ok_or_else(bad)?;
    Ok(ExportedSnapshot {
        name,
        consistent_point: point.parse().map_err(|_| bad())?,
        _session: session,
    })
}

async fn server_version(session: &mut Session) -> Result<u32, SourceError> {
    let rows = session.query("reading the version", "SHOW server_version_num").await?;
    rows.first()
        .and_then(|row| row.first()?.as_ref()?.parse().ok())
        .ok_or_else(|| SourceError::Protocol("server version".to_owned()))
}

/// Drops our slot; says whether it was there.
///
/// # Errors
/// [`SourceError::SlotHeld`] (retry).
pub async fn drop_slot(options: &SourceOptions) -> Result<bool, SourceError> {
    let mut session = session::open(options, Kind::Plain).await?;
    let sql = format!(
        "SELECT pg_catalog.pg_drop_replication_slot({})",
        quote_literal(&options.slot)
    );
    match session.query("dropping the slot", &sql).await {
        Ok(_) => Ok(true),
        Err(SourceError::Sql { error, .. }) if error.sqlstate == "42704" => Ok(false),
        Err(SourceError::Sql { error, .. }) if error.sqlstate == "55006" => Err(SourceError::SlotHeld {
            slot: options.slot.clone(),
            pid: 0,
        }),
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> SlotState {
        SlotState {
            confirmed_flush: Lsn(50),
            restart_lsn: Lsn(10),
            active_pid: None,
            wal_status: "reserved".to_owned(),
            plugin: "pgoutput".to_owned(),
            database: "shop".to_owned(),
            invalidation_reason: None,
            temporary: false,
        }
    }

    #[test]
    fn a_slot_continues_or_says_why_not() {
        let check = |change: fn(&mut SlotState), expected: Option<&str>| {
            let mut state = state();
            change(&mut state);
            let reason = why_unusable(&state, "shop", Lsn(50));
            assert_eq!(reason.is_some(), expected.is_some(), "{reason:?}");
            assert!(reason.unwrap_or_default().contains(expected.unwrap_or("")));
        };
        check(|_| {}, None);
        check(|s| s.plugin = "test_decoding".to_owned(), Some("plugin"));
        check(|s| s.database = "other".to_owned(), Some("database"));
        check(|s| s.wal_status = "lost".to_owned(), Some("removed WAL"));
        check(
            |s| s.invalidation_reason = Some("wal_removed".to_owned()),
            Some("wal_removed"),
        );
        check(|s| s.confirmed_flush = Lsn(51), Some("moved on"));
    }

    #[test]
    fn literals_are_quoted() {
        assert_eq!(quote_literal("it's"), "'it''s'");
        assert_eq!(quote_literal("a\\'b"), "E'a\\\\''b'");
    }
}
