//! The SQL engine, set up so that its results are PostgreSQL's and do not depend on the machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::{DataType, TimeUnit};
use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider, MemorySchemaProvider, SchemaProvider};
use datafusion::common::config::Dialect;
use datafusion::common::{DataFusionError, Result, plan_err};
use datafusion::execution::TaskContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast::{self, ExactNumberInfo, Query, TimezoneInfo};

use crate::kind::{WIDE_NUMBER, WIDE_NUMBER_TYPE};
use crate::pushdown;
use crate::source::SnapshotTable;
use crate::spool::Scratch;

/// Is the name of the one catalog; SQL never spells it.
const CATALOG: &str = "flow";

/// Is the zone of every timestamptz.
const UTC: &str = "+00:00";

/// Is the part of the memory that each sort keeps for merging what it put down.
const SORT_SHARE: usize = 8;

/// Is what an engine may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Means<'a> {
    /// Is how many partitions are computed in parallel; 0 takes the number of cores.
    pub(crate) partitions: usize,
    pub(crate) memory_bytes: usize,
    /// Is where sorts and aggregates put what does not fit in memory; they fail where there is none.
    pub(crate) scratch: Option<&'a Scratch>,
}

impl Means<'_> {
    /// Is what planning may use: it computes constants only.
    pub(crate) const PLANNING: Means<'static> = Means {
        partitions: 0,
        memory_bytes: 64 << 20,
        scratch: None,
    };
}

/// Opens an engine over the given tables.
pub(crate) fn open(tables: impl IntoIterator<Item = SnapshotTable>, means: Means<'_>) -> Result<SessionContext> {
    let mut config = SessionConfig::new()
        .with_information_schema(false)
        .with_create_default_catalog_and_schema(false)
        .with_default_catalog_and_schema(CATALOG, "");
    if means.partitions > 0 {
        config = config.with_target_partitions(means.partitions);
    }
    let options = config.options_mut();
    options.sql_parser.dialect = Dialect::PostgreSQL;
    options.sql_parser.parse_float_as_decimal = true;
    options.sql_parser.map_string_types_to_utf8view = false;
    options.sql_parser.collect_spans = true;
    options.execution.time_zone = Some(UTC.to_owned());
    // A merge of the many batches in memory would need as much again.
    options.execution.sort_in_place_threshold_bytes = means.memory_bytes;
    let reserved = &mut options.execution.sort_spill_reservation_bytes;
    *reserved = (*reserved).min(means.memory_bytes / SORT_SHARE);
    let runtime = runtime(means.memory_bytes, means.scratch)?;
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_type_planner(Arc::new(PostgresTypes))
        .with_optimizer_rules(pushdown::rules())
        .build();
    let context = SessionContext::new_with_state(state);
    context.register_catalog(CATALOG, Arc::new(catalog(tables)?));
    Ok(context)
}

fn runtime(memory_bytes: usize, scratch: Option<&Scratch>) -> Result<Arc<RuntimeEnv>> {
    let disk = DiskManagerBuilder::default();
    let disk = match scratch {
        Some(scratch) => disk
            .with_mode(DiskManagerMode::Directories(vec![scratch.folder.clone()]))
            .with_max_temp_directory_size(scratch.bytes_max),
        None => disk.with_mode(DiskManagerMode::Disabled),
    };
    RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(GreedyMemoryPool::new(memory_bytes)))
        .with_disk_manager_builder(disk)
        .build_arc()
}

/// Opens what operators run in that were planned before, in one partition.
pub(crate) fn task(memory_bytes: usize) -> Result<Arc<TaskContext>> {
    let config = SessionConfig::new().with_target_partitions(1);
    let task = TaskContext::default().with_session_config(config);
    Ok(Arc::new(task.with_runtime(runtime(memory_bytes, None)?)))
}

