//! Judges a configuration that was read: how options fit together, where paths lead, and what this
//! version cannot do yet, which is refused by name and never ignored.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};

use flow_core::TableName;
use flow_core::schedule::EpochLimits;
use flow_engine::options::{AckMode, HotRows, Limits, SourcePattern, TableOptions};

use super::document::{Ack, Catalog, CatalogType, Deletes, Document, Hot, Http, Source, Table};
use super::names::{Selector, Target, check_target_part, parse_source, parse_target};
use super::problem::Collector;
use super::read::{Field, Span};
use super::units::clip;
use super::{Config, Environment, HttpConfig, Purpose, Secret, SourceConfig};

/// Judges a document. `None` if a value is missing; then there are problems.
pub fn check(
    document: Document,
    file: &Path,
    purpose: Purpose,
    environment: Environment<'_>,
    problems: &mut Collector<'_>,
) -> Option<Config> {
    let mut checker = Checker {
        base: base_directory(file),
        purpose,
        environment,
        problems,
    };
    let source = checker.source(&document.source);
    let warehouse = checker.warehouse(&document.catalog);
    let http = checker.http(&document.http);
    let tables = checker.tables(&document.tables);
    checker.refuse_unsupported(&document);
    let state_dir = document.top.state_dir.value.as_deref().map(|dir| checker.path(dir));
    let catalog_path = match &document.catalog.path.value {
        Some(path) => Some(checker.path(path)),
        None => warehouse.as_ref().map(|warehouse| warehouse.join("catalog.db")),
    };
    if let (Some(state_dir), Some(warehouse), Some(catalog)) = (&state_dir, &warehouse, &catalog_path) {
        checker.apart_from_state(&document.catalog, state_dir, warehouse, catalog);
    }
    let (publish, limits) = (&document.publish, &document.limits);
    Some(Config {
        file: file.to_path_buf(),
        state_dir: state_dir?,
        source: source?,
        warehouse: warehouse?,
        catalog_path: catalog_path?,
        publish: EpochLimits {
            interval: publish.interval.value?,
            max_rows: publish.max_rows.value?,
            max_bytes: publish.max_bytes.value?.0,
        },
        keep_for: publish.keep_for.value?,
        keep_snapshots: usize::try_from(publish.keep_snapshots.value?).ok()?,
        limits: Limits {
            memory_bytes: usize::try_from(limits.memory.value?.0).ok()?,
            min_free_bytes: limits.min_free_bytes.value?.0,
            blocked_journal_max_bytes: limits.blocked_journal_max.value?.0,
        },
        http: http?,
        transformations: checker.path(document.dynamic_tables.dir.value.as_deref()?),
        tables: tables?,
    })
}

/// Is the directory that relative paths start from.
fn base_directory(file: &Path) -> PathBuf {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
    file.parent().map_or_else(|| PathBuf::from("/"), Path::to_path_buf)
}

struct Checker<'a, 'text> {
    base: PathBuf,
    purpose: Purpose,
    environment: Environment<'a>,
    problems: &'a mut Collector<'text>,
}

impl Checker<'_, '_> {
    fn refuse(&mut self, span: Option<&Span>, key: &str, message: impl Into<String>) {
        self.problems.add(span, key, message);
    }

    /// Makes a path absolute and resolves `.` and `..` by their letters.
    fn path(&self, text: &str) -> PathBuf {
        let mut path = PathBuf::new();
        for component in self.base.join(text).components() {
            match component {
                Component::ParentDir => {
                    path.pop();
                }
                Component::CurDir => {}
                other => path.push(other),
            }
        }
        path
    }

    /// Takes a required variable's value; `None` where it is not needed or a problem.
    fn variable(&mut self, key: &str, field: &Field<String>) -> Option<Secret> {
        let name = field.value.as_deref()?;
        let plain =
            |(at, byte): (usize, u8)| byte == b'_' || byte.is_ascii_alphabetic() || (at > 0 && byte.is_ascii_digit());
        if !name.bytes().enumerate().all(plain) {
            // The text may be the secret itself, written where its variable's name belongs.
            let message = "must be the name of an environment variable, not the secret itself";
            self.refuse(field.span.as_ref(), key, message);
            return None;
        }
        if !self.purpose.takes_secrets() {
            return None;
        }
        match (self.environment)(name).filter(|value| !value.is_empty()) {
            Some(value) => Some(Secret::new(value)),
            None if !self.purpose.needs_secrets() => None,
            None => {
                let message = format!("environment variable {name} is not set");
                self.refuse(field.span.as_ref(), key, message);
                None
            }
        }
    }

