//! How a person ends or prolongs an order over HTTP: cancel, extend, release. The answer is the order as
//! it stands then.

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};

use super::AppState;
use super::auth::{Authorised, Orders};
use super::input::{Id, JsonBody, OptionalJsonBody};
use super::problem::{Code, Problem};
use super::wait::order;
use crate::orders::{self, Ending, Order, request};

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/v1/orders/{id}/cancel", post(cancel))
        .route("/v1/orders/{id}/extend", post(extend))
        .route("/v1/orders/{id}/release", post(release))
}

async fn cancel(
    State(state): State<AppState>,
    caller: Authorised<Orders>,
    Id(id): Id,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<Json<Order>, Problem> {
    let wish = request::cancel(&body).map_err(Problem::invalid_body)?;
    let ending = orders::cancel(&state.db, caller.shop.id, id, &caller.actor(), wish.reason.as_deref()).await?;
    answer(ending)?;
    order(&state, caller.shop.id, id).await.map(Json)
}

async fn extend(
    State(state): State<AppState>,
    caller: Authorised<Orders>,
    Id(id): Id,
    JsonBody(body): JsonBody,
) -> Result<Json<Order>, Problem> {
    let wish = request::extend(&body).map_err(Problem::invalid_body)?;
    let ending = orders::extend(&state.db, caller.shop.id, id, &caller.actor(), wish.seconds).await?;
    answer(ending)?;
    order(&state, caller.shop.id, id).await.map(Json)
}

async fn release(
    State(state): State<AppState>,
    caller: Authorised<Orders>,
    Id(id): Id,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<Json<Order>, Problem> {
    let wish = request::release(&body).map_err(Problem::invalid_body)?;
    let (actor, reason) = (caller.actor(), wish.reason.as_deref());
    let ending = orders::release(&state.db, caller.shop.id, id, &actor, reason, wish.assets).await?;
    answer(ending)?;
    order(&state, caller.shop.id, id).await.map(Json)
}

fn answer(ending: Ending) -> Result<(), Problem> {
    let conflict = |code, detail: &str| Err(Problem::new(code, detail));
    match ending {
        Ending::Done | Ending::Unchanged => Ok(()),
        Ending::AlreadyConverted => {
            conflict(Code::AlreadyConverted, "the order is sold: it can be released, not cancelled")
        }
        Ending::NotHeld => conflict(Code::NotHeld, "the order holds nothing, or its hold has lapsed"),
        Ending::NotConverted => conflict(Code::NotConverted, "only a converted order can be released"),
        Ending::NoSuchOrder => Err(Problem::not_found()),
    }
}
