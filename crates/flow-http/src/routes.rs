//! What each path answers.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz`, `/livez` | 200; 503 if the main loop has not turned for [`STALL_MAX`] |
//! | `/readyz` | 200 if ready, else 503; the body names the state |
//! | `/status` | the status document; asks for the token if there is one |
//! | `/metrics` | Prometheus text |

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::metrics;
use crate::observed::Observed;

/// The main loop turns several times a second and waits for nothing that can take long; this is
/// far above any pause of a loaded machine.
pub const STALL_MAX: Duration = Duration::from_secs(30);

/// Is what every route sees.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) observed: Arc<dyn Observed>,
    pub(crate) token: Option<Arc<str>>,
}

pub(crate) fn router(shared: Shared) -> Router {
    Router::new()
        .route("/healthz", get(live))
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .route("/status", get(status))
        .route("/metrics", get(metrics_text))
        .with_state(shared)
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

/// Says whether the request carries the token; takes the same time wherever a wrong one differs.
fn presents(headers: &HeaderMap, token: &str) -> bool {
    let given = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "))
        .unwrap_or_default();
    let differing = given
        .iter()
        .zip(token.bytes())
        .fold(0, |bits, (left, right)| bits | (left ^ right));
    given.len() == token.len() && differing == 0
}
