//! Every section and option of `flow.toml`, declared once.
//!
//! The declarations are the types, the readers and the source of `docs/configuration.md`. What is
//! read here is well formed by itself; [`check`](super::check) judges how it fits together.

use std::collections::BTreeMap;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::problem::Collector;
use super::read::{FieldDoc, Section, Span, Value, choices, expect_table, join_key, refuse_unknown, sections};
use super::units::Size;

choices! {
    #[doc = "Says how far PostgreSQL is told that changes are safe."]
    Ack {
        #[doc = "Up to what the catalog has."]
        Materialized = "materialized",
        #[doc = "Up to what the journal has."]
        Journaled = "journaled",
    }

    #[doc = "Is the kind of catalog."]
    CatalogType {
        #[doc = "A SQLite file beside the warehouse."]
        Embedded = "embedded",
        #[doc = "An Iceberg REST catalog."]
        Rest = "rest",
    }

    #[doc = "Is the kind of delete files."]
    Deletes {
        #[doc = "Position deletes."]
        Position = "position",
        #[doc = "Equality deletes."]
        Equality = "equality",
    }
}

/// Says which columns the row index keeps beside each row's location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hot {
    /// Those that PostgreSQL may leave out of an update.
    Auto,
    /// All.
    All,
    /// None.
    None,
}

impl Value for Hot {
    fn kind() -> String {
        "`\"auto\"`, `true` or `false`".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        match (value.as_str(), value.as_bool()) {
            (Some("auto"), _) => Ok(Hot::Auto),
            (_, Some(true)) => Ok(Hot::All),
            (_, Some(false)) => Ok(Hot::None),
            _ => Err("must be \"auto\", true or false".into()),
        }
    }
}

