//! The threads that refreshes compute on: capture and publishing never wait for them.

use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::EngineError;

/// Is how many refreshes compute at once.
pub(crate) const POOL: usize = 2;

/// Owns the threads.
#[derive(Debug)]
pub(crate) struct Compute {
    /// Is there until dropped.
    runtime: Option<Runtime>,
}

impl Compute {
    pub(crate) fn start() -> Result<Self, EngineError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(POOL)
            .thread_name("flow-refresh")
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| EngineError::Invariant(format!("threads for refreshes: {error}")))?;
        Ok(Compute { runtime: Some(runtime) })
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.runtime
            .as_ref()
            .expect("the threads live as long as their owner")
            .handle()
    }
}

impl Drop for Compute {
    fn drop(&mut self) {
        // Tasks that are left hold nothing that must be finished, and a wait here could be on a worker.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
