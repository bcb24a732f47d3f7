//! What PostgreSQL is told is safe.
//!
//! IMPORTANT: the flushed position in a status update is this value and nothing else (law 1).

use flow_core::Lsn;
use tokio::sync::watch;

/// Tells PostgreSQL up to where it may forget. Clones share one position.
#[derive(Clone, Debug)]
pub struct Acknowledger {
    position: watch::Sender<Lsn>,
}

impl Acknowledger {
    /// Starts at a position that is already safe.
    pub(crate) fn new(start: Lsn) -> Self {
        Acknowledger {
            position: watch::Sender::new(start),
        }
    }

    /// Raises the acknowledged position; a lower one changes nothing.
    pub fn acknowledge(&self, lsn: Lsn) {
        self.position.send_if_modified(|position| {
            let higher = lsn > *position;
            if higher {
                *position = lsn;
            }
            higher
        });
    }

    /// Is the acknowledged position.
    pub fn acknowledged(&self) -> Lsn {
        *self.position.borrow()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Lsn> {
        self.position.subscribe()
    }
}
