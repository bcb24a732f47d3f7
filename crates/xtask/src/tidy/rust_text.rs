//! Rust source as text: comments and literals blanked, so that braces and names can be counted.
//!
//! Not a parser. It knows comments (nested), strings (raw, byte), characters beside lifetimes, and
//! where `#[cfg(test)]` items end. That is all the checks need.

/// Is a source text whose comments and literal contents are spaces. Lines stay where they were.
pub(super) struct RustText(String);

/// Is one function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// Is the line of its `fn`, from 1.
    pub(super) line: usize,
    /// Counts its lines with code, from `fn` to the closing brace.
    pub(super) code_lines: usize,
}

impl RustText {
    /// Blanks a source text.
    pub(super) fn new(source: &str) -> Self {
        Self(blank(source))
    }

    /// Is the blanked text.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Counts the lines that hold code.
    pub(super) fn code_lines(&self) -> usize {
        code_lines(&self.0)
    }

    /// Is the text without items under `#[cfg(test)]`.
    pub(super) fn without_tests(&self) -> String {
        let mut out = String::new();
        let mut rest = self.0.as_str();
        while let Some(at) = rest.find("#[cfg(test)]") {
            let (before, item) = rest.split_at(at);
            out += before;
            rest = &item[item_end(item)..];
        }
        out + rest
    }

    /// Lists the functions with a body.
    pub(super) fn functions(&self) -> Vec<Function> {
        let text = &self.0;
        let mut found = Vec::new();
        for (at, _) in text.match_indices("fn ") {
            let starts_word = at == 0 || !is_word(text.as_bytes()[at - 1]);
            let name: String = text[at + 3..]
                .trim_start()
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            if !starts_word || name.is_empty() {
                continue;
            }
            let end = item_end(&text[at..]);
            let body = &text[at..at + end];
            if body.ends_with('}') {
                let line = text[..at].matches('\n').count() + 1;
                found.push(Function {
                    name,
                    line,
                    code_lines: code_lines(body),
                });
            }
        }
        found
    }
}

fn code_lines(text: &str) -> usize {
    text.lines().filter(|line| !line.trim().is_empty()).count()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Is where the item that `text` begins with ends: behind its `;` or its closing brace.
fn item_end(text: &str) -> usize {
    let (mut round, mut curly) = (0i32, 0i32);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' => round += 1,
            b')' | b']' => round -= 1,
            b'{' => curly += 1,
            b'}' => {
                curly -= 1;
                if curly == 0 && round == 0 {
                    return at + 1;
                }
            }
            b';' if curly == 0 && round == 0 => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn blank(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = at + token_length(&source[at..], out.last().copied());
        let kept = end - at == 1 && !matches!(bytes[at], 128..);
        for &byte in &bytes[at..end] {
            out.push(if kept || byte == b'\n' { byte } else { b' ' });
        }
        // A literal leaves its quotes, so that its line still counts as code.
        if !kept && !source[at..].starts_with('/') {
            let first = out.len() - (end - at);
            out[first] = b'"';
        }
        at = end;
    }
    String::from_utf8(out).expect("only ASCII bytes are kept")
}

/// Is how many bytes the comment or literal at the start of `text` takes; 1 for anything else.
fn token_length(text: &str, before: Option<u8>) -> usize {
    let inside_word = before.is_some_and(is_word);
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return block_comment(text);
    }
    if text.starts_with('"') {
        return quoted(text, 1);
    }
    if !inside_word && text.starts_with("b\"") {
        return quoted(text, 2);
    }
    if !inside_word && (text.starts_with('r') || text.starts_with("br")) {
        return raw_string(text).unwrap_or(1);
    }
    if text.starts_with('\'') {
        return character(text).unwrap_or(1);
    }
    text.chars().next().map_or(1, char::len_utf8)
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    let bytes = text.as_bytes();
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

fn quoted(text: &str, open: usize) -> usize {
    let bytes = text.as_bytes();
    let mut at = open;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

fn raw_string(text: &str) -> Option<usize> {
    let after = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let hashes = after.bytes().take_while(|byte| *byte == b'#').count();
    let inner = after[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let length = inner.find(&close).map_or(inner.len(), |at| at + close.len());
    Some(text.len() - inner.len() + length)
}

/// Is the length of a character literal; `None` for a lifetime.
fn character(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    let (_, first) = chars.next()?;
    if first == '\\' {
        chars.next()?;
        return text[3..].find('\'').map(|at| at + 4);
    }
    let (at, second) = chars.next()?;
    (second == '\'').then_some(at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> String {
        RustText::new(source)
            .as_str()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        let check = |source: &str, expect: &str| assert_eq!(words(source), expect, "{source}");
        check("a // { b\nc", "a c");
        check("a /* { /* } */ */ b", "a b");
        check(r#"f("{ \" }", 'x', '{', '\'', '\u{7d}')"#, "f(\" , \" , \" , \" , \" )");
        check("r#\"{ \" }\"# x", "\" x");
        check("b\"{\" br\"{\" x", "\" \" x");
        check("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}");
        check("'o: loop { break 'o; }", "'o: loop { break 'o; }");
        check("let ä = \"ß\";", "let \" = \" ;");
    }

    #[test]
    fn lines_stay_and_only_code_counts() {
        let text = RustText::new("//! doc\n\nfn a() {\n    // why\n    b(\"x\n y\");\n}\n");
        assert_eq!(text.as_str().lines().count(), 6 + 1);
        assert_eq!(text.code_lines(), 4);
    }

    #[test]
    fn functions_are_measured() {
        let text = RustText::new("trait T { fn sig(&self) -> [u8; 2]; }\nfn a(x: [u8; 2]) {\n  if x { y }\n\n}\n");
        let expect = vec![Function {
            name: "a".into(),
            line: 2,
            code_lines: 3,
        }];
        assert_eq!(text.functions(), expect);
    }

    #[test]
    fn test_items_are_cut() {
        let text = RustText::new("a;\n#[cfg(test)]\nmod tests { use crate::x; }\nb;\n#[cfg(test)]\nuse c;\nd;");
        assert_eq!(text.without_tests().split_whitespace().collect::<String>(), "a;b;d;");
    }
}
