//! The adapters' options, made from the engine's.

use flow_lake::LakeOptions;
use flow_source::SourceOptions;

use crate::error::EngineError;
use crate::options::{EngineOptions, LocalOptions};
use crate::shared::Shared;

/// Makes the source's options; the system is known once the state directory has an identity.
pub(crate) fn source_options(options: &EngineOptions, system_identifier: Option<u64>) -> SourceOptions {
    let mut source = SourceOptions::new(options.connection.clone(), &options.slot, &options.publication);
    source.heartbeat = options.heartbeat;
    source.system_identifier = system_identifier;
    source
}

/// Makes the source's options for the system that the state directory belongs to, once it is known.
pub(crate) fn own_source(shared: &Shared) -> Result<SourceOptions, EngineError> {
    let identity = shared.store.identity()?;
    Ok(source_options(
        &shared.options(),
        identity.map(|identity| identity.system_identifier),
    ))
}

/// Makes the lake's options.
pub(crate) fn lake_options(options: &EngineOptions) -> LakeOptions {
    let mut lake = LakeOptions::new(&options.warehouse);
    lake.catalog_path = options.catalog_path.clone();
    lake.keep_snapshots = options.keep_snapshots;
    lake.keep_for = options.keep_for;
    lake
}

/// Makes the options of a lake that is looked at.
pub(crate) fn local_lake_options(options: &LocalOptions) -> LakeOptions {
    let mut lake = LakeOptions::new(&options.warehouse);
    lake.catalog_path = options.catalog_path.clone();
    lake
}
