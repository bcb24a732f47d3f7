//! Arrows between crates, and the homes of foreign libraries.
//!
//! Both tables are the design's own. A dependency that stands in neither is a problem: who adds one
//! decides here where it lives.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

/// Lists for each crate the crates it may depend on. Arrows point down only.
const ARROWS: &[(&str, &[&str])] = &[
    ("flow-core", &[]),
    ("flow-source", &["flow-core"]),
    ("flow-store", &["flow-core"]),
    ("flow-lake", &["flow-core"]),
    ("flow-refresh", &["flow-core"]),
    (
        "flow-engine",
        &["flow-core", "flow-source", "flow-store", "flow-lake", "flow-refresh"],
    ),
    ("flow-http", &["flow-core", "flow-engine", "flow-lake"]),
    (
        "flow-daemon",
        &[
            "flow-core",
            "flow-source",
            "flow-store",
            "flow-lake",
            "flow-refresh",
            "flow-engine",
            "flow-http",
        ],
    ),
    ("flow-testkit", &["flow-core"]),
    ("xtask", &[]),
];

/// May be a dev-dependency of every crate and a dependency of none.
const DEV_ONLY: &str = "flow-testkit";

const EVERYWHERE: &[&str] = &[
    "arrow-array",
    "arrow-buffer",
    "arrow-cast",
    "arrow-ord",
    "arrow-row",
    "arrow-schema",
    "arrow-select",
    "async-trait",
    "bytes",
    "futures",
    "futures-core",
    "serde",
    "serde_json",
    "thiserror",
    "tracing",
];

const EVERYWHERE_IN_TESTS: &[&str] = &["anyhow", "proptest", "tempfile", "tokio", "tracing-subscriber"];

const ASYNC: &[&str] = &[
    "flow-source",
    "flow-store",
    "flow-lake",
    "flow-refresh",
    "flow-engine",
    "flow-http",
    "flow-daemon",
    DEV_ONLY,
];

/// Lists for each foreign library its home; nearly always one crate.
const HOMES: &[(&str, &[&str])] = &[
    ("anyhow", &["flow-daemon", DEV_ONLY, "xtask"]),
    // Rows of a result that do not fit in memory, in a file.
    ("arrow-ipc", &["flow-refresh"]),
    ("axum", &["flow-http"]),
    ("clap", &["flow-daemon"]),
    ("crc32fast", &["flow-core", "flow-store"]),
    ("datafusion", &["flow-refresh"]),
    ("hashbrown", &["flow-core"]),
    ("iceberg", &["flow-lake"]),
    // File locks, signals and free disk space: thin system calls, each where it is needed.
    ("libc", &["flow-store", "flow-engine", "flow-daemon"]),
    ("parquet", &["flow-lake"]),
    ("postgres-protocol", &["flow-source"]),
    ("prometheus", &["flow-http"]),
    ("rocksdb", &["flow-store"]),
    // The test kit reads `flow_sources` as any foreign reader of the catalog would.
    ("rusqlite", &["flow-lake", DEV_ONLY]),
    ("rustls", &["flow-source"]),
    ("sha2", &["flow-refresh", "flow-engine"]),
    // Elsewhere in tests only.
    ("tempfile", &["flow-refresh"]),
    ("tokio", ASYNC),
    // The test kit is a PostgreSQL client of its own: it plays the user's application.
    ("tokio-postgres", &["flow-source", DEV_ONLY]),
    ("tokio-util", ASYNC),
    ("socket2", &["flow-source"]),
    ("tokio-rustls", &["flow-source"]),
    ("toml", &["flow-daemon", "xtask"]),
    ("toml_edit", &["flow-daemon"]),
    ("tracing-subscriber", &["flow-daemon"]),
    ("uuid", &["flow-lake", "flow-engine"]),
];

/// Is what one crate depends on.
pub(super) struct Manifest {
    pub(super) folder: String,
    pub(super) name: String,
    pub(super) dependencies: Vec<String>,
    pub(super) dev_dependencies: Vec<String>,
}

/// Reads the manifests of all crates.
pub(super) fn read_manifests(root: &Path) -> Result<Vec<Manifest>> {
    let mut manifests = Vec::new();
    for file in crate::workspace::files(&root.join("crates"), "Cargo.toml")? {
        let folder = file
            .parent()
            .and_then(Path::file_name)
            .map(|name| name.to_string_lossy().into_owned());
        let text = std::fs::read_to_string(&file)?;
        let folder = folder.context("a manifest lies in a folder")?;
        manifests.push(parse(folder, &text).with_context(|| format!("cannot read {}", file.display()))?);
    }
    Ok(manifests)
}

