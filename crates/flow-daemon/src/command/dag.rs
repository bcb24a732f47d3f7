//! `dag`: prints which dynamic table reads which tables.

use std::path::Path;

use super::{context, plan};
use crate::exit::{Exit, Failure};
use crate::{output, runtime};

pub(super) fn run(file: &Path) -> Result<Exit, Failure> {
    context::quiet_log()?;
    let (options, source) = context::plan_options(file)?;
    let planned =
        runtime::block_on(async { Ok(flow_engine::look::plan(&options, source.as_ref(), context::clock()).await?) })?;
    output::result(&planned.dag_text())?;
    Ok(plan::report_problems(&planned))
}
