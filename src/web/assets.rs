//! Assets over HTTP.

use axum::Router;

use super::AppState;

pub(super) fn routes() -> Router<AppState> {
    Router::new()
}
