//! `/metrics` for Prometheus: with a key of scope ops, or an operator's session, beside the API, and without one on the port that a worker
//! or scheduler opens for it.

use axum::Router;
use axum::extract::{FromRef, State};
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio_util::sync::CancellationToken;

use super::health::{self, Health};
use super::ops::Watcher;
use super::{AppState, around, no_such_method, no_such_path};
use crate::db::Db;
use crate::ops::Watch;
use crate::ops::metrics::{CONTENT_TYPE, Metrics};

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/metrics", get(with_a_key))
}

/// What a process without a web app answers: `/metrics`, `/healthz` and `/readyz`. Nothing here asks for a key, so
/// it belongs on a port that only those reach who may read it.
pub fn watching(db: &Db, shutdown: CancellationToken) -> Router {
    let state = Watching { metrics: Metrics::start(db, &Watch::of(db)), health: Health { db: db.clone(), shutdown } };
    let routes = Router::new()
        .merge(health::routes())
        .route("/metrics", get(without_a_key))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .with_state(state);
    around(routes)
}

#[derive(Clone, Debug)]
struct Watching {
    metrics: Metrics,
    health: Health,
}

impl FromRef<Watching> for Health {
    fn from_ref(state: &Watching) -> Self {
        state.health.clone()
    }
}

async fn with_a_key(State(state): State<AppState>, _: Watcher) -> impl IntoResponse {
    rendered(&state.metrics).await
}

async fn without_a_key(State(state): State<Watching>) -> impl IntoResponse {
    rendered(&state.metrics).await
}

async fn rendered(metrics: &Metrics) -> impl IntoResponse + use<> {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], metrics.render().await)
}
