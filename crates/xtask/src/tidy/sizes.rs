//! Sizes: a file of more than 600 lines with code, a function of more than 70, is too long to
//! proofread. What is over stands in `ratchets.toml` and may only shrink.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::Source;

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const FILE: &str = "crates/xtask/ratchets.toml";
const HEADER: &str = "# What is longer than the limits. It may shrink; nothing else may be added.\n\
                      # `cargo xtask tidy --update` rewrites this file.\n\n";

/// Counts lines with code: by path, and by `path::function`.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ratchets {
    #[serde(default)]
    files: BTreeMap<String, usize>,
    #[serde(default)]
    functions: BTreeMap<String, usize>,
}

/// Checks the sizes against the ratchets; with `update`, writes them as they stand.
pub(super) fn check(root: &Path, sources: &[Source], update: bool) -> Result<Vec<String>> {
    let over = measure(sources);
    let file = root.join(FILE);
    if update {
        std::fs::write(&file, HEADER.to_owned() + &toml::to_string(&over)?)?;
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {FILE}"))?;
    let allowed: Ratchets = toml::from_str(&text).with_context(|| format!("cannot read {FILE}"))?;
    let mut problems = compare(&over.files, &allowed.files, FILE_LINES_MAX);
    problems.extend(compare(&over.functions, &allowed.functions, FUNCTION_LINES_MAX));
    Ok(problems)
}

fn measure(sources: &[Source]) -> Ratchets {
    let mut over = Ratchets::default();
    for source in sources {
        let lines = source.code.code_lines();
        if lines > FILE_LINES_MAX {
            over.files.insert(source.path.clone(), lines);
        }
        for function in source
            .code
            .functions()
            .into_iter()
            .filter(|f| f.code_lines > FUNCTION_LINES_MAX)
        {
            // Two functions of one name in one file share an entry: the longer one counts.
            let entry = over
                .functions
                .entry(format!("{}::{}", source.path, function.name))
                .or_default();
            *entry = (*entry).max(function.code_lines);
        }
    }
    over
}

fn compare(over: &BTreeMap<String, usize>, allowed: &BTreeMap<String, usize>, limit: usize) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, lines) in over {
        match allowed.get(name) {
            None => problems.push(format!("{name}: {lines} lines with code, the limit is {limit}")),
            Some(most) if lines > most => problems.push(format!("{name}: grew from {most} to {lines} lines with code")),
            Some(most) if lines < most => problems.push(format!("{name}: shrank to {lines}; {}", RERUN)),
            Some(_) => {}
        }
    }
    for name in allowed.keys().filter(|name| !over.contains_key(*name)) {
        problems.push(format!("{name}: is within the limit; {RERUN}"));
    }
    problems
}

const RERUN: &str = "keep that with `cargo xtask tidy --update`";

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(file_lines: usize, function_lines: usize) -> Ratchets {
        let body = "    x();\n".repeat(function_lines - 2);
        let text = format!("fn long() {{\n{body}}}\n") + &"const A: u8 = 1;\n".repeat(file_lines - function_lines);
        measure(&[Source::of("crates/c/src/a.rs", &text)])
    }

    #[test]
    fn limits_are_exact() {
        assert_eq!(sizes(600, 70), Ratchets::default());
        let over = sizes(601, 71);
        assert_eq!(over.files["crates/c/src/a.rs"], 601);
        assert_eq!(over.functions["crates/c/src/a.rs::long"], 71);
    }

    #[test]
    fn a_ratchet_only_turns_one_way() {
        let one = |n: usize| BTreeMap::from([("f".to_owned(), n)]);
        let check = |now: usize, allowed: usize| compare(&one(now), &one(allowed), 600).len();
        assert_eq!(check(700, 700), 0);
        assert_eq!(check(701, 700), 1);
        assert_eq!(check(699, 700), 1, "a shrunken file keeps its gain");
        assert_eq!(compare(&one(700), &BTreeMap::new(), 600).len(), 1);
        assert_eq!(compare(&BTreeMap::new(), &one(700), 600).len(), 1);
    }
}