    fn source(&mut self, source: &Source) -> Option<SourceConfig> {
        if source.connection_env.value.is_none() && source.connection_env.span.is_none() {
            self.refuse(
                source.at.as_ref(),
                "source.connection_env",
                "is required: the name of the environment variable that holds the connection URL",
            );
        }
        let connection = self.variable("source.connection_env", &source.connection_env);
        let slot_ok = |name: &str| {
            (1..=63).contains(&name.len())
                && name
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        };
        if source.slot.value.as_deref().is_some_and(|name| !slot_ok(name)) {
            let message = "must have 1 to 63 characters of a-z, 0-9 and _ only, as PostgreSQL wants it";
            self.refuse(source.slot.span.as_ref(), "source.slot", message);
        }
        if source.publication.value.as_deref().is_some_and(|name| name.len() > 63) {
            self.refuse(
                source.publication.span.as_ref(),
                "source.publication",
                "must not be longer than PostgreSQL's 63 bytes",
            );
        }
        let id_ok = |name: &str| {
            name.len() <= 64
                && name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
        };
        if source.id.value.as_deref().is_some_and(|name| !id_ok(name)) {
            let message = "must have at most 64 characters of a-z, A-Z, 0-9, '_', '-' and '.' only";
            self.refuse(source.id.span.as_ref(), "source.id", message);
        }
        Some(SourceConfig {
            id: source.id.value.clone(),
            connection_env: source.connection_env.value.clone()?,
            connection,
            slot: source.slot.value.clone()?,
            publication: source.publication.value.clone()?,
            ack_mode: match source.ack_mode.value? {
                Ack::Materialized => AckMode::Materialized,
                Ack::Journaled => AckMode::Journaled,
            },
            heartbeat: source.heartbeat.value?,
            retry_for: source.retry_for.value?,
            copy_sessions: usize::try_from(source.copy_sessions.value?).ok()?,
        })
    }

    fn warehouse(&mut self, catalog: &Catalog) -> Option<PathBuf> {
        let text = catalog.warehouse.value.as_deref()?;
        let path = match text.split_once("://") {
            None => Ok(text),
            Some(("file", path)) if path.starts_with('/') => Ok(path),
            Some(("file", _)) => Err("must be file:// and an absolute path, such as file:///var/lib/flow".to_string()),
            Some((scheme, _)) => Err(format!(
                "'{}://' is not in this version; it writes to local directories only",
                clip(scheme)
            )),
        };
        match path {
            Ok(path) => Some(self.path(path)),
            Err(message) => {
                self.refuse(catalog.warehouse.span.as_ref(), "catalog.warehouse", message);
                None
            }
        }
    }

    /// Refuses a catalog or warehouse in `state_dir`: whoever loses the directory would lose the
    /// proof of what is published too.
    fn apart_from_state(&mut self, written: &Catalog, state_dir: &Path, warehouse: &Path, catalog: &Path) {
        let state_dir = resolve(state_dir);
        if resolve(warehouse).starts_with(&state_dir) {
            let message = "must not be inside state_dir, which is a cache that may be lost";
            self.refuse(written.warehouse.span.as_ref(), "catalog.warehouse", message);
        } else if resolve(catalog).starts_with(&state_dir) {
            let message = "must not be inside state_dir, because a lost state_dir is rebuilt from the catalog";
            self.refuse(written.path.span.as_ref(), "catalog.path", message);
        }
    }

    fn http(&mut self, http: &Http) -> Option<HttpConfig> {
        let token = self.variable("http.token_env", &http.token_env);
        let listen = http.listen.value.as_deref()?;
        let Ok(listen) = listen.parse::<SocketAddr>() else {
            let message = format!(
                "'{}' is not an address and port; write \"127.0.0.1:9464\" or \"[::1]:9464\"",
                clip(listen)
            );
            self.refuse(http.listen.span.as_ref(), "http.listen", message);
            return None;
        };
        if !listen.ip().is_loopback() && http.token_env.span.is_none() {
            let message = "is not a loopback address, so http.token_env is required";
            self.refuse(http.listen.span.as_ref(), "http.listen", message);
        }
        Some(HttpConfig { listen, token })
    }

