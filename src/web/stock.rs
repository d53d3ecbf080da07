//! Stock over HTTP: movements of the ledger, and what a SKU has where.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::AppState;
use super::auth::{Authorised, Stock};
use super::input::JsonBody;
use super::problem::{Code, Problem};
use crate::allocator::waiting;
use crate::stock::ledger::{self, Posted};
use crate::stock::movement::{self, NewMovement};
use crate::stock::name;

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/v1/stock/movements", post(record).get(read_movements)).route("/v1/stock/{sku}", get(read))
}

/// Posts a movement, once per reference: 201 the first time, 200 when it is repeated.
async fn record(
    caller: Authorised<Stock>,
    State(state): State<AppState>,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let new = movement::check(&body).map_err(Problem::invalid_body)?;
    match waiting::post_movement(&state.db, caller.shop.id, &new, &caller.actor()).await? {
        Posted::Posted(movement) => Ok((StatusCode::CREATED, Json(movement)).into_response()),
        Posted::Replayed(movement) => Ok(Json(movement).into_response()),
        Posted::ReferenceReused => {
            let detail = "the reference belongs to another movement of this shop; another movement needs another one";
            Err(Problem::new(Code::ReferenceReused, detail))
        }
        Posted::WouldOversell { on_hand, held, lacking } => Err(would_oversell(&new, on_hand, held, lacking)),
    }
}

fn would_oversell(new: &NewMovement, on_hand: i64, held: i64, lacking: i64) -> Problem {
    let NewMovement { sku, location, delta, .. } = new;
    let detail = format!(
        "of {sku:?} at {location:?} {on_hand} are on hand, and {held} of them are held: after a movement of {delta}, \
         {lacking} would be lacking; \"force\": true posts it all the same, and records that"
    );
    Problem::new(Code::WouldOversell, detail).with("on_hand", on_hand).with("held", held).with("lacking", lacking)
}

async fn read(
    caller: Authorised<Stock>,
    State(state): State<AppState>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Problem> {
    let Path(text) = path.map_err(|_| Problem::not_found())?;
    levels(&caller, &state, &text).await
}

/// The SKU that is called like the path of the movements.
async fn read_movements(caller: Authorised<Stock>, State(state): State<AppState>) -> Result<Json<Value>, Problem> {
    levels(&caller, &state, "movements").await
}

/// What a SKU has, location by location. A SKU that never moved in this shop is not found, and so is a text that
/// can be no SKU.
async fn levels(caller: &Authorised<Stock>, state: &AppState, text: &str) -> Result<Json<Value>, Problem> {
    let sku = name::check(text).map_err(|_| Problem::not_found())?;
    let levels = ledger::levels(&state.db, caller.shop.id, &sku).await?;
    if levels.is_empty() {
        return Err(Problem::not_found());
    }
    Ok(Json(json!({ "sku": sku, "locations": levels })))
}
