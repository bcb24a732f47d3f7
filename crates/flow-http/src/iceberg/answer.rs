//! Spells replies and refusals as the protocol wants them.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flow_core::Remedial;
use flow_lake::{Refusal, Reply, ServeError};
use serde_json::json;

use super::BODY_BYTES_MAX;

/// Is how a request ended.
pub(super) enum Answer {
    /// The catalog says what became of it.
    Settled(Result<Reply, ServeError>),
    /// It could not be read.
    Malformed(String),
    /// Its body is too large.
    Large,
    /// Its body did not come in time.
    Slow,
    /// It never got its turn.
    Crowded,
    /// Its outcome is not known yet.
    Late,
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        match self {
            Answer::Settled(Ok(reply)) => reply_response(reply),
            Answer::Settled(Err(error)) => refusal_response(&error),
            Answer::Malformed(message) => error(StatusCode::BAD_REQUEST, "BadRequestException", &message),
            Answer::Large => {
                let message = format!("a body of more than {BODY_BYTES_MAX} bytes is not taken");
                error(StatusCode::PAYLOAD_TOO_LARGE, "PayloadTooLargeException", &message)
            }
            Answer::Slow => {
                let message = "the body did not come in time";
                error(StatusCode::REQUEST_TIMEOUT, "RequestTimeoutException", message)
            }
            Answer::Crowded => busy("too many requests are being worked on; nothing was changed"),
            Answer::Late => {
                let message = "the request takes long; it may take effect yet or not";
                error(StatusCode::GATEWAY_TIMEOUT, "CommitStateUnknownException", message)
            }
        }
    }
}

fn reply_response(reply: Reply) -> Response {
    let json = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    match reply {
        Reply::Nothing => StatusCode::NO_CONTENT.into_response(),
        Reply::Json(body) => (json, body).into_response(),
        Reply::Table { json: body, tag } => (json, etag(&tag), body).into_response(),
        Reply::Unchanged { tag } => (StatusCode::NOT_MODIFIED, etag(&tag)).into_response(),
    }
}

fn etag(tag: &str) -> [(header::HeaderName, String); 1] {
    [(header::ETAG, format!("\"{tag}\""))]
}

/// A client deletes the files of its commit on any 4xx and keeps them on any 5xx, so a 4xx must mean
/// that nothing was changed, and 503 that nothing was begun.
fn refusal_response(refused: &ServeError) -> Response {
    let (status, kind) = match refused.refusal {
        Refusal::BadRequest => (StatusCode::BAD_REQUEST, "BadRequestException"),
        Refusal::Forbidden => (StatusCode::FORBIDDEN, "ForbiddenException"),
        Refusal::NoWarehouse => (StatusCode::NOT_FOUND, "NoSuchWarehouseException"),
        Refusal::NoNamespace => (StatusCode::NOT_FOUND, "NoSuchNamespaceException"),
        Refusal::NoTable => (StatusCode::NOT_FOUND, "NoSuchTableException"),
        Refusal::Exists => (StatusCode::CONFLICT, "AlreadyExistsException"),
        Refusal::NotEmpty => (StatusCode::CONFLICT, "NamespaceNotEmptyException"),
        Refusal::Conflict => (StatusCode::CONFLICT, "CommitFailedException"),
        Refusal::Unprocessable => (StatusCode::UNPROCESSABLE_ENTITY, "UnprocessableEntityException"),
        Refusal::Busy => return busy(&refused.message),
        Refusal::Unknown => (StatusCode::INTERNAL_SERVER_ERROR, "CommitStateUnknownException"),
        Refusal::Broken => (StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError"),
    };
    if let Some(source) = &refused.source {
        let code = source.code().unwrap_or("-");
        let cause = std::error::Error::source(source.as_ref()).map(ToString::to_string);
        tracing::warn!(code, cause, "a catalog request failed: {source}");
    }
    error(status, kind, &refused.message)
}

fn busy(message: &str) -> Response {
    let mut response = error(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableException", message);
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Is the protocol's error document.
fn error(status: StatusCode, kind: &str, message: &str) -> Response {
    let document = json!({"error": {"message": message, "type": kind, "code": status.as_u16()}});
    (status, Json(document)).into_response()
}

pub(super) fn no_token() -> Response {
    let mut response = error(
        StatusCode::UNAUTHORIZED,
        "NotAuthorizedException",
        "a bearer token is needed: the one that http.token_env names",
    );
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

pub(super) async fn no_route() -> Response {
    error(
        StatusCode::NOT_FOUND,
        "NoSuchEndpointException",
        "this catalog has no such route; GET /v1/config lists those it has",
    )
}

pub(super) async fn no_method() -> Response {
    error(
        StatusCode::METHOD_NOT_ALLOWED,
        "UnsupportedOperationException",
        "this route does not take this method; GET /v1/config lists what it takes",
    )
}