    fn tables(&mut self, blocks: &[Table]) -> Option<Vec<TableOptions>> {
        if blocks.is_empty() && self.purpose.needs_tables() {
            let message = "at least one [[tables]] block is needed; 'embrasure-flow discover' prints them";
            self.refuse(None, "tables", message);
            return None;
        }
        let mut sources: BTreeMap<Selector, usize> = BTreeMap::new();
        let mut targets: BTreeMap<TableName, usize> = BTreeMap::new();
        let mut tables = Vec::new();
        for (index, block) in blocks.iter().enumerate() {
            let name = format!("tables[{index}]");
            let Some(table) = self.table(&name, block) else {
                continue;
            };
            let selector = match &table.source {
                SourcePattern::Table(table) => Selector::Table(table.clone()),
                SourcePattern::Schema(schema) => Selector::Schema(schema.clone()),
            };
            if let Some(first) = sources.insert(selector, index) {
                let first = self.block(first, blocks[first].source.span.as_ref());
                let message = format!("is the source of {first} already");
                self.refuse(block.source.span.as_ref(), &format!("{name}.source"), message);
            }
            if let SourcePattern::Table(source) = &table.source {
                let target = table.target.as_ref().unwrap_or(source);
                if let Some(first) = targets.insert(target.clone(), index) {
                    let span_of = |block: &'_ Table| block.target.span.clone().or(block.source.span.clone());
                    let first = self.block(first, span_of(&blocks[first]).as_ref());
                    let message = format!("'{target}' is the target of {first} already");
                    let span = block.target.span.as_ref().or(block.source.span.as_ref());
                    self.refuse(span, &format!("{name}.target"), message);
                }
            }
            tables.push(table);
        }
        (tables.len() == blocks.len()).then_some(tables)
    }

    /// Names a block with its line.
    fn block(&self, index: usize, span: Option<&Span>) -> String {
        match span {
            Some(span) => format!("tables[{index}] (line {})", self.problems.line(span)),
            None => format!("tables[{index}]"),
        }
    }

    fn table(&mut self, name: &str, block: &Table) -> Option<TableOptions> {
        if block.source.value.is_none() && block.source.span.is_none() {
            self.refuse(block.at.as_ref(), &format!("{name}.source"), "is required");
        }
        let source = match block.source.value.as_deref().map(parse_source)? {
            Ok(Selector::Table(table)) => SourcePattern::Table(table),
            Ok(Selector::Schema(schema)) => SourcePattern::Schema(schema),
            Err(message) => {
                self.refuse(block.source.span.as_ref(), &format!("{name}.source"), message);
                return None;
            }
        };
        let target = self.target(name, block, &source);
        self.columns(name, block, &source);
        Some(TableOptions {
            source,
            target: target?,
            primary_key: block.primary_key.value.clone(),
            columns: block.columns.value.clone(),
            append_only: block.append_only.value?,
            hot_rows: match block.hot_rows.value? {
                Hot::Auto => HotRows::Auto,
                Hot::All => HotRows::All,
                Hot::None => HotRows::None,
            },
            types: block.types.value.clone().unwrap_or_default(),
        })
    }

    /// Reads a block's target; the outer `None` says that there is a problem.
    fn target(&mut self, name: &str, block: &Table, source: &SourcePattern) -> Option<Option<TableName>> {
        let judged = match (block.target.value.as_deref(), source) {
            (None, SourcePattern::Schema(schema)) => check_namespace(schema).map(|()| None),
            (None, SourcePattern::Table(table)) => check_namespace(&table.schema)
                .and_then(|()| check_target_part(&table.name))
                .map(|()| None),
            (Some(_), SourcePattern::Schema(_)) => {
                Err("a whole schema takes the default targets; write one block for each table to choose others".into())
            }
            (Some(text), SourcePattern::Table(_)) => match parse_target(text) {
                Ok(Target::Table(table)) => Ok(Some(table)),
                Ok(Target::Namespace(_)) => Err("must name one table".into()),
                Err(message) => Err(message),
            },
        };
        match judged {
            Ok(target) => Some(target),
            Err(message) => {
                let span = block.target.span.as_ref().or(block.source.span.as_ref());
                self.refuse(span, &format!("{name}.target"), message);
                None
            }
        }
    }

