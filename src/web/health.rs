//! Whether the process lives (`/healthz`), and whether it can do its work (`/readyz`). No key is needed.

use std::time::Duration;

use axum::extract::{FromRef, State};
use axum::http::{HeaderValue, header};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::AppState;
use super::problem::{Code, Problem};
use crate::db::{Db, MigrateError, check_schema};

/// Whoever asks usually gives up after some seconds, and shall learn the reason before.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the answers depend on.
#[derive(Clone, Debug)]
pub(super) struct Health {
    pub(super) db: Db,
    pub(super) shutdown: CancellationToken,
}

impl FromRef<AppState> for Health {
    fn from_ref(state: &AppState) -> Self {
        Self { db: state.db.clone(), shutdown: state.shutdown.clone() }
    }
}

pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S>
where
    Health: FromRef<S>,
{
    Router::new().route("/healthz", get(alive)).route("/readyz", get(ready))
}

async fn alive() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

async fn ready(State(state): State<Health>) -> Result<Json<Value>, Problem> {
    if state.shutdown.is_cancelled() {
        return Err(not_ready("this process is ending"));
    }
    // On a task of its own: a query that is dropped half-way costs its connection.
    let db = state.db.clone();
    let check = tokio::spawn(async move { check_schema(&db).await });
    match tokio::time::timeout(PATIENCE, check).await {
        Ok(Ok(Ok(()))) => Ok(Json(json!({"status": "ready"}))),
        Ok(Ok(Err(error))) => Err(not_ready(&reason(&error))),
        Ok(Err(_)) => Err(not_ready("the check did not end")),
        Err(_) => Err(not_ready("the database did not answer within 2 seconds")),
    }
}

/// Told to anyone who asks: what the server itself said is for the log.
fn reason(error: &MigrateError) -> String {
    match error {
        MigrateError::Newer { .. } | MigrateError::Behind { .. } => error.to_string(),
        MigrateError::Migration(_) | MigrateError::Database(_) => {
            tracing::warn!(%error, "not ready");
            "the database cannot be asked".to_owned()
        }
    }
}

fn not_ready(reason: &str) -> Problem {
    Problem::new(Code::Unavailable, reason).header(header::RETRY_AFTER, HeaderValue::from(1))
}
