//! Binds the address, serves until told to stop, and then ends within a bounded time.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use flow_core::{Remedial, Remedy};
use flow_lake::ServedCatalog;
use tokio::net::TcpListener;

use crate::limit::LimitedListener;
use crate::observed::Observed;
use crate::routes::{Shared, router};

/// Is more than probes, a scraper and a few people need; more connections wait.
const CONNECTIONS_MAX: usize = 128;

/// Is how long requests in progress may take once the server stops.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// Says how to serve.
#[derive(Clone)]
pub struct HttpOptions {
    /// Is the address; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Is the bearer token that `/status` and the catalog ask for; probes and metrics stay open.
    pub token: Option<String>,
}

impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOptions")
            .field("listen", &self.listen)
            .field("token", &self.token.as_ref().map(|_| "…"))
            .finish()
    }
}

/// Says why the server could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address cannot be had.
    #[error("cannot listen on {address} for HTTP")]
    Bind {
        /// Is the address.
        address: SocketAddr,
        /// Is what the system said.
        #[source]
        source: io::Error,
    },
    /// The address is reachable by others and no token protects it.
    #[error("{address} is not a loopback address, so a token is required")]
    Open {
        /// Is the address.
        address: SocketAddr,
    },
    /// Serving failed.
    #[error("HTTP server failed")]
    Serve(#[source] io::Error),
}

impl Remedial for HttpError {
    fn remedy(&self) -> Remedy {
        match self {
            HttpError::Bind { .. } | HttpError::Open { .. } => Remedy::Reconfigure,
            HttpError::Serve(_) => Remedy::Retry,
        }
    }

    fn code(&self) -> Option<&'static str> {
        match self {
            HttpError::Bind { .. } | HttpError::Open { .. } => Some("F0502"),
            HttpError::Serve(_) => None,
        }
    }
}

/// Is a server that is bound and not yet serving.
#[derive(Debug)]
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
    token: Option<String>,
}

impl HttpServer {
    /// Binds the address.
    ///
    /// # Errors
    /// Reconfigure: the address is taken or not ours, or it is no loopback address and there is no token.
    pub async fn bind(options: HttpOptions) -> Result<HttpServer, HttpError> {
        let address = options.listen;
        if !address.ip().is_loopback() && options.token.is_none() {
            return Err(HttpError::Open { address });
        }
        let bind = |source| HttpError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        Ok(HttpServer {
            listener,
            address,
            token: options.token,
        })
    }

    /// Is the address that is bound, with its actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` resolves, the catalog too if there is one; requests in progress then have two seconds.
    ///
    /// # Errors
    /// Retry: the listener failed.
    pub async fn serve(
        self,
        observed: Arc<dyn Observed>,
        catalog: Option<ServedCatalog>,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), HttpError> {
        let (stopping, stopped) = tokio::sync::oneshot::channel::<()>();
        let token = self.token.map(Arc::from);
        let router = router(Shared { observed, token }, catalog);
        let signal = async move {
            shutdown.await;
            // The receiver is gone only when serving has ended, and then nobody waits.
            let _ = stopping.send(());
        };
        let listener = LimitedListener::new(self.listener, CONNECTIONS_MAX);
        let serving = axum::serve(listener, router)
            .with_graceful_shutdown(signal)
            .into_future();
        let drained = async {
            match stopped.await {
                Ok(()) => tokio::time::sleep(DRAIN_MAX).await,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            served = serving => served.map_err(HttpError::Serve),
            () = drained => Ok(()),
        }
    }
}
