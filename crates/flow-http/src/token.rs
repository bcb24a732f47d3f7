//! The bearer token, compared in constant time.

use axum::http::{HeaderMap, header};

/// Says whether the request carries the token; takes the same time wherever a wrong one differs.
pub(crate) fn presents(headers: &HeaderMap, token: &str) -> bool {
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
