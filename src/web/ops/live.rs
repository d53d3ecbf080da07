//! Live numbers by server-sent events: what a page shows, sent again every two seconds. A stream ends after a
//! minute and the browser opens another, so that a session that was ended sees nothing for longer than that.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::IntoResponse;
use axum::response::sse::{Event, Sse};
use futures_util::stream;

use super::overview;
use super::session::Operator;
use crate::web::AppState;

const EVERY: Duration = Duration::from_secs(2);
const MOST_EVENTS: u32 = 30;

pub(super) async fn overview_live(State(state): State<AppState>, operator: Operator) -> impl IntoResponse {
    let shop = operator.shop();
    Sse::new(stream::unfold((state, 0), move |(state, sent)| async move {
        if sent > 0 && state.shutdown.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_none() {
            return None;
        }
        if sent == MOST_EVENTS {
            return None;
        }
        // A database that does not answer ends the stream; the page then says that its numbers are old.
        let now = overview::now(&state.watch, shop).await.ok()?;
        Some((Ok::<_, Infallible>(Event::default().data(now.into_string())), (state, sent + 1)))
    }))
}
