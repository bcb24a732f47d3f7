//! What a request holds: names in its path, its query, its body. What cannot be read is refused in
//! the protocol's own form.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{self, FromRequest, FromRequestParts, Path, Query};
use axum::http::header;
use axum::http::request::Parts;
use flow_core::TableName;
use flow_lake::{Page, Request, Snapshots, View, table_name};
use serde::Deserialize;

use super::Api;
use super::answer::Answer;

/// Is how long a client may take to send a body.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// Parts the levels of a namespace in a path or query.
const SEPARATOR: char = '\u{1f}';

fn levels(text: &str) -> Vec<String> {
    text.split(SEPARATOR).map(str::to_owned).collect()
}

#[derive(Deserialize)]
struct Captures {
    prefix: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    table: String,
}

async fn captures(parts: &mut Parts, api: &Api) -> Result<(Captures, View), Answer> {
    let captures: Result<Path<Captures>, PathRejection> = Path::from_request_parts(parts, api).await;
    let Path(captures) = captures.map_err(|error| Answer::Malformed(error.body_text()))?;
    let view = api
        .catalog
        .view(&captures.prefix)
        .map_err(|error| Answer::Settled(Err(error)))?;
    Ok((captures, view))
}

/// Is a path that names the catalog.
pub(super) struct Prefix {
    pub(super) view: View,
}

impl FromRequestParts<Api> for Prefix {
    type Rejection = Answer;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Answer> {
        let (_, view) = captures(parts, api).await?;
        Ok(Prefix { view })
    }
}

/// Is a path that names a namespace.
pub(super) struct Namespace {
    pub(super) view: View,
    pub(super) levels: Vec<String>,
}

impl FromRequestParts<Api> for Namespace {
    type Rejection = Answer;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Answer> {
        let (captures, view) = captures(parts, api).await?;
        Ok(Namespace {
            view,
            levels: levels(&captures.namespace),
        })
    }
}

/// Is a path that names a table.
pub(super) struct Table {
    pub(super) view: View,
    pub(super) name: TableName,
}

impl FromRequestParts<Api> for Table {
    type Rejection = Answer;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Answer> {
        let (captures, view) = captures(parts, api).await?;
        Ok(Table {
            view,
            name: table_name(&levels(&captures.namespace), captures.table),
        })
    }
}

/// Is a query; what a route has no use for is ignored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Asked {
    pub(super) warehouse: Option<String>,
    parent: Option<String>,
    page_token: Option<String>,
    page_size: Option<usize>,
    snapshots: Option<String>,
    purge_requested: Option<String>,
}

impl Asked {
    pub(super) fn parent(&self) -> Vec<String> {
        match self.parent.as_deref() {
            None | Some("") => Vec::new(),
            Some(parent) => levels(parent),
        }
    }

    pub(super) fn page(&self) -> Page {
        Page {
            token: self.page_token.clone(),
            size: self.page_size,
        }
    }

    /// Says whether files are to go too. PyIceberg writes the value as Python does.
    pub(super) fn purge(&self) -> Result<bool, String> {
        match self.purge_requested.as_deref().map(str::to_ascii_lowercase).as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(format!("purgeRequested must be 'true' or 'false', not '{other}'")),
        }
    }

    pub(super) fn snapshots(&self) -> Result<Snapshots, String> {
        match self.snapshots.as_deref() {
            None | Some("all") => Ok(Snapshots::All),
            Some("refs") => Ok(Snapshots::Refs),
            Some(other) => Err(format!("snapshots must be 'all' or 'refs', not '{other}'")),
        }
    }
}

impl FromRequestParts<Api> for Asked {
    type Rejection = Answer;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Answer> {
        let asked: Result<Query<Asked>, QueryRejection> = Query::from_request_parts(parts, api).await;
        match asked {
            Ok(Query(asked)) => Ok(asked),
            Err(error) => Err(Answer::Malformed(error.body_text())),
        }
    }
}

/// Holds the tags of the table states that the client has.
pub(super) struct Known(pub(super) Vec<String>);

impl FromRequestParts<Api> for Known {
    type Rejection = Answer;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Answer> {
        let values = parts.headers.get_all(header::IF_NONE_MATCH).iter();
        let tags = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','));
        let plain = |tag: &str| tag.trim().trim_start_matches("W/").trim_matches('"').to_owned();
        Ok(Known(tags.map(plain).collect()))
    }
}

/// Is a request that changes something, whole.
pub(super) struct Body(pub(super) Request);

impl FromRequest<Api> for Body {
    type Rejection = Answer;

    async fn from_request(request: extract::Request, api: &Api) -> Result<Self, Answer> {
        let key = match request.headers().get("idempotency-key").map(|key| key.to_str()) {
            None => None,
            Some(Ok(key)) => Some(key.to_owned()),
            Some(Err(_)) => return Err(Answer::Malformed("the Idempotency-Key header is not text".to_owned())),
        };
        let target = format!("{} {}", request.method(), request.uri());
        let body: Result<Bytes, BytesRejection> =
            match tokio::time::timeout(BODY_TIME_MAX, Bytes::from_request(request, api)).await {
                Ok(body) => body,
                Err(_) => return Err(Answer::Slow),
            };
        let body = body.map_err(|error| match error.status().as_u16() {
            413 => Answer::Large,
            _ => Answer::Malformed(error.body_text()),
        })?;
        Ok(Body(Request { key, target, body }))
    }
}
