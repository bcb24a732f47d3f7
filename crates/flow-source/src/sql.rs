//! Plain SQL for catalogs and administration, through `tokio-postgres`.

use std::future::Future;
use std::time::Duration;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Row};

use crate::error::{ServerError, SourceError};
use crate::options::SourceOptions;
use crate::transport;

/// Limits one catalog query: far above what the largest catalog takes, so that a peer that went
/// silent is noticed.
const QUERY_TIME_MAX: Duration = Duration::from_secs(300);

/// Is a SQL session. It ends when dropped.
#[derive(Debug)]
pub(crate) struct Sql {
    client: Client,
    server: String,
    /// Is the server's `server_version_num`.
    pub(crate) version: u32,
}

/// Holds what every session sets: names in deparsed SQL come out qualified, dates in one form,
/// and no timeout of the role's cuts a long copy.
pub(crate) const SESSION_SETTINGS: &str = "SET search_path = pg_catalog; SET TimeZone = 'UTC'; \
     SET DateStyle = 'ISO, YMD'; SET statement_timeout = 0; SET lock_timeout = 0; \
     SET idle_in_transaction_session_timeout = 0; SET row_security = off";

/// Asks which cluster this is.
pub(crate) const SYSTEM_SQL: &str = "SELECT system_identifier FROM pg_catalog.pg_control_system()";

/// Refuses another cluster than the expected one.
pub(crate) fn same_system(found: u64, expected: u64) -> Result<(), SourceError> {
    match found == expected {
        true => Ok(()),
        false => Err(SourceError::OtherSystem {
            reason: format!("its system identifier is {found}, not {expected}"),
        }),
    }
}

/// Opens a session in the database.
///
/// # Errors
/// Unreachable and not ready (retry); login and TLS (reconfigure); another system than the options
/// name (resync).
pub(crate) async fn connect(options: &SourceOptions) -> Result<Sql, SourceError> {
    let info = &options.conninfo;
    let stream = transport::open(options).await?;
    let mut config = tokio_postgres::Config::new();
    config
        .user(&info.user)
        .dbname(&info.dbname)
        .application_name(&info.application_name)
        .ssl_mode(tokio_postgres::config::SslMode::Disable);
    if let Some(password) = &info.password {
        config.password(password);
    }
    if let Some(options) = &info.options {
        config.options(options);
    }
    let server = info.server();
    let login = tokio::time::timeout(options.connect_timeout, config.connect_raw(stream, NoTls)).await;
    let (client, connection) = match login {
        Ok(Ok(pair)) => pair,
        Ok(Err(error)) => return Err(login_error(&server, error)),
        Err(_) => return Err(transport::unreachable(info, std::io::ErrorKind::TimedOut.into())),
    };
    // The task ends with the session, whose client is dropped by us or whose server went away.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "SQL session ended");
        }
    });
    let mut sql = Sql {
        client,
        server,
        version: 0,
    };
    sql.execute("setting up a session", SESSION_SETTINGS).await?;
    let row = sql
        .one(
            "reading the version",
            "SELECT current_setting('server_version_num')::int",
            &[],
        )
        .await?;
    sql.version = u32::try_from(row.get::<_, i32>(0)).unwrap_or(0);
    if let Some(expected) = options.system_identifier {
        let row = sql.one("identifying the system", SYSTEM_SQL, &[]).await?;
        same_system(row.get::<_, i64>(0) as u64, expected)?;
    }
    Ok(sql)
}

fn server_error(error: &tokio_postgres::Error) -> Option<ServerError> {
    error.as_db_error().map(|db| ServerError {
        sqlstate: db.code().code().to_owned(),
        message: db.message().to_owned(),
    })
}

fn login_error(server: &str, error: tokio_postgres::Error) -> SourceError {
    match server_error(&error) {
        Some(server_error) => SourceError::from_login(server_error),
        None => match std::error::Error::source(&error).and_then(|e| e.downcast_ref::<std::io::Error>()) {
            Some(_) => SourceError::Unreachable {
                server: server.to_owned(),
                source: std::io::Error::other(error.to_string()),
            },
            None => SourceError::Login(match std::error::Error::source(&error) {
                Some(cause) => format!("{error}: {cause}"),
                None => error.to_string(),
            }),
        },
    }
}

impl Sql {
    fn failed(&self, operation: &'static str, error: tokio_postgres::Error) -> SourceError {
        match server_error(&error) {
            Some(error) => SourceError::Sql { operation, error },
            None => SourceError::Unreachable {
                server: self.server.clone(),
                source: std::io::Error::other(error.to_string()),
            },
        }
    }

    async fn limited<T>(
        &self,
        operation: &'static str,
        query: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, SourceError> {
        match tokio::time::timeout(QUERY_TIME_MAX, query).await {
            Ok(result) => result.map_err(|error| self.failed(operation, error)),
            Err(_) => Err(SourceError::Unreachable {
                server: self.server.clone(),
                source: std::io::ErrorKind::TimedOut.into(),
            }),
        }
    }

    /// Runs statements without a result.
    pub(crate) async fn execute(&self, operation: &'static str, sql: &str) -> Result<(), SourceError> {
        self.limited(operation, self.client.batch_execute(sql)).await
    }

    /// Runs a query.
    pub(crate) async fn query(
        &self,
        operation: &'static str,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, SourceError> {
        self.limited(operation, self.client.query(sql, params)).await
    }

    /// Runs a query that gives exactly one row.
    pub(crate) async fn one(
        &self,
        operation: &'static str,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, SourceError> {
        self.limited(operation, self.client.query_one(sql, params)).await
    }
}
