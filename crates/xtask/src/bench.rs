//! Placeholder while the service parts are written.
use anyhow::{Result, bail};
pub(crate) fn run(name: &str, _args: &[&str]) -> Result<()> {
    bail!("no benchmark {name}")
}
