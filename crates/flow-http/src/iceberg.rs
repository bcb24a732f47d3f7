//! Iceberg's REST protocol over the catalog: routes, headers, limits and the spelling of refusals.
//!
//! Holds no decision about the catalog: [`ServedCatalog`] says what becomes of a request.
//!
//! 1. The token, if there is one, is asked for before anything else.
//! 2. [`extract`] reads path, query and body, each with its limit.
//! 3. At most [`REQUESTS_MAX`] requests are worked on at a time; who waits too long is sent away
//!    before anything was changed.
//! 4. [`answer`] spells a reply or a refusal.

mod answer;
mod extract;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use axum::routing::{get, post};
use flow_lake::{Reply, ServeError, ServedCatalog};
use tokio::sync::Semaphore;

use self::answer::Answer;
use self::extract::{Asked, Body, Known, Namespace, Prefix, Table};
use crate::token::presents;

/// Is the largest body in bytes. A commit names manifests and not files, so it stays far below.
const BODY_BYTES_MAX: usize = 16 << 20;

/// Counts the requests worked on at a time: each may hold a table's metadata, and blocks a thread.
const REQUESTS_MAX: usize = 16;

/// Is how long a request waits for its turn.
const TURN_MAX: Duration = Duration::from_secs(10);

/// Is how long a request is worked on before its client is told that nothing is known of it yet.
const WORK_MAX: Duration = Duration::from_secs(60);

/// Is what every route sees.
#[derive(Clone)]
struct Api {
    catalog: ServedCatalog,
    token: Option<Arc<str>>,
    turns: Arc<Semaphore>,
}

pub(crate) fn router(catalog: ServedCatalog, token: Option<Arc<str>>) -> Router {
    let api = Api {
        catalog,
        token,
        turns: Arc::new(Semaphore::new(REQUESTS_MAX)),
    };
    let table = get(load_table).head(table_exists).post(commit_table).delete(drop_table);
    let namespace = get(namespace).head(namespace_exists).delete(drop_namespace);
    Router::new()
        .route("/v1/config", get(config))
        .route("/v1/{prefix}/namespaces", get(namespaces).post(create_namespace))
        .route("/v1/{prefix}/namespaces/{namespace}", namespace)
        .route("/v1/{prefix}/namespaces/{namespace}/properties", post(update_namespace))
        .route(
            "/v1/{prefix}/namespaces/{namespace}/tables",
            get(tables).post(create_table),
        )
        .route("/v1/{prefix}/namespaces/{namespace}/register", post(register_table))
        .route("/v1/{prefix}/namespaces/{namespace}/tables/{table}", table)
        .route(
            "/v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
            post(metrics),
        )
        .route("/v1/{prefix}/tables/rename", post(rename_table))
        .route("/v1/{prefix}/transactions/commit", post(commit_transaction))
        .fallback(answer::no_route)
        .method_not_allowed_fallback(answer::no_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(axum::middleware::from_fn_with_state(api.clone(), authenticate))
        .with_state(api)
}

async fn authenticate(State(api): State<Api>, request: Request, next: Next) -> Response {
    match &api.token {
        Some(token) if !presents(request.headers(), token) => answer::no_token(),
        _ => next.run(request).await,
    }
}

impl Api {
    /// Works on a request when it is its turn.
    async fn answer(&self, work: impl Future<Output = Result<Reply, ServeError>>) -> Answer {
        let turn = match tokio::time::timeout(TURN_MAX, self.turns.acquire()).await {
            Ok(turn) => turn.expect("the semaphore is never closed"),
            Err(_) => return Answer::Crowded,
        };
        // Once begun, a change runs to its end even if nobody waits for it: too late is not undone.
        let answer = match tokio::time::timeout(WORK_MAX, work).await {
            Ok(outcome) => Answer::Settled(outcome),
            Err(_) => Answer::Late,
        };
        drop(turn);
        answer
    }
}

async fn config(State(api): State<Api>, asked: Asked) -> Answer {
    Answer::Settled(api.catalog.config(asked.warehouse.as_deref()))
}

async fn namespaces(State(api): State<Api>, at: Prefix, asked: Asked) -> Answer {
    let (parent, page) = (asked.parent(), asked.page());
    api.answer(api.catalog.namespaces(at.view, parent, page)).await
}

async fn create_namespace(State(api): State<Api>, at: Prefix, Body(request): Body) -> Answer {
    api.answer(api.catalog.create_namespace(at.view, request)).await
}

async fn namespace(State(api): State<Api>, at: Namespace) -> Answer {
    api.answer(api.catalog.namespace(at.view, at.levels)).await
}

async fn namespace_exists(State(api): State<Api>, at: Namespace) -> Answer {
    let found = async { api.catalog.namespace(at.view, at.levels).await.map(|_| Reply::Nothing) };
    api.answer(found).await
}

async fn drop_namespace(State(api): State<Api>, at: Namespace, Body(request): Body) -> Answer {
    api.answer(api.catalog.drop_namespace(at.view, at.levels, request))
        .await
}

async fn update_namespace(State(api): State<Api>, at: Namespace, Body(request): Body) -> Answer {
    api.answer(api.catalog.update_namespace(at.view, at.levels, request))
        .await
}

async fn tables(State(api): State<Api>, at: Namespace, asked: Asked) -> Answer {
    api.answer(api.catalog.tables(at.view, at.levels, asked.page())).await
}

async fn create_table(State(api): State<Api>, at: Namespace, Body(request): Body) -> Answer {
    api.answer(api.catalog.create_table(at.view, at.levels, request)).await
}

async fn register_table(State(api): State<Api>, at: Namespace, Body(request): Body) -> Answer {
    api.answer(api.catalog.register_table(at.view, at.levels, request))
        .await
}

async fn load_table(State(api): State<Api>, at: Table, asked: Asked, Known(known): Known) -> Answer {
    let snapshots = match asked.snapshots() {
        Ok(snapshots) => snapshots,
        Err(message) => return Answer::Malformed(message),
    };
    api.answer(api.catalog.table(at.view, at.name, snapshots, known)).await
}

async fn table_exists(State(api): State<Api>, at: Table) -> Answer {
    api.answer(api.catalog.table_exists(at.view, at.name)).await
}

async fn commit_table(State(api): State<Api>, at: Table, Body(request): Body) -> Answer {
    api.answer(api.catalog.commit_table(at.view, at.name, request)).await
}

async fn drop_table(State(api): State<Api>, at: Table, asked: Asked, Body(request): Body) -> Answer {
    let purge = match asked.purge() {
        Ok(purge) => purge,
        Err(message) => return Answer::Malformed(message),
    };
    api.answer(api.catalog.drop_table(at.view, at.name, purge, request))
        .await
}

async fn metrics(State(api): State<Api>, at: Table, Body(_): Body) -> Answer {
    api.answer(api.catalog.metrics(at.view, at.name)).await
}

async fn rename_table(State(api): State<Api>, at: Prefix, Body(request): Body) -> Answer {
    api.answer(api.catalog.rename_table(at.view, request)).await
}

async fn commit_transaction(State(api): State<Api>, at: Prefix, Body(request): Body) -> Answer {
    api.answer(api.catalog.commit_transaction(at.view, request)).await
}
