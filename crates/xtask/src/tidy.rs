//! Text checks over the whole workspace. Each answers with lines that say where and what to do.
//!
//! 1. `layers`: arrows between crates and the homes of foreign libraries, one table each.
//! 2. `cycles`: the top-level modules of a crate form no cycle.
//! 3. `sizes`: files and functions over the soft limits may only shrink.
//! 4. `shape`: names, module docs, error pages.
//!
//! Works on text alone, so it runs before anything compiles.

mod cycles;
mod layers;
mod rust_text;
mod shape;
mod sizes;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::workspace::{files, root};
use rust_text::RustText;

/// Is one Rust file of the workspace.
struct Source {
    /// Is the path below the root, with forward slashes.
    path: String,
    /// Is the file as it is.
    text: String,
    /// Is the same text without comments and literals.
    code: RustText,
}

/// Checks everything; with `update`, writes the size ratchets as they stand.
pub(crate) fn check(update: bool) -> Result<()> {
    let root = root();
    let sources = read_sources(&root)?;
    let mut problems = Vec::new();
    problems.extend(layers::check(&layers::read_manifests(&root)?));
    problems.extend(cycles::check(&sources));
    problems.extend(shape::check(&sources));
    problems.extend(shape::check_error_pages(&sources, &error_pages(&root)?));
    problems.extend(sizes::check(&root, &sources, update)?);
    if problems.is_empty() {
        return Ok(());
    }
    for problem in &problems {
        eprintln!("tidy: {problem}");
    }
    bail!("tidy found {} problem(s)", problems.len())
}

fn read_sources(root: &Path) -> Result<Vec<Source>> {
    let read = |file: PathBuf| {
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let path = file.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
        Ok(Source {
            path,
            code: RustText::new(&text),
            text,
        })
    };
    files(&root.join("crates"), ".rs")?.into_iter().map(read).collect()
}

fn error_pages(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("docs/errors");
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let stem = |path: PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    Ok(files(&folder, ".md")?.into_iter().filter_map(stem).collect())
}

#[cfg(test)]
impl Source {
    fn of(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            code: RustText::new(text),
        }
    }
}
