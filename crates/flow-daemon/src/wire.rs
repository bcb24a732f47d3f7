//! Turns the configuration file into what the engine and the HTTP server are told.

use flow_engine::EngineOptions;
use flow_engine::options::LocalOptions;
use flow_http::HttpOptions;
use flow_source::ConnInfo;

use crate::config::{Config, Secret};
use crate::exit::Failure;

/// Builds the engine's options.
///
/// # Errors
/// Reconfigure: the connection URL cannot be read. The message does not repeat it.
pub(crate) fn engine_options(config: &Config) -> Result<EngineOptions, Failure> {
    let source = &config.source;
    let url = source
        .connection
        .as_ref()
        .expect("commands that build options ask for secrets");
    let connection = ConnInfo::parse(url.expose()).map_err(|error| {
        let mut failure = Failure::from(error);
        failure.message = format!("environment variable {}: {}", source.connection_env, failure.message);
        failure
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

/// Builds what looking at local files takes.
pub(crate) fn local_options(config: &Config) -> LocalOptions {
    LocalOptions {
        warehouse: config.warehouse.clone(),
        catalog_path: config.catalog_path.clone(),
        memory_bytes: config.limits.memory_bytes,
        tables: config.tables.clone(),
        transformations: config.transformations.clone(),
    }
}

/// Builds the HTTP server's options.
pub(crate) fn http_options(config: &Config) -> HttpOptions {
    HttpOptions {
        listen: config.http.listen,
        token: config.http.token.as_ref().map(|token| Secret::expose(token).to_owned()),
    }
}

/// Names the options in which `other` differs from `running` and that only a restart can follow.
pub(crate) fn needs_restart(running: &Config, other: &Config) -> Vec<&'static str> {
    let (old, new) = (running, other);
    let differs = [
        ("state_dir", old.state_dir != new.state_dir),
        ("source.id", old.source.id != new.source.id),
        ("source.connection_env", old.source.connection != new.source.connection),
        ("source.slot", old.source.slot != new.source.slot),
        ("source.publication", old.source.publication != new.source.publication),
        ("source.ack_mode", old.source.ack_mode != new.source.ack_mode),
        ("catalog.warehouse", old.warehouse != new.warehouse),
        ("catalog.path", old.catalog_path != new.catalog_path),
        ("publish.keep_for", old.keep_for != new.keep_for),
        ("publish.keep_snapshots", old.keep_snapshots != new.keep_snapshots),
        ("limits.memory", old.limits.memory_bytes != new.limits.memory_bytes),
        ("http.listen", old.http.listen != new.http.listen),
        ("http.token_env", old.http.token != new.http.token),
    ];
    differs
        .into_iter()
        .filter_map(|(name, differs)| differs.then_some(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Purpose, parse};

    #[test]
    fn what_a_reload_cannot_follow_is_named() {
        let base = "[source]\nconnection_env = \"URL\"\n[[tables]]\nsource = \"a.b\"\n";
        let config = |text: &str, url: &str| {
            let environment = |_: &str| Some(url.to_owned());
            parse(text, Path::new("/x/flow.toml"), Purpose::Service, &environment).expect("is right")
        };
        let running = config(base, "postgres://a/b");
        let check = |addition: &str, url: &str, expect: &[&str]| {
            let other = config(&format!("{addition}{base}"), url);
            assert_eq!(needs_restart(&running, &other), expect, "{addition}");
        };
        check("", "postgres://a/b", &[]);
        check(
            "publish.interval = \"1s\"\nlimits.min_free_bytes = \"5GiB\"\n",
            "postgres://a/b",
            &[],
        );
        check("state_dir = \"other\"\n", "postgres://a/b", &["state_dir"]);
        check("", "postgres://a/c", &["source.connection_env"]);
        check(
            "catalog.warehouse = \"w\"\nhttp.listen = \"127.0.0.1:1\"\n",
            "postgres://a/b",
            &["catalog.warehouse", "catalog.path", "http.listen"],
        );
    }
}
