//! Signals: SIGTERM and SIGINT stop in order, a second one at once; SIGHUP reads the configuration
//! again.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit::{Exit, Failure};

/// Receives the process's signals.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Takes the signals over from their default actions.
    pub(crate) fn install() -> Result<Signals, Failure> {
        let take = |kind| {
            signal(kind).map_err(|error| Failure::new(Exit::Failure, format!("cannot receive signals: {error}")))
        };
        Ok(Signals {
            terminate: take(SignalKind::terminate())?,
            interrupt: take(SignalKind::interrupt())?,
            hangup: take(SignalKind::hangup())?,
        })
    }

    /// Acts on signals for as long as the process lives. `reload` is called for each SIGHUP and must
    /// not block: a signal to stop may follow.
    pub(crate) async fn watch(mut self, shutdown: CancellationToken, reload: impl Fn()) {
        loop {
            let name = tokio::select! {
                _ = self.terminate.recv() => "SIGTERM",
                _ = self.interrupt.recv() => "SIGINT",
                _ = self.hangup.recv() => {
                    tracing::info!("SIGHUP: reading the configuration again");
                    reload();
                    continue;
                }
            };
            if shutdown.is_cancelled() {
                tracing::warn!("{name} again: ending at once");
                std::process::exit(i32::from(Exit::Failure.number()));
            }
            tracing::info!("{name}: stopping");
            shutdown.cancel();
        }
    }
}
