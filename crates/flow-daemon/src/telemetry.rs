//! Logs to stderr, and panics that are logged before they end the process.
//!
//! Nothing here knows a secret; [`Secret`](crate::config::Secret) and the connection's own type do
//! not show theirs.

use std::backtrace::Backtrace;
use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::cli::LogFormat;
use crate::exit::{Exit, Failure};

/// Names the variable that filters the log.
const FILTER_VARIABLE: &str = "FLOW_LOG";

/// Starts logging; `default` is the filter where the variable is not set.
///
/// # Errors
/// Reconfigure: the variable holds no filter.
pub(crate) fn start(format: LogFormat, default: &str) -> Result<(), Failure> {
    let filter = match std::env::var(FILTER_VARIABLE) {
        Ok(text) if !text.trim().is_empty() => EnvFilter::try_new(&text).map_err(|error| {
            let message =
                format!("{FILTER_VARIABLE} is not a log filter such as 'info' or 'flow_source=debug,info': {error}");
            Failure::new(Exit::Reconfigure, message)
        })?,
        _ => EnvFilter::try_new(default).expect("the default filter is a filter"),
    };
    let subscriber = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => subscriber.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => subscriber.json().flatten_event(true).with_span_list(false).init(),
    }
    Ok(())
}

/// Makes every panic end the process with exit code 70 after it was logged.
///
/// A panic is a broken invariant: what other threads believe may be wrong too, and everything
/// that counts is durable, so stopping is the safe answer.
pub(crate) fn end_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
        let backtrace = Backtrace::capture().to_string();
        let message = text.unwrap_or("panic without a message");
        if tracing::enabled!(tracing::Level::ERROR) {
            tracing::error!(place, thread, backtrace, "broken invariant: {message}");
        } else {
            crate::output::note(&format!("broken invariant at {place}: {message}"));
        }
        std::process::exit(i32::from(Exit::Broken.number()));
    }));
}
