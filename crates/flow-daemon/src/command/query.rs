//! `query "SQL"`: read-only SQL over the catalog's tables, all at one cut.

pub(super) mod cell;

use std::path::Path;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::context;
use crate::cli::{Query, RowFormat};
use crate::exit::{Exit, Failure};
use crate::{output, runtime, wire};

pub(super) fn run(file: &Path, query: &Query) -> Result<Exit, Failure> {
    context::quiet_log()?;
    let options = wire::local_options(&context::local_config(file)?);
    let asked = async { Ok(flow_engine::look::query(&options, context::clock(), &query.sql).await?) };
    let (schema, batches) = runtime::block_on(asked)?;
    let text = match query.format {
        RowFormat::Table => table(&schema, &batches)?,
        RowFormat::Json => json(&schema, &batches)?,
        RowFormat::Csv => csv(&schema, &batches)?,
    };
    output::result(&text)?;
    Ok(Exit::Done)
}

fn table(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<String, Failure> {
    let head = schema.fields().iter().map(|field| cell::printable(field.name()));
    let mut rows = vec![head.collect::<Vec<_>>()];
    for batch in batches {
        for row in cell::texts(batch)? {
            rows.push(
                row.into_iter()
                    .map(|text| text.map_or("NULL".into(), |text| cell::printable(&text)))
                    .collect(),
            );
        }
    }
    let count = rows.len() - 1;
    Ok(format!(
        "{}({count} row{})\n",
        output::columns(&rows),
        if count == 1 { "" } else { "s" }
    ))
}

/// Writes an array of objects, one row a line.
fn json(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<String, Failure> {
    let names: Vec<String> = schema.fields().iter().map(|field| json_text(field.name())).collect();
    let mut lines = Vec::new();
    for batch in batches {
        for row in cell::json_values(batch)? {
            let members = names.iter().zip(row).map(|(name, value)| format!("{name}:{value}"));
            lines.push(format!("{{{}}}", members.collect::<Vec<_>>().join(",")));
        }
    }
    Ok(format!("[{}]\n", lines.join(",\n")))
}

/// Writes RFC 4180's form. NULL is an empty field, an empty text is `""`.
fn csv(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<String, Failure> {
    let head: Vec<String> = schema.fields().iter().map(|field| csv_text(field.name())).collect();
    let mut text = head.join(",") + "\r\n";
    for batch in batches {
        for row in cell::texts(batch)? {
            let fields = row
                .into_iter()
                .map(|text| text.map_or(String::new(), |text| csv_text(&text)));
            text += &fields.collect::<Vec<_>>().join(",");
            text += "\r\n";
        }
    }
    Ok(text)
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn csv_text(text: &str) -> String {
    let quoted = text.is_empty() || text.contains([',', '"', '\r', '\n']);
    match quoted {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