fn catalog(tables: impl IntoIterator<Item = SnapshotTable>) -> Result<MemoryCatalogProvider> {
    let catalog = MemoryCatalogProvider::new();
    let mut schemas: BTreeMap<String, Arc<MemorySchemaProvider>> = BTreeMap::new();
    for table in tables {
        let schema = schemas.entry(table.name.schema.clone()).or_default();
        schema.register_table(table.name.name.clone(), Arc::new(table))?;
    }
    for (name, schema) in schemas {
        catalog.register_schema(&name, schema)?;
    }
    Ok(catalog)
}

/// Turns a syntax tree into a plan whose names are resolved and whose types are those written.
pub(crate) async fn names(state: &SessionState, query: Query) -> Result<LogicalPlan> {
    let statement = EngineStatement::Statement(Box::new(ast::Statement::Query(Box::new(query))));
    state.statement_to_plan(statement).await
}

/// Resolves the types of a plan whose types meet as PostgreSQL's do; nothing is optimised.
pub(crate) fn types(state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
    state
        .analyzer()
        .execute_and_check(plan, state.config_options(), |_, _| {})
}

/// Finds a cause of some type under an engine's error.
pub(crate) fn cause<E: std::error::Error + 'static>(error: &DataFusionError) -> Option<&E> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        next = match error.downcast_ref::<Arc<DataFusionError>>() {
            Some(shared) => Some(shared.as_ref()),
            None => error.source(),
        };
    }
    None
}

/// Maps SQL types to those of PostgreSQL's values, and refuses the ones whose limits the engine
/// does not keep.
#[derive(Debug)]
struct PostgresTypes;

impl TypePlanner for PostgresTypes {
    fn plan_type(&self, sql_type: &ast::DataType) -> Result<Option<DataType>> {
        use ast::DataType as Sql;
        let micros = |zone: &TimezoneInfo| match zone {
            TimezoneInfo::WithTimeZone | TimezoneInfo::Tz => {
                DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into()))
            }
            _ => DataType::Timestamp(TimeUnit::Microsecond, None),
        };
        Ok(Some(match sql_type {
            Sql::Timestamp(None | Some(6), zone) => micros(zone),
            Sql::TimestampNtz(None | Some(6)) | Sql::Datetime(None | Some(6)) => micros(&TimezoneInfo::None),
            Sql::Timestamp(Some(_), _) | Sql::TimestampNtz(Some(_)) | Sql::Datetime(Some(_)) => {
                return plan_err!("{sql_type}: write timestamp without digits, and date_trunc to cut");
            }
            Sql::Time(None | Some(6), TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
                DataType::Time64(TimeUnit::Microsecond)
            }
            Sql::Time(_, _) => return plan_err!("{sql_type} is no type of a column: write time"),
            Sql::Text
            | Sql::String(None)
            | Sql::Varchar(None)
            | Sql::CharVarying(None)
            | Sql::CharacterVarying(None) => DataType::Utf8,
            Sql::Varchar(Some(_))
            | Sql::CharVarying(Some(_))
            | Sql::CharacterVarying(Some(_))
            | Sql::Char(_)
            | Sql::Character(_) => {
                return plan_err!("{sql_type}: its length would not be kept: write text, and left() to cut");
            }
            Sql::Numeric(info) | Sql::Decimal(info) | Sql::Dec(info) => decimal(sql_type, info)?,
            Sql::Bytea => DataType::LargeBinary,
            Sql::Uuid => DataType::FixedSizeBinary(16),
            Sql::Custom(name, _) if name.to_string() == WIDE_NUMBER => WIDE_NUMBER_TYPE,
            _ => return Ok(None),
        }))
    }
}

fn decimal(sql_type: &ast::DataType, info: &ExactNumberInfo) -> Result<DataType> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => {
            return plan_err!("{sql_type} needs digits, {sql_type}(38, 9) say: a column has a fixed number of them");
        }
        ExactNumberInfo::Precision(precision) => (*precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
    };
    match (u8::try_from(precision), i8::try_from(scale)) {
        (Ok(p @ 1..=38), Ok(s @ 0..=38)) if s as u8 <= p => Ok(DataType::Decimal128(p, s)),
        _ => plan_err!("{sql_type}: a column holds at most 38 digits, and no more after the point than in all"),
    }
}
