//! The asynchronous runtime.

use std::future::Future;

use crate::exit::{Exit, Failure};

/// Two workers at least, so that one blocked for a moment does not stop the other's probes.
const WORKERS_MIN: usize = 2;

/// Runs a command's future on a runtime of its own.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let cores = std::thread::available_parallelism().map_or(WORKERS_MIN, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.max(WORKERS_MIN))
        .thread_name("flow-worker")
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failure, format!("cannot start threads: {error}")))?;
    let outcome = runtime.block_on(future);
    // Tasks that are left hold nothing that must be finished: what counts is durable already.
    runtime.shutdown_background();
    outcome
}
