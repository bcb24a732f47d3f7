//! The top-level modules of a crate form no cycle. `lib.rs`, `main.rs` and `error.rs` are exempt.
//!
//! An arrow is a path that begins with `crate::` (or `super::` in a top-level file) outside tests. A
//! name that `lib.rs` re-exports counts as its module, so a re-export hides nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::Source;

type Graph = BTreeMap<String, BTreeSet<String>>;

/// Checks every crate.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources {
        if let Some((folder, _)) = source.path.split_once("/src/") {
            crates.entry(folder).or_default().push(source);
        }
    }
    let mut problems = Vec::new();
    for (folder, sources) in crates {
        for cycle in knots(&graph(&sources)) {
            problems.push(format!("{folder}: modules form a cycle: {}", cycle.join(", ")));
        }
    }
    problems
}

fn graph(sources: &[&Source]) -> Graph {
    let exports = sources
        .iter()
        .find(|source| source.path.ends_with("/src/lib.rs"))
        .map(|lib| re_exports(lib));
    let exports = exports.unwrap_or_default();
    let mut graph = Graph::new();
    for source in sources {
        let inside = source.path.split_once("/src/").map_or("", |(_, inside)| inside);
        let module = inside.split(['/', '.']).next().unwrap_or("").to_owned();
        if inside.starts_with("bin/") || ["lib", "main", "error"].contains(&module.as_str()) || is_test_file(inside) {
            continue;
        }
        let code = source.code.without_tests();
        let mut names = named_after(&code, "crate::");
        if !inside.contains('/') {
            names.extend(named_after(&code, "super::"));
        }
        let targets = names
            .into_iter()
            .map(|name| exports.get(&name).cloned().unwrap_or(name));
        graph
            .entry(module.clone())
            .or_default()
            .extend(targets.filter(|target| *target != module));
    }
    let known: BTreeSet<String> = graph.keys().cloned().collect();
    for targets in graph.values_mut() {
        targets.retain(|target| known.contains(target));
    }
    graph
}

fn is_test_file(inside: &str) -> bool {
    inside.ends_with("/tests.rs") || inside.contains("/tests/") || inside == "tests.rs"
}

/// Maps each name that `lib.rs` re-exports to the module it comes from.
fn re_exports(lib: &Source) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for statement in lib.code.as_str().split(';') {
        let Some((_, path)) = statement.rsplit_once("pub use ") else {
            continue;
        };
        let path = path.trim().trim_start_matches("crate::").trim_start_matches("self::");
        let Some((module, rest)) = path.split_once("::") else {
            continue;
        };
        for name in rest
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|name| !name.is_empty())
        {
            exports.insert(name.to_owned(), module.to_owned());
        }
    }
    exports
}

/// Lists the first path segments behind each `prefix`, groups in braces opened.
fn named_after(code: &str, prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        let part_of_word = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '$');
        if part_of_word {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        match rest.strip_prefix('{') {
            Some(group) => names.extend(group_heads(group)),
            None => names.extend(head(rest)),
        }
    }
    names
}

fn head(text: &str) -> Option<String> {
    let name: String = text
        .trim_start()
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    (!name.is_empty()).then_some(name)
}

fn group_heads(group: &str) -> Vec<String> {
    let (mut depth, mut item, mut items) = (0, String::new(), Vec::new());
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => items.push(std::mem::take(&mut item)),
            _ => {}
        }
        if c != ',' || depth > 0 {
            item.push(c);
        }
    }
    items.push(item);
    items.iter().filter_map(|item| head(item)).collect()
}

/// Lists the groups of modules that reach each other.
fn knots(graph: &Graph) -> Vec<Vec<String>> {
    let reach: BTreeMap<&String, BTreeSet<String>> = graph.keys().map(|from| (from, reachable(graph, from))).collect();
    let mut found: BTreeSet<Vec<String>> = BTreeSet::new();
    for (from, targets) in &reach {
        let back = |target: &&String| reach.get(*target).is_some_and(|targets| targets.contains(*from));
        let knot: Vec<String> = targets.iter().filter(back).cloned().collect();
        if knot.len() > 1 {
            found.insert(knot);
        }
    }
    found.into_iter().collect()
}

fn reachable(graph: &Graph, from: &str) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut waiting: Vec<&str> = vec![from];
    while let Some(module) = waiting.pop() {
        for target in graph.get(module).into_iter().flatten() {
            if seen.insert(target.clone()) {
                waiting.push(target);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles(files: &[(&str, &str)]) -> usize {
        let sources: Vec<_> = files
            .iter()
            .map(|(path, text)| Source::of(&format!("crates/c/src/{path}"), text))
            .collect();
        check(&sources).len()
    }

    #[test]
    fn a_cycle_of_two_is_found_and_a_line_is_not() {
        assert_eq!(
            cycles(&[("a.rs", "use crate::b::X;"), ("b.rs", "fn f() { crate::a::g() }")]),
            1
        );
        assert_eq!(cycles(&[("a.rs", "use crate::b::X;"), ("b.rs", "")]), 0);
    }

    #[test]
    fn groups_supers_sub_modules_and_re_exports_are_seen_through() {
        assert_eq!(
            cycles(&[
                ("a.rs", "use crate::{c::{D, E}, b};"),
                ("b.rs", "use super::a;"),
                ("c.rs", "")
            ]),
            1
        );
        assert_eq!(
            cycles(&[
                ("a/deep.rs", "use crate::b::X;"),
                ("a.rs", ""),
                ("b.rs", "use crate::a;")
            ]),
            1
        );
        assert_eq!(
            cycles(&[
                ("lib.rs", "mod a; mod b; pub use a::{Thing, Other};"),
                ("a.rs", "use crate::b;"),
                ("b.rs", "use crate::Thing;"),
            ]),
            1
        );
    }

    #[test]
    fn tests_comments_and_error_rs_do_not_count() {
        assert_eq!(
            cycles(&[
                ("a.rs", "use crate::b;"),
                ("b.rs", "#[cfg(test)]\nmod tests { use crate::a; }")
            ]),
            0
        );
        assert_eq!(cycles(&[("a.rs", "use crate::b;"), ("b.rs", "// crate::a\n")]), 0);
        assert_eq!(
            cycles(&[("a.rs", "use crate::error::E;"), ("error.rs", "use crate::a::X;")]),
            0
        );
    }
}
