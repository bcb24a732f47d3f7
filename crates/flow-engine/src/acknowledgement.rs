//! What PostgreSQL was told is safe, across connections (step 11 of the walk).

use std::sync::Mutex;

use flow_core::Lsn;
use flow_source::Acknowledger;

/// Reports positions to PostgreSQL over whichever connection is up.
#[derive(Debug, Default)]
pub(crate) struct Acknowledgement {
    state: Mutex<(Lsn, Option<Acknowledger>)>,
}

impl Acknowledgement {
    /// Takes a new connection, which hears at once what is safe already.
    pub(crate) fn attach(&self, acknowledger: Acknowledger) {
        let mut state = self
            .state
            .lock()
            .expect("a thread that held the acknowledgement panicked");
        if !state.0.is_zero() {
            acknowledger.acknowledge(state.0);
        }
        state.1 = Some(acknowledger);
    }

    /// Tells PostgreSQL that it may forget everything up to `lsn`.
    pub(crate) fn raise(&self, lsn: Lsn) {
        let mut state = self
            .state
            .lock()
            .expect("a thread that held the acknowledgement panicked");
        if lsn > state.0 {
            state.0 = lsn;
            if let Some(acknowledger) = &state.1 {
                acknowledger.acknowledge(lsn);
            }
        }
    }
}
