//! Orders over HTTP.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tracing::Instrument as _;

use super::AppState;
use super::auth::{Authorised, Orders};
use super::headers::{IdempotencyKey, PreferWait};
use super::input::{Id, JsonBody, Params};
use super::paging::{Page, Paging};
use super::problem::{Code, Problem};
use super::wait::{order, until_decided};
use crate::allocator;
use crate::orders::request;
use crate::orders::{self, Filter, Order, Placed, Status};
use crate::queue::catalogue::RESERVE;
use crate::traces::{self, About};

const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// How far into the candidates of a line a question may look.
const MOST_OFFSET: i64 = 1_000_000;

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/v1/orders", post(place).get(list))
        .route("/v1/orders/{id}", get(read))
        .route("/v1/orders/{id}/events", get(events))
        .route("/v1/availability", post(availability))
}

/// Places an order, once per key. Accepted is 202 even where the order is decided by the time of the
/// answer: `Prefer: wait` changes when the answer comes, not what was promised by it.
async fn place(
    State(state): State<AppState>,
    caller: Authorised<Orders>,
    IdempotencyKey(key): IdempotencyKey,
    PreferWait(wait): PreferWait,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let lines = checked(&body)?;
    let shop = caller.shop.id;
    // Before the order is there, so that its decision cannot be missed.
    let notices = state.notices.subscribe();
    let placed = async {
        traces::keep(state.db.pool(), shop, About::Key(&key)).await;
        state.placing.place(shop, &key, &body, &lines, &caller.actor()).await
    };
    let (status, id, new) = match placed.instrument(traces::sending(RESERVE.name)).await? {
        Placed::New(id) => (StatusCode::ACCEPTED, id, true),
        Placed::Replayed(id) => (StatusCode::OK, id, false),
        Placed::KeyReused => {
            let detail = "the key belongs to an order with another body; a new order needs a new key";
            return Err(Problem::new(Code::IdempotencyKeyReused, detail));
        }
    };
    let order = until_decided(&state, shop, id, wait.unwrap_or(Duration::ZERO), new, notices).await?;
    let mut response = (status, Json(order)).into_response();
    let headers = response.headers_mut();
    headers.extend(header_value(&format!("/v1/orders/{id}")).map(|value| (header::LOCATION, value)));
    let applied = wait.and_then(|wait| header_value(&format!("wait={}", wait.as_secs())));
    headers.extend(applied.map(|value| (PREFERENCE_APPLIED, value)));
    Ok(response)
}

fn header_value(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(text).ok()
}

fn checked(body: &Value) -> Result<Value, Problem> {
    request::check(body).map_err(Problem::invalid_body)
}

async fn read(State(state): State<AppState>, caller: Authorised<Orders>, Id(id): Id) -> Result<Json<Order>, Problem> {
    order(&state, caller.shop.id, id).await.map(Json)
}

/// Newest first. A cursor is an order's id.
async fn list(
    State(state): State<AppState>,
    caller: Authorised<Orders>,
    params: Params,
) -> Result<Json<Page<Order>>, Problem> {
    let params = params.only(&["reference", "status", "cursor", "limit"])?;
    let paging = Paging::of(&params)?;
    let status = match params.text("status") {
        None => None,
        Some(code) => Some(Status::from_code(code).ok_or_else(|| {
            let codes: Vec<_> = Status::ALL.iter().map(|status| status.code()).collect();
            Params::unfit("status", &format!("must be one of {}", codes.join(", ")))
        })?),
    };
    let before = paging.after.as_deref().map(str::parse).transpose().map_err(|_| Paging::bad_cursor())?;
    let reference = params.text("reference").map(str::to_owned);
    let filter = Filter { reference, status, before, limit: paging.rows() };
    let (orders, cut) = orders::list(&state.db, caller.shop.id, &filter).await?;
    Ok(paging.page_of(orders, cut, |order| order.id.to_string()))
}

/// An order's whole history: it is as long as the order's life has turns.
async fn events(State(state): State<AppState>, caller: Authorised<Orders>, Id(id): Id) -> Result<Json<Value>, Problem> {
    let events = orders::events(&state.db, caller.shop.id, id).await?.ok_or_else(Problem::not_found)?;
    Ok(Json(json!({ "data": events, "next_cursor": null })))
}

async fn availability(
    State(state): State<AppState>,
    caller: Authorised<Orders>,
    params: Params,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Problem> {
    let params = params.only(&["cursor"])?;
    let offset = match params.text("cursor") {
        None => 0,
        Some(text) => text
            .parse()
            .ok()
            .filter(|offset| (0..=MOST_OFFSET).contains(offset))
            .ok_or_else(|| Params::unfit("cursor", "must be the next_cursor of a line of this answer"))?,
    };
    let lines = checked(&body)?;
    Ok(Json(allocator::availability(&state.db, caller.shop.id, &lines, offset).await?))
}