sections! {
    /// Stands above all sections.
    Top {
        /// Directory of all local state: journal, ledger, row index, control socket and status file.
        /// Relative to this file. Created with permissions for its owner only. Never put the catalog
        /// file in it, and never share it between two services.
        state_dir: String, default "\"state\"";
    }

    /// The PostgreSQL database that is captured.
    Source {
        /// Name of this database in metadata; it must never change. Default: the database's name.
        id: String;
        /// **Required.** Name of the environment variable that holds the connection URL,
        /// `postgres://user:password@host:5432/database?sslmode=verify-full` say. The URL itself never
        /// stands in this file.
        connection_env: String;
        /// Name of the logical replication slot; `init` creates it.
        slot: String, default "\"embrasure_flow\"";
        /// Name of the publication.
        publication: String, default "\"embrasure_flow\"";
        /// When PostgreSQL may forget a change: once the catalog has it (`materialized`; slot and
        /// catalog together can then prove and rebuild a lost `state_dir`) or once the journal has it
        /// (`journaled`; PostgreSQL keeps less WAL, and a lost `state_dir` needs a new copy).
        ack_mode: Ack, default "\"materialized\"";
        /// How often an idle source's position moves on, so that it does not pile up WAL.
        heartbeat: Duration, default "\"10s\"", range "\"1s\"", "\"10m\"";
        /// How long an unreachable source or catalog is retried before the service ends with exit
        /// code 75.
        retry_for: Duration, default "\"5m\"", range "\"0s\"", "\"7d\"";
        /// How many tables are copied at the same time by `init`.
        copy_sessions: u64, default "4", range "1", "16";
    }

    /// Where the tables are.
    Catalog {
        /// Kind of catalog. This version has `embedded`: a SQLite file with the JDBC catalog's layout,
        /// which PyIceberg and Java can open too; its name is `flow`.
        r#type: CatalogType, default "\"embedded\"";
        /// Directory that holds the tables' files: a path relative to this file, or `file://`. This
        /// version cannot write to object stores.
        warehouse: String, default "\"warehouse\"";
        /// The catalog's SQLite file, relative to this file. Never inside `state_dir`: catalog and
        /// slot together are what a lost `state_dir` is rebuilt from. Default:
        /// `<warehouse>/catalog.db`.
        path: String;
        /// REST catalogs only: not in this version.
        uri: String;
        /// REST catalogs only: not in this version.
        prefix: String;
        /// REST catalogs only: not in this version.
        token_env: String;
        /// REST catalogs only: not in this version.
        credential_env: String;
        /// REST catalogs only: not in this version.
        oauth2_server_uri: String;
        /// REST catalogs only: not in this version.
        tls_ca_file: String;
        /// REST catalogs only: not in this version.
        state_namespace: String;
    }

    /// When an epoch closes and how much history stays. Whichever limit is reached first closes an
    /// epoch; one transaction may exceed the limits, because it stays whole.
    Publish {
        /// Longest wait from an epoch's first transaction to its close.
        interval: Duration, default "\"500ms\"", range "\"50ms\"", "\"1h\"";
        /// Changes that close an epoch.
        max_rows: u64, default "100000", range "1", "10000000";
        /// Bytes of changes that close an epoch.
        max_bytes: Size, default "\"64MiB\"", range "\"1MiB\"", "\"4GiB\"";
        /// How long snapshots older than the newest `keep_snapshots` stay readable, one a minute.
        keep_for: Duration, default "\"1h\"", range "\"1m\"", "\"30d\"";
        /// How many of the newest snapshots of each table always stay.
        keep_snapshots: u64, default "200", range "10", "10000";
    }

    /// What the service may take from the machine.
    Limits {
        /// Memory for buffers and caches together. The process needs some more for itself.
        memory: Size, default "\"512MiB\"", range "\"64MiB\"", "\"1TiB\"";
        /// Free disk on the file systems of `state_dir`, warehouse and catalog below which capture
        /// pauses, and for the latter two copies and publishing too. They resume by themselves when
        /// there is room again.
        min_free_bytes: Size, default "\"1GiB\"", range "\"0B\"", "\"1024TiB\"";
        /// How much journal blocked tables may hold. Past it a blocked table needs a new copy.
        blocked_journal_max: Size, default "\"10GiB\"", range "\"1MiB\"", "\"1024TiB\"";
    }

    /// Probes, metrics and status (see `docs/observability.md`), and the catalog for other programs
    /// (see `docs/rest-catalog.md`).
    Http {
        /// Address and port. Port 0 takes any free one, which the log and `status` show.
        listen: String, default "\"127.0.0.1:9464\"";
        /// Name of the environment variable that holds the bearer token which `/status` and the
        /// catalog then ask for. Required when `listen` is not a loopback address; probes and metrics
        /// stay open.
        token_env: String;
        /// Cuts handed out to readers: not in this version.
        cut_retention: Duration;
    }

    /// Tables declared in SQL and kept fresh by the service (see `docs/dynamic-tables.md`).
    DynamicTables {
        /// Directory of their `.sql` files, relative to this file; it may be missing.
        dir: String, default "\"transformations\"";
    }

    /// One block for each captured table, or for each captured schema. At least one is needed.
    /// `embrasure-flow discover` prints the blocks for what a publication has.
    Table {
        /// **Required.** The table in PostgreSQL, `"public.orders"`; names with upper case, dots or
        /// other characters stand in double quotes, `'public."Mixed.Case"'`. `"public.*"` takes every
        /// published table of the schema that no other block names.
        source: String;
        /// The Iceberg table, `"namespace.table"`. Default: schema and table of the source. Not with
        /// `"schema.*"`.
        target: String;
        /// Columns of the key. They must be the table's replica identity, or the identity must be
        /// FULL. Default: the replica identity's columns.
        primary_key: Vec<String>;
        /// Columns to keep; the key's must be among them. Default: all that the publication sends.
        columns: Vec<String>;
        /// Accepts inserts only; the one way to capture a table without a key.
        append_only: bool, default "false";
        /// Iceberg format version. This version writes 2.
        format_version: u64, default "2";
        /// Kind of delete files. This version writes `position`.
        deletes: Deletes, default "\"position\"";
        /// Which columns the local row index keeps beside each row's location: those that PostgreSQL
        /// may leave out of an update (`auto`), all, or none.
        hot_rows: Hot, default "\"auto\"";
        /// Types of single columns that differ from the usual: `"string"`, `"time"` or
        /// `"decimal(p,s)"`. Each value is checked; one that does not fit blocks the table.
        types: BTreeMap<String, String>;
        /// Partitioning: not in this version.
        partition_by: Vec<String>;
    }
}

