//! What goes wrong in a refresh that computes changes, as the engine's errors.

use datafusion::common::DataFusionError;
use flow_core::state::StateError;

use crate::exactness::inexact;

/// Says that a row went more often than it came: changes and state do not belong together.
#[derive(Debug, thiserror::Error)]
#[error("a row went more often than it came")]
pub(crate) struct NegativeWeight;

/// Says that state holds bytes that nobody wrote there.
#[derive(Debug, thiserror::Error)]
#[error("the state of {operator} is damaged")]
pub(crate) struct DamagedState {
    operator: &'static str,
}

pub(super) fn negative() -> DataFusionError {
    DataFusionError::External(Box::new(NegativeWeight))
}

pub(super) fn damaged(operator: &'static str) -> DataFusionError {
    DataFusionError::External(Box::new(DamagedState { operator }))
}

pub(super) fn store(error: StateError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

pub(super) fn too_many() -> DataFusionError {
    inexact("more rows are equal, or changed at once, than can be counted")
}
