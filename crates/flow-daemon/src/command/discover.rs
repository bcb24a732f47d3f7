//! `discover`: prints `[[tables]]` blocks for the publication's tables.
//!
//! A table that cannot be replicated is printed as a comment, with the reason above it.

use std::collections::BTreeMap;
use std::path::Path;

use flow_core::TableName;
use flow_engine::options::{HotRows, SourcePattern, TableOptions};
use flow_source::Report;

use super::context;
use crate::cli::Discover;
use crate::config::names::{Selector, parse_source};
use crate::exit::{Exit, Failure};
use crate::{output, runtime};

pub(super) fn run(file: &Path, discover: &Discover) -> Result<Exit, Failure> {
    context::quiet_log()?;
    let mut options = context::source_options(file)?;
    let names: Vec<TableName> = discover
        .tables
        .iter()
        .map(|text| table(text))
        .collect::<Result<_, _>>()?;
    let report = runtime::block_on(async {
        let found = flow_engine::look::discover(&options, discover.schema.as_deref(), &names).await?;
        if found.is_empty() {
            return Ok(Report::default());
        }
        options.tables = found.into_iter().map(|table| plain(table.name)).collect();
        Ok(flow_engine::look::check_source(&options).await?)
    })?;
    for missing in names
        .iter()
        .filter(|name| !report.tables.iter().any(|(request, ..)| request.source == **name))
    {
        output::note(&format!(
            "warning: {missing} is not in publication {}",
            options.publication
        ));
    }
    output::result(&blocks(&report, discover.target_namespace.as_deref()))?;
    Ok(Exit::Done)
}

fn table(text: &str) -> Result<TableName, Failure> {
    match parse_source(text) {
        Ok(Selector::Table(name)) => Ok(name),
        Ok(Selector::Schema(schema)) => Err(Failure::new(
            Exit::Usage,
            format!("for a whole schema write --schema {schema}"),
        )),
        Err(message) => Err(Failure::new(Exit::Usage, message)),
    }
}

fn plain(name: TableName) -> TableOptions {
    TableOptions {
        source: SourcePattern::Table(name),
        target: None,
        primary_key: None,
        columns: None,
        append_only: false,
        hot_rows: HotRows::Auto,
        types: BTreeMap::new(),
    }
}

/// Writes one block for each table, in the order of the report.
fn blocks(report: &Report, namespace: Option<&str>) -> String {
    let mut text = String::new();
    for (request, ..) in &report.tables {
        let name = &request.source;
        let problems: Vec<_> = report
            .problems()
            .filter(|check| check.table.as_ref() == Some(name))
            .collect();
        let target = TableName::new(namespace.unwrap_or(&name.schema), &name.name);
        let mut block = format!("[[tables]]\nsource = {}\n", toml_text(&dotted(name)));
        if target != *name {
            block += &format!("target = {}\n", toml_text(&dotted(&target)));
        }
        if problems.is_empty() {
            text += &block;
        } else {
            text += &format!("# {} cannot be replicated as it is:\n", one_line(&name.to_string()));
            for problem in &problems {
                text += &format!("#   {}: {}", one_line(&problem.name), one_line(&problem.message));
                if !problem.remedy_text.is_empty() {
                    text += &format!("; {}", one_line(&problem.remedy_text));
                }
                text.push('\n');
            }
            for line in block.lines() {
                text += &format!("# {line}\n");
            }
        }
        text.push('\n');
    }
    text
}

/// Writes a name as the configuration reads it: plain where that is enough, else in quotes.
fn dotted(name: &TableName) -> String {
    let part = |text: &str| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        match !text.is_empty() && text.chars().all(plain) {
            true => text.to_owned(),
            false => flow_core::schema::quote_identifier(text),
        }
    };
    format!("{}.{}", part(&name.schema), part(&name.name))
}

fn toml_text(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn one_line(text: &str) -> String {
    text.split(char::is_control).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn names_are_read_back_as_they_were() {
        for name in [
            TableName::new("public", "orders"),
            TableName::new("public", "Mixed.Case"),
            TableName::new("My \"S\"", "t\\n"),
            TableName::new("größe", "*"),
            TableName::new("public", "line\nbreak"),
        ] {
            let block = format!("source = {}", toml_text(&dotted(&name)));
            let table: toml::Table = block.parse().expect("TOML");
            let text = table["source"].as_str().expect("a string");
            assert_eq!(parse_source(text), Ok(Selector::Table(name)), "{block}");
        }
    }
}
