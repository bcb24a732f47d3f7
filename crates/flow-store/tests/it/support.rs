//! Directories, sample records and a child process to be killed.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use flow_core::transaction::TransactionMeta;
use flow_core::{Column, ColumnType, Epoch, FileId, Generation, Lsn, OperationId, TableId, TableName, TableSchema};
use flow_store::{Found, Hot, Identity, Kind, Location, NewShare, Store, StoreOptions, TableRecord, TableState};

pub(crate) fn open(dir: &Path) -> Store {
    Store::open(options(dir)).expect("the directory is free and sound")
}

pub(crate) fn options(dir: &Path) -> StoreOptions {
    StoreOptions {
        dir: dir.join("state"),
        memory_bytes: 64 << 20,
    }
}

pub(crate) fn temp() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

pub(crate) fn identity() -> Identity {
    Identity {
        source_id: "shop".into(),
        system_identifier: 7_000_000_000_000_000_001,
        slot: "embrasure_flow".into(),
        database: "shop".into(),
        source_uid: "0123456789abcdef".into(),
    }
}

/// Is what the index knows of a row with a copy, or without.
pub(crate) fn row_at(location: Location, hot: bool) -> Found {
    Found { location, hot }
}

pub(crate) fn at(file: u64, position: u64) -> Location {
    Location {
        file: FileId(file),
        position,
    }
}

/// Makes the transaction `n`: it commits at `n00` and ends at `n50`.
pub(crate) fn meta(n: u64, chunks: &[&[u8]]) -> TransactionMeta {
    TransactionMeta {
        commit_lsn: Lsn(n * 100),
        end_lsn: Lsn(n * 100 + 50),
        commit_time: n as i64,
        xid: n as u32,
        chunks: chunks.len() as u32,
        changes: chunks.len() as u64,
        bytes: chunks.iter().map(|chunk| chunk.len() as u64).sum(),
    }
}

pub(crate) fn table(id: u32) -> TableRecord {
    let column = |name: &str, field_id, column_type, required| Column {
        name: name.into(),
        field_id,
        element_id: None,
        column_type,
        required,
        source_type: String::new(),
    };
    TableRecord {
        id: TableId(id),
        source: TableName::new("public", "orders"),
        relation_oid: 16_384,
        target: TableName::new("bronze", "orders"),
        target_uuid: Some("9c12d441-03fe-4693-9a96-a0705ddf69c1".into()),
        schema: TableSchema {
            columns: vec![
                column("id", 1, ColumnType::Long, true),
                column("note", 2, ColumnType::String, false),
            ],
            key: vec![0],
        },
        generation: Generation(1),
        append_only: false,
        hot: Hot::Columns(vec![1]),
        settings: serde_json::json!({"deletes": "position"}),
        start_lsn: Some(Lsn(5)),
        state: TableState::Blocked {
            code: "F0101".into(),
            reason: "a value its column cannot hold".into(),
            since_us: 12,
            hold_lsn: Lsn(9),
        },
        published_lsn: Lsn(9),
        published_epoch: Epoch(3),
        snapshot_id: Some(i64::MAX),
    }
}

pub(crate) fn share(table: u32) -> NewShare {
    NewShare {
        target: TableName::new("bronze", format!("t{table}")),
        table: Some(TableId(table)),
        generation: Generation(1),
        base_snapshot: None,
    }
}

pub(crate) fn epoch(n: u64) -> Kind {
    Kind::Epoch {
        epoch: Epoch(n),
        from: Lsn(n * 100),
        to: Lsn(n * 100 + 100),
        commit_time_us: 1,
    }
}

pub(crate) fn id(seq: u64) -> OperationId {
    OperationId::new(format!("op-{seq}"))
}

/// Is a small generator of reproducible numbers (SplitMix64).
pub(crate) fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Is where a child process finds its directory; a test that is no child lacks it.
pub(crate) const CHILD_DIR: &str = "FLOW_STORE_CHILD_DIR";

/// Runs one test of this binary as a process of its own, its standard output piped.
pub(crate) fn child(test: &str, dir: &Path, prelude: &str) -> Child {
    let program = std::env::current_exe().expect("this binary has a path");
    Command::new("bash")
        .args(["-c", &format!("{prelude} exec \"$0\" \"$@\"")])
        .arg(program)
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD_DIR, dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test binary starts")
}
