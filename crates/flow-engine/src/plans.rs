//! The transformations directory, planned.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use flow_core::TableName;
use flow_core::lake::SnapshotReader;
use flow_refresh::{Definition, Plan, Problem, SourceFile};

use crate::error::EngineError;
use crate::shared::Shared;
use crate::status::ProblemStatus;

/// Plans the dynamic tables of the transformations directory.
pub(crate) async fn plan(shared: &Arc<Shared>) -> Result<Plan, EngineError> {
    let options = shared.options();
    let records = shared.tables();
    let declared = records
        .values()
        .map(|r| (r.target.clone(), flow_core::arrow::arrow_schema(&r.schema)))
        .collect();
    let parsed = parse_files(&options.transformations)?;
    let plan = plan_parsed(parsed, Arc::new(shared.lake.clone()), &declared).await;
    shared.board.write().problems = plan.problems.iter().filter_map(of_no_table).collect();
    Ok(plan)
}

/// Shows a problem that belongs to no table; the others stand with their tables.
fn of_no_table(problem: &Problem) -> Option<ProblemStatus> {
    problem.table.is_none().then(|| ProblemStatus {
        code: problem.code.to_owned(),
        file: problem.file.display().to_string(),
        line: problem.line,
        column: problem.column,
        message: problem.message.clone(),
    })
}

/// Is what the SQL files of a directory declare, and what cannot be read of them.
pub(crate) type Parsed = (Vec<Definition>, Vec<Problem>);

/// Reads the SQL files of a directory.
pub(crate) fn parse_files(dir: &Path) -> Result<Parsed, EngineError> {
    Ok(flow_refresh::parse(&read_files(dir)?))
}

/// Plans definitions against a reader and the captured tables' shapes.
pub(crate) async fn plan_parsed(
    (definitions, mut problems): Parsed,
    reader: Arc<dyn SnapshotReader>,
    declared: &BTreeMap<TableName, arrow_schema::SchemaRef>,
) -> Plan {
    let mut plan = flow_refresh::plan(&definitions, &reader, declared).await;
    problems.append(&mut plan.problems);
    plan.problems = problems;
    plan
}

/// Reads the `.sql` files of a directory and those below it, in name order. A missing one has none.
fn read_files(dir: &Path) -> Result<Vec<SourceFile>, EngineError> {
    let failed = |path: &Path, error: std::io::Error| EngineError::Reconfigure {
        code: "F0019",
        message: format!("cannot read {}: {error}", path.display()),
    };
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(dir, error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(|error| failed(dir, error))?.path());
    }
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(read_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "sql") {
            let text = std::fs::read_to_string(&path).map_err(|error| failed(&path, error))?;
            files.push(SourceFile { path, text });
        }
    }
    Ok(files)
}
