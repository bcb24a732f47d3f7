//! A user's read-only SQL over the catalog's tables at one cut.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow_array::{RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion::physical_plan::execute_stream;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use flow_core::TableName;
use flow_core::lake::SnapshotReader;
use futures::TryStreamExt;

use crate::compile;
use crate::error::RefreshError;
use crate::plan::user_schema;
use crate::select::{self, Reference};
use crate::session::{self, Means};
use crate::source::{SnapshotTable, plain_schema};
use crate::tokens::Fault;
use crate::tokens::{self, Place};

/// Is what messages call a query, where they would name a table.
const NAME: &str = "the query";

/// Runs one SELECT, WITH, VALUES or EXPLAIN and gives its columns and rows.
///
/// `cut` says which snapshot of a table is read; `None` stands for a table without rows.
/// A dynamic table's lineage columns are there only if the SQL names one of them; `*` then has
/// them too.
///
/// # Errors
/// Reconfigure: anything but one read-only statement, or SQL that does not hold.
/// BlockTable: a value that cannot be computed exactly, too little memory.
/// The reader's remedy: a table cannot be read.
pub async fn query(
    sql: &str,
    reader: Arc<dyn SnapshotReader>,
    cut: &(dyn Fn(&TableName) -> Option<i64> + Send + Sync),
    memory_bytes: usize,
) -> Result<(SchemaRef, Vec<RecordBatch>), RefreshError> {
    let (tokens, explain) = statement(sql).map_err(refused)?;
    let mut query = select::parse_query(&tokens).map_err(refused)?;
    select::refuse_writes(&query, &tokens).map_err(refused)?;
    select::spell_out(&mut query).map_err(refused)?;
    let references = select::resolve(&mut query).map_err(refused)?;
    let lineage = tokens.iter().any(|token| match &token.token {
        Token::Word(word) => word.value.to_lowercase().starts_with("_flow_"),
        _ => false,
    });
    let tables = open_tables(&references, lineage, &reader, cut).await?;
    let engine = |error| RefreshError::from_engine(NAME, memory_bytes, &error);
    let session = session::open(
        tables,
        Means {
            memory_bytes,
            ..Means::PLANNING
        },
    )
    .map_err(engine)?;
    let state = session.state();
    let plan = compile::query(&state, *query)
        .await
        .map_err(|error| refused(compile::fault(&error, "F0409", &tokens)))?;
    if explain {
        let optimized = state.optimize(&plan).map_err(engine)?;
        return Ok(explained(&optimized.display_indent().to_string()));
    }
    let physical = state
        .create_physical_plan(&plan)
        .await
        .map_err(|error| refused(compile::fault(&error, "F0409", &tokens)))?;
    let schema = physical.schema();
    let batches = execute_stream(physical, state.task_ctx()).map_err(engine)?;
    let batches = batches.try_collect().await.map_err(engine)?;
    Ok((schema, batches))
}

fn refused(fault: Fault) -> RefreshError {
    RefreshError::Refused {
        line: fault.place.line.max(1),
        column: fault.place.column.max(1),
        message: fault.message,
    }
}

/// Takes the one statement out of the text; says whether EXPLAIN stood before it.
fn statement(sql: &str) -> Result<(Vec<TokenWithSpan>, bool), Fault> {
    let (mut tokens, fault) = tokens::read(sql);
    if let Some(fault) = fault {
        return Err(fault);
    }
    while tokens.last().is_some_and(|token| token.token == Token::SemiColon) {
        tokens.pop();
    }
    if let Some(second) = tokens.iter().find(|token| token.token == Token::SemiColon) {
        let place = Place::from(second.span.start);
        return Err(Fault::new(place, "F0424", "expected one statement, found several"));
    }
    let explain = match tokens.first().map(|token| &token.token) {
        Some(Token::Word(word)) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case("EXPLAIN"),
        _ => false,
    };
    tokens.drain(..usize::from(explain));
    Ok((tokens, explain))
}

async fn open_tables(
    references: &[Reference],
    lineage: bool,
    reader: &Arc<dyn SnapshotReader>,
    cut: &(dyn Fn(&TableName) -> Option<i64> + Send + Sync),
) -> Result<Vec<SnapshotTable>, RefreshError> {
    let mut tables = Vec::with_capacity(references.len());
    let mut seen = BTreeSet::new();
    for Reference { name, place } in references {
        if !seen.insert(name) {
            continue;
        }
        let read = |source| RefreshError::Read {
            table: NAME.to_owned(),
            source,
        };
        let loaded = reader.load(name).await.map_err(read)?;
        let loaded = loaded.ok_or_else(|| refused(Fault::new(*place, "F0404", format!("unknown table {name}"))))?;
        let schema = match lineage {
            true => Arc::new(plain_schema(&loaded.schema)),
            false => user_schema(&loaded.schema),
        };
        let rows = loaded.rows_at(cut(name));
        tables.push(SnapshotTable {
            name: name.clone(),
            schema,
            stored: loaded.schema,
            snapshot_id: cut(name),
            rows,
            reader: reader.clone(),
            rows_read: Arc::new(AtomicU64::new(0)),
        });
    }
    Ok(tables)
}

fn explained(text: &str) -> (SchemaRef, Vec<RecordBatch>) {
    let schema = Arc::new(Schema::new(vec![Field::new("plan", DataType::Utf8, false)]));
    let lines: Vec<&str> = text.lines().collect();
    let lines = Arc::new(StringArray::from(lines));
    let batch = RecordBatch::try_new(schema.clone(), vec![lines]).expect("one column of text that is never NULL");
    (schema, vec![batch])
}
