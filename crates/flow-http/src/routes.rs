//! What each path answers.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz`, `/livez` | 200; 503 if the main loop has not turned for [`STALL_MAX`] |
//! | `/readyz` | 200 if ready, else 503; the body names the state |
//! | `/status` | the status document; asks for the token if there is one |
//! | `/metrics` | Prometheus text |
//! | `/iceberg/…` | the catalog, see [`crate::iceberg`]; asks for the token if there is one |

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flow_lake::ServedCatalog;

use crate::observed::Observed;
use crate::token::presents;
use crate::{iceberg, metrics};

/// The main loop turns several times a second and waits for nothing that can take long; this is
/// far above any pause of a loaded machine.
pub const STALL_MAX: Duration = Duration::from_secs(30);

/// Is what every route sees.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) observed: Arc<dyn Observed>,
    pub(crate) token: Option<Arc<str>>,
}

pub(crate) fn router(shared: Shared, catalog: Option<ServedCatalog>) -> Router {
    let served = catalog.map(|catalog| iceberg::router(catalog, shared.token.clone()));
    let router = Router::new()
        .route("/healthz", get(live))
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .route("/status", get(status))
        .route("/metrics", get(metrics_text))
        .with_state(shared);
    match served {
        Some(served) => router.nest("/iceberg", served),
        None => router,
    }
}

async fn live(State(shared): State<Shared>) -> Response {
    let age = shared.observed.main_loop_age();
    if age > STALL_MAX {
        let message = format!("main loop has not turned for {} s\n", age.as_secs());
        return (StatusCode::SERVICE_UNAVAILABLE, message).into_response();
    }
    "ok\n".into_response()
}

async fn ready(State(shared): State<Shared>) -> Response {
    let status = shared.observed.status();
    let code = match status.ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, format!("{}\n", metrics::state_name(&status.state))).into_response()
}

async fn status(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    if let Some(token) = &shared.token
        && !presents(&headers, token)
    {
        let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
        return (StatusCode::UNAUTHORIZED, challenge, "a bearer token is needed\n").into_response();
    }
    axum::Json(shared.observed.status().as_ref()).into_response()
}

async fn metrics_text(State(shared): State<Shared>) -> Response {
    let text = metrics::render(shared.observed.as_ref());
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}