fn parse(folder: String, text: &str) -> Result<Manifest> {
    let table: toml::Table = text.parse()?;
    let name = table
        .get("package")
        .and_then(|package| package.get("name"))
        .and_then(toml::Value::as_str);
    let keys = |section: &str| -> Vec<String> {
        let section = table.get(section).and_then(toml::Value::as_table);
        section
            .map(|section| section.keys().cloned().collect())
            .unwrap_or_default()
    };
    Ok(Manifest {
        folder,
        name: name.context("no package.name")?.to_owned(),
        dependencies: [keys("dependencies"), keys("build-dependencies")].concat(),
        dev_dependencies: keys("dev-dependencies"),
    })
}

/// Checks both tables.
pub(super) fn check(manifests: &[Manifest]) -> Vec<String> {
    let arrows: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let homes: BTreeMap<&str, &[&str]> = HOMES.iter().copied().collect();
    let mut problems = Vec::new();
    for manifest in manifests {
        let name = manifest.name.as_str();
        if manifest.folder != name {
            problems.push(format!(
                "crates/{}: holds crate {name}; folder and crate have one name",
                manifest.folder
            ));
        }
        let Some(below) = arrows.get(name) else {
            problems.push(format!(
                "crates/{name}: has no row in ARROWS (xtask/src/tidy/layers.rs)"
            ));
            continue;
        };
        let ours = |dependency: &str| arrows.contains_key(dependency);
        let at_home = |dependency: &str| {
            EVERYWHERE.contains(&dependency) || homes.get(dependency).is_some_and(|home| home.contains(&name))
        };
        for dependency in manifest.dependencies.iter().map(String::as_str) {
            if ours(dependency) && !below.contains(&dependency) {
                problems.push(format!(
                    "crates/{name}: must not depend on {dependency}; arrows point down only"
                ));
            } else if !ours(dependency) && !at_home(dependency) {
                problems.push(format!(
                    "crates/{name}: {dependency} has its home elsewhere or none (HOMES)"
                ));
            }
        }
        for dependency in manifest.dev_dependencies.iter().map(String::as_str) {
            if ours(dependency) && dependency != DEV_ONLY && !below.contains(&dependency) {
                problems.push(format!(
                    "crates/{name}: its tests must not use {dependency}; arrows point down only"
                ));
            } else if !ours(dependency) && !at_home(dependency) && !EVERYWHERE_IN_TESTS.contains(&dependency) {
                problems.push(format!(
                    "crates/{name}: its tests use {dependency}, whose home is elsewhere (HOMES)"
                ));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(name: &str, text: &str) -> Vec<String> {
        let text = format!("[package]\nname = \"{name}\"\n{text}");
        check(&[parse(name.to_owned(), &text).expect("the manifest parses")])
    }

    #[test]
    fn arrows_point_down_only() {
        assert!(problems("flow-store", "[dependencies]\nflow-core.workspace = true").is_empty());
        assert_eq!(
            problems("flow-store", "[dependencies]\nflow-lake.workspace = true").len(),
            1
        );
        assert_eq!(
            problems("flow-store", "[dev-dependencies]\nflow-lake.workspace = true").len(),
            1
        );
        assert_eq!(
            problems("flow-core", "[dependencies]\nflow-engine.workspace = true").len(),
            1
        );
    }

    #[test]
    fn the_test_kit_is_never_a_normal_dependency() {
        assert!(problems("flow-lake", "[dev-dependencies]\nflow-testkit.workspace = true").is_empty());
        assert_eq!(
            problems("flow-lake", "[dependencies]\nflow-testkit.workspace = true").len(),
            1
        );
    }

    #[test]
    fn a_foreign_library_stays_at_home() {
        assert!(problems("flow-store", "[dependencies]\nrocksdb = \"1\"\nserde = \"1\"").is_empty());
        assert_eq!(problems("flow-engine", "[dependencies]\nrocksdb = \"1\"").len(), 1);
        assert_eq!(problems("flow-engine", "[dependencies]\nleft-pad = \"1\"").len(), 1);
        assert_eq!(problems("flow-core", "[dependencies]\ntokio = \"1\"").len(), 1);
        assert!(problems("flow-core", "[dev-dependencies]\ntokio = \"1\"").is_empty());
    }

    #[test]
    fn unknown_crates_and_other_folder_names_are_named() {
        assert_eq!(problems("flow-new", "").len(), 1);
        let moved = parse("other".into(), "[package]\nname = \"flow-core\"").expect("the manifest parses");
        assert_eq!(check(&[moved]).len(), 1);
    }
}
