//! Turns the configuration file into what the engine and the HTTP server are told.

use flow_engine::EngineOptions;
use flow_http::HttpOptions;
use flow_source::ConnInfo;

use crate::config::{Config, ConfigError, Secret};

/// Builds the engine's options.
///
/// # Errors
/// Reconfigure: the connection URL cannot be read. The message does not repeat it.
pub(crate) fn engine_options(config: &Config) -> Result<EngineOptions, ConfigError> {
    let source = &config.source;
    let url = source
        .connection
        .as_ref()
        .expect("commands that build options ask for secrets");
    let connection = ConnInfo::parse(url.expose()).map_err(|error| {
        let message = format!("environment variable {}: {error}", source.connection_env);
        ConfigError::whole(&config.file, message)
    })?;
    Ok(EngineOptions {
        state_dir: config.state_dir.clone(),
        source_id: source.id.clone(),
        connection,
        slot: source.slot.clone(),
        publication: source.publication.clone(),
        ack_mode: source.ack_mode,
        heartbeat: source.heartbeat,
        retry_for: source.retry_for,
        copy_sessions: source.copy_sessions,
        warehouse: config.warehouse.clone(),
        catalog_path: config.catalog_path.clone(),
        publish: config.publish,
        keep_for: config.keep_for,
        keep_snapshots: config.keep_snapshots,
        limits: config.limits,
        tables: config.tables.clone(),
        transformations: config.transformations.clone(),
    })
}

/// Builds the HTTP server's options.
pub(crate) fn http_options(config: &Config) -> HttpOptions {
    HttpOptions {
        listen: config.http.listen,
        token: config.http.token.as_ref().map(|token| Secret::expose(token).to_owned()),
    }
}
