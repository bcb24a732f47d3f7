//! What the HTTP server sees of a running engine.

use std::sync::Arc;
use std::time::Duration;

use flow_engine::counters::Counters;
use flow_engine::{EngineHandle, Status};

/// Shows an engine's state. Every call answers at once, from memory.
pub trait Observed: Send + Sync + 'static {
    /// Is the newest status document.
    fn status(&self) -> Arc<Status>;

    /// Are the counters.
    fn counters(&self) -> &Counters;

    /// Is the time since the main loop last turned.
    fn main_loop_age(&self) -> Duration;
}

impl Observed for EngineHandle {
    fn status(&self) -> Arc<Status> {
        EngineHandle::status(self)
    }

    fn counters(&self) -> &Counters {
        EngineHandle::counters(self)
    }

    fn main_loop_age(&self) -> Duration {
        EngineHandle::main_loop_age(self)
    }
}
