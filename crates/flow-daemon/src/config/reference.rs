//! Writes `docs/configuration.md` from the declarations in [`document`](super::document).

use std::fmt::Write as _;

use super::document::section_docs;
use super::read::FieldDoc;

const HEAD: &str = "\
# Configuration

<!-- Written by `embrasure-flow docs configuration`; a test compares. Edit the declarations instead. -->

Everything is declared in one file, `flow.toml` in the current directory or the one that `--config` names.
`embrasure-flow new DIR` writes a commented one, and `embrasure-flow check` reports every problem of a file at once, with line and column.

- Unknown keys are errors, and so is what this version cannot do: nothing is ignored.
- A *duration* is a whole number with a unit in quotes: `\"500ms\"`, `\"10s\"`, `\"5m\"`, `\"1h\"`, `\"7d\"`.
- A *size* is a whole number with a binary unit in quotes: `\"512B\"`, `\"64KiB\"`, `\"64MiB\"`, `\"1GiB\"`, `\"1TiB\"`.
- Paths are relative to the file.
- Secrets never stand in the file: an option whose name ends in `_env` names the environment variable that holds one.
- `SIGHUP` makes a running service read the file again.
  A table that disappears from it is captured and published as before, and a warning in the log names it: this version cannot take a table out.
";

/// Writes the whole page.
pub fn configuration_page() -> String {
    let mut page = String::from(HEAD);
    for (name, text, fields) in section_docs() {
        let heading = match name {
            "" => "Above all sections".to_string(),
            "tables" => "`[[tables]]`".to_string(),
            name => format!("`[{name}]`"),
        };
        let _ = write!(page, "\n## {heading}\n");
        if !name.is_empty() {
            let _ = write!(page, "\n{}\n", text.trim());
        }
        if !fields.is_empty() {
            page.push_str("\n| option | value | default | meaning |\n|---|---|---|---|\n");
        }
        for field in &fields {
            page.push_str(&row(field));
        }
    }
    page
}

fn row(field: &FieldDoc) -> String {
    let mut kind = field.kind.clone();
    if let Some((min, max)) = field.range {
        let _ = write!(kind, ", {min} to {max}");
    }
    let default = field.default.map_or(String::new(), |default| format!("`{default}`"));
    let meaning = field.text.trim().replace('|', "\\|");
    format!("| `{}` | {kind} | {default} | {meaning} |\n", field.key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_docs_is_this_one() {
        let shown = include_str!("../../../../docs/configuration.md");
        assert!(
            shown == configuration_page(),
            "docs/configuration.md differs; write it with: embrasure-flow docs configuration > docs/configuration.md"
        );
    }
}