    fn columns(&mut self, name: &str, block: &Table, source: &SourcePattern) {
        if matches!(source, SourcePattern::Schema(_)) {
            let single = "is for one table; write a block for the table it is meant for";
            for (key, span) in [
                ("primary_key", &block.primary_key.span),
                ("columns", &block.columns.span),
                ("types", &block.types.span),
            ] {
                if span.is_some() {
                    self.refuse(span.as_ref(), &format!("{name}.{key}"), single);
                }
            }
        }
        for (key, field) in [("primary_key", &block.primary_key), ("columns", &block.columns)] {
            if field.value.as_ref().is_some_and(Vec::is_empty) {
                let message = "must name a column, or be left out";
                self.refuse(field.span.as_ref(), &format!("{name}.{key}"), message);
            }
        }
        let columns = block.columns.value.as_deref();
        let left_out = |column: &str| columns.is_some_and(|columns| !columns.iter().any(|kept| kept == column));
        for column in block
            .primary_key
            .value
            .iter()
            .flatten()
            .filter(|column| left_out(column))
        {
            let message = format!("column '{}' is not among columns", clip(column));
            self.refuse(block.primary_key.span.as_ref(), &format!("{name}.primary_key"), message);
        }
        for (column, wanted) in block.types.value.iter().flatten() {
            let message = if left_out(column) {
                Some(format!("column '{}' is not among columns", clip(column)))
            } else {
                type_problem(wanted).map(|message| format!("column '{}': {message}", clip(column)))
            };
            if let Some(message) = message {
                self.refuse(block.types.span.as_ref(), &format!("{name}.types"), message);
            }
        }
    }

    /// Refuses by name what the file may say in a later version.
    fn refuse_unsupported(&mut self, document: &Document) {
        let catalog = &document.catalog;
        if catalog.r#type.value == Some(CatalogType::Rest) {
            let message = "REST catalogs are not in this version; write \"embedded\"";
            self.refuse(catalog.r#type.span.as_ref(), "catalog.type", message);
        }
        for (key, field) in [
            ("uri", &catalog.uri),
            ("prefix", &catalog.prefix),
            ("token_env", &catalog.token_env),
            ("credential_env", &catalog.credential_env),
            ("oauth2_server_uri", &catalog.oauth2_server_uri),
            ("tls_ca_file", &catalog.tls_ca_file),
            ("state_namespace", &catalog.state_namespace),
        ] {
            if field.span.is_some() {
                let message = "belongs to REST catalogs, which are not in this version";
                self.refuse(field.span.as_ref(), &format!("catalog.{key}"), message);
            }
        }
        for (key, span) in &document.storage {
            self.refuse(
                Some(span),
                key,
                "belongs to object stores, which are not in this version",
            );
        }
        if document.http.cut_retention.span.is_some() {
            let message = "cuts handed out to readers are not in this version";
            self.refuse(document.http.cut_retention.span.as_ref(), "http.cut_retention", message);
        }
        for (index, table) in document.tables.iter().enumerate() {
            let key = |key: &str| format!("tables[{index}].{key}");
            if table.format_version.value.is_some_and(|version| version != 2) {
                let message = "this version writes Iceberg format version 2 only";
                self.refuse(table.format_version.span.as_ref(), &key("format_version"), message);
            }
            if table.deletes.value == Some(Deletes::Equality) {
                let message = "equality deletes are not in this version; write \"position\"";
                self.refuse(table.deletes.span.as_ref(), &key("deletes"), message);
            }
            if table.partition_by.span.is_some() {
                let message = "partitioning is not in this version";
                self.refuse(table.partition_by.span.as_ref(), &key("partition_by"), message);
            }
        }
    }
}

fn check_namespace(schema: &str) -> Result<(), String> {
    let advice = |message| format!("as the default target, {message}; write a target");
    check_target_part(schema).map_err(advice)?;
    match schema.contains('.') {
        true => Err(format!("schema '{}' has a dot; write a target", clip(schema))),
        false => Ok(()),
    }
}

/// Says what is wrong with a type that a block asks for.
fn type_problem(text: &str) -> Option<String> {
    let decimal = || {
        let inner = text.strip_prefix("decimal(")?.strip_suffix(')')?;
        let (precision, scale) = inner.split_once(',')?;
        let digits = |text: &str| {
            let text = text.trim();
            text.bytes()
                .all(|b| b.is_ascii_digit())
                .then(|| text.parse::<u8>().ok())
                .flatten()
        };
        let (precision, scale) = (digits(precision)?, digits(scale)?);
        ((1..=38).contains(&precision) && scale <= precision).then_some(())
    };
    match text {
        "string" | "time" => None,
        _ if decimal().is_some() => None,
        _ => Some(format!(
            "'{}' is not \"string\", \"time\" or \"decimal(p,s)\" with 1 ≤ p ≤ 38 and s ≤ p",
            clip(text)
        )),
    }
}

/// Follows symbolic links as far as the path exists.
fn resolve(path: &Path) -> PathBuf {
    let mut rest = Vec::new();
    let mut existing = path;
    loop {
        if let Ok(real) = existing.canonicalize() {
            return rest.iter().rev().fold(real, |path, part| path.join(part));
        }
        let (Some(parent), Some(name)) = (existing.parent(), existing.file_name()) else {
            return path.to_path_buf();
        };
        rest.push(name);
        existing = parent;
    }
}
