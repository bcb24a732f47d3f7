//! Names, module docs, and the pairing of error codes with their pages.

use std::collections::{BTreeMap, BTreeSet};

use super::Source;

/// A thing lives with its noun; these are not nouns.
const NAMES_FORBIDDEN: &[&str] = &["util", "utils", "common", "helper", "helpers", "types", "misc"];
/// From this many lines on a file opens with a `//!` doc.
const LINES_WITHOUT_DOC_MAX: usize = 100;

/// Checks names and module docs.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for source in sources {
        let path = &source.path;
        let parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
        if parts.last() == Some(&"mod") {
            problems.push(format!("{path}: a module is foo.rs beside foo/, never foo/mod.rs"));
        }
        if let Some(name) = parts.iter().find(|part| NAMES_FORBIDDEN.contains(*part)) {
            problems.push(format!("{path}: `{name}` says nothing; a thing lives with its noun"));
        }
        for name in NAMES_FORBIDDEN
            .iter()
            .filter(|name| source.code.as_str().contains(&format!("mod {name} {{")))
        {
            problems.push(format!(
                "{path}: module `{name}` says nothing; a thing lives with its noun"
            ));
        }
        if source.text.lines().count() > LINES_WITHOUT_DOC_MAX && !source.text.starts_with("//!") {
            problems.push(format!(
                "{path}: over {LINES_WITHOUT_DOC_MAX} lines and no `//!` doc on its first line"
            ));
        }
    }
    problems
}

/// Checks that each code in the sources has its page, and that each page's code stands in what is
/// no test: a test that expects a code does not produce it.
pub(super) fn check_error_pages(sources: &[Source], pages: &[String]) -> Vec<String> {
    let mut codes: BTreeMap<String, &str> = BTreeMap::new();
    let mut produced: BTreeSet<String> = BTreeSet::new();
    for source in sources
        .iter()
        .filter(|source| !source.path.starts_with("crates/xtask/"))
    {
        for code in codes_in(&source.text) {
            codes.entry(code).or_insert(&source.path);
        }
        produced.extend(codes_in(without_tests(source)));
    }
    let pages: BTreeSet<&str> = pages.iter().map(String::as_str).filter(|page| is_code(page)).collect();
    let mut problems = Vec::new();
    for (code, path) in codes.iter().filter(|(code, _)| !pages.contains(code.as_str())) {
        problems.push(format!("{path}: code {code} has no page docs/errors/{code}.md"));
    }
    for page in pages.into_iter().filter(|page| !produced.contains(*page)) {
        problems.push(format!("docs/errors/{page}.md: no source produces this code"));
    }
    problems
}

/// Is what of a file is compiled into the program: unit tests stand at its end or in files of their own.
fn without_tests(source: &Source) -> &str {
    let of_tests = ["/tests/", "/tests.rs"].iter().any(|part| source.path.contains(part));
    match source.text.find("#[cfg(test)]\nmod tests {") {
        _ if of_tests => "",
        Some(end) => &source.text[..end],
        None => &source.text,
    }
}

/// Lists the string literals that are codes.
fn codes_in(text: &str) -> Vec<String> {
    text.split('"')
        .filter(|part| is_code(part))
        .map(str::to_owned)
        .collect()
}

fn is_code(text: &str) -> bool {
    text.len() == 5 && text.starts_with('F') && text[1..].bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_names_are_refused() {
        let check = |path: &str, text: &str| check(&[Source::of(path, text)]).len();
        assert_eq!(check("crates/c/src/journal.rs", ""), 0);
        assert_eq!(check("crates/c/src/utils.rs", ""), 1);
        assert_eq!(check("crates/c/src/common/x.rs", ""), 1);
        assert_eq!(check("crates/c/src/a/mod.rs", ""), 1);
        assert_eq!(check("crates/c/src/a.rs", "mod helpers {}"), 1);
        assert_eq!(check("crates/c/src/a.rs", "// mod helpers {}"), 0);
    }

    #[test]
    fn long_files_open_with_a_doc() {
        let lines = "a();\n".repeat(101);
        assert_eq!(check(&[Source::of("crates/c/src/a.rs", &lines)]).len(), 1);
        assert_eq!(
            check(&[Source::of("crates/c/src/a.rs", &format!("//! Doc.\n{lines}"))]).len(),
            0
        );
        assert_eq!(
            check(&[Source::of("crates/c/src/a.rs", &"a();\n".repeat(100))]).len(),
            0
        );
    }

    #[test]
    fn codes_and_pages_are_paired() {
        let sources = [Source::of(
            "crates/c/src/a.rs",
            "const A: &str = \"F1001\"; // see F9999",
        )];
        let check = |pages: &[&str]| {
            let pages: Vec<String> = pages.iter().map(|page| (*page).to_owned()).collect();
            check_error_pages(&sources, &pages).len()
        };
        assert_eq!(check(&["F1001", "README"]), 0);
        assert_eq!(check(&[]), 1);
        assert_eq!(check(&["F1001", "F1002"]), 1);
        let only_expected = [
            Source::of("crates/c/src/a.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n\"F1001\"}"),
            Source::of("crates/c/src/a/tests.rs", "\"F1001\""),
            Source::of("crates/c/tests/it/a.rs", "\"F1001\""),
        ];
        for source in only_expected {
            let path = source.path.clone();
            assert_eq!(check_error_pages(&[source], &["F1001".to_owned()]).len(), 1, "{path}");
        }
    }
}