/// Is a whole configuration file as it was read.
#[derive(Clone, Debug)]
pub struct Document {
    /// Holds what stands above all sections.
    pub top: Top,
    /// Is `[source]`.
    pub source: Source,
    /// Is `[catalog]`.
    pub catalog: Catalog,
    /// Holds the keys of `[storage]` with their places.
    pub storage: Vec<(String, Span)>,
    /// Is `[publish]`.
    pub publish: Publish,
    /// Is `[limits]`.
    pub limits: Limits,
    /// Is `[http]`.
    pub http: Http,
    /// Is `[dynamic_tables]`.
    pub dynamic_tables: DynamicTables,
    /// Holds the `[[tables]]` blocks.
    pub tables: Vec<Table>,
}

/// Lists the sections in the order of the documentation: name, what it is for, its options.
pub fn section_docs() -> Vec<(&'static str, &'static str, Vec<FieldDoc>)> {
    vec![
        ("", Top::TEXT, Top::fields()),
        ("source", Source::TEXT, Source::fields()),
        ("catalog", Catalog::TEXT, Catalog::fields()),
        ("storage", STORAGE_TEXT, Vec::new()),
        ("publish", Publish::TEXT, Publish::fields()),
        ("limits", Limits::TEXT, Limits::fields()),
        ("http", Http::TEXT, Http::fields()),
        ("dynamic_tables", DynamicTables::TEXT, DynamicTables::fields()),
        ("tables", Table::TEXT, Table::fields()),
    ]
}

const STORAGE_TEXT: &str = "Properties of an object store. This version writes to local directories \
    only, so the section must be empty.";

/// Reads a document's text. Syntax errors end the reading, since what follows one is a guess; all
/// of them are reported.
pub fn read(text: &str, problems: &mut Collector<'_>) -> Option<Document> {
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        problems.add(error.span().as_ref(), "", error.message());
    }
    errors.is_empty().then(|| read_root(root.get_ref(), problems))
}

fn read_root(root: &DeTable<'_>, problems: &mut Collector<'_>) -> Document {
    let sections = section_docs().into_iter().map(|(name, ..)| name);
    let known: Vec<&str> = sections.chain(keys::<Top>()).collect();
    refuse_unknown("", &known, root, problems);
    Document {
        top: Top::read("", None, Some(root), problems),
        source: section("source", root, problems),
        catalog: section("catalog", root, problems),
        storage: storage(root, problems),
        publish: section("publish", root, problems),
        limits: section("limits", root, problems),
        http: section("http", root, problems),
        dynamic_tables: section("dynamic_tables", root, problems),
        tables: tables(root, problems),
    }
}

fn keys<S: Section>() -> Vec<&'static str> {
    S::fields().iter().map(|doc| doc.key).collect()
}

fn section<S: Section>(name: &str, root: &DeTable<'_>, problems: &mut Collector<'_>) -> S {
    let Some(value) = root.get(name) else {
        return S::read(name, None, None, problems);
    };
    let table = expect_table(name, value, problems);
    if let Some(table) = table {
        refuse_unknown(name, &keys::<S>(), table, problems);
    }
    S::read(name, Some(&value.span()), table, problems)
}

fn storage(root: &DeTable<'_>, problems: &mut Collector<'_>) -> Vec<(String, Span)> {
    let table = root
        .get("storage")
        .and_then(|value| expect_table("storage", value, problems));
    let entries = table.into_iter().flat_map(|table| table.keys());
    entries
        .map(|key| (join_key("storage", key.get_ref()), key.span()))
        .collect()
}

fn tables(root: &DeTable<'_>, problems: &mut Collector<'_>) -> Vec<Table> {
    let Some(value) = root.get("tables") else {
        return Vec::new();
    };
    let Some(blocks) = value.get_ref().as_array() else {
        problems.add(Some(&value.span()), "tables", "must be blocks: write [[tables]]");
        return Vec::new();
    };
    let mut tables = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        let name = format!("tables[{index}]");
        match block.get_ref().as_table() {
            Some(table) => {
                refuse_unknown(&name, &keys::<Table>(), table, problems);
                tables.push(Table::read(&name, Some(&block.span()), Some(table), problems));
            }
            None => problems.add(Some(&block.span()), name, "must be a block: write [[tables]]"),
        }
    }
    tables
}
