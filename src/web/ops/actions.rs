//! What operators do: each by a form that carries the session's token, under the name of their key.

use axum::extract::{Path, State};
use axum::response::Redirect;
use serde_json::json;
use uuid::Uuid;

use super::page::Refused;
use super::session::Action;
use crate::ops::orders as found;
use crate::orders::{self, Ending, request};
use crate::queue::catalogue::Queue;
use crate::queue::operate;
use crate::shops::Scope;
use crate::web::AppState;

pub(super) async fn order(
    State(state): State<AppState>,
    Path((id, wish)): Path<(String, String)>,
    action: Action,
) -> Result<Redirect, Refused> {
    action.needs(Scope::Orders)?;
    let id: Uuid = id.parse().map_err(|_| Refused::NotFound)?;
    let (shop, actor) = (action.operator.shop(), action.operator.caller.actor());
    let unfit = |_| Refused::Form("A field does not fit: see its limits and try again.".to_owned());
    let mut body = json!({});
    if let Some(reason) = action.text("reason") {
        body["reason"] = json!(reason);
    }
    let conflict = |said: &str| Err(Refused::Conflict(said.to_owned()));
    let done = || Ok(Redirect::to(&format!("/ops/orders/{id}")));
    let ending = match wish.as_str() {
        "refunded" => {
            let wish = request::cancel(&body).map_err(unfit)?;
            return match orders::mark_refunded(&state.db, shop, id, &actor, wish.reason.as_deref()).await? {
                true => done(),
                false => conflict("No money of this order is to be given back."),
            };
        }
        "replay" => {
            let event = (action.text("provider").unwrap_or_default(), action.text("event").unwrap_or_default());
            tracing::info!(order = %id, provider = event.0, event = event.1, actor, "an operator replays an event");
            return match found::replay(&state.watch, &state.db, shop, id, event).await? {
                true => done(),
                false => conflict("That is no payment event of this order which waits to be applied."),
            };
        }
        "cancel" => {
            let wish = request::cancel(&body).map_err(unfit)?;
            orders::cancel(&state.db, shop, id, &actor, wish.reason.as_deref()).await?
        }
        "extend" => {
            let seconds = action.text("hold_seconds").and_then(|text| text.parse::<i64>().ok());
            let wish = request::extend(&json!({ "hold_seconds": seconds })).map_err(unfit)?;
            orders::extend(&state.db, shop, id, &actor, wish.seconds).await?
        }
        "release" => {
            body["assets"] = json!(action.text("assets").unwrap_or("maintenance"));
            let wish = request::release(&body).map_err(unfit)?;
            orders::release(&state.db, shop, id, &actor, wish.reason.as_deref(), wish.assets).await?
        }
        _ => return Err(Refused::NotFound),
    };
    match ending {
        Ending::Done | Ending::Unchanged => done(),
        Ending::AlreadyConverted => conflict("The order is sold: it can be released, not cancelled."),
        Ending::NotHeld => conflict("The order holds nothing, or its hold has lapsed."),
        Ending::NotConverted => conflict("Only a converted order can be released."),
        Ending::NoSuchOrder => Err(Refused::NotFound),
    }
}

pub(super) async fn queue(
    State(state): State<AppState>,
    Path((name, wish)): Path<(String, String)>,
    action: Action,
) -> Result<Redirect, Refused> {
    action.needs_the_installation()?;
    let queue: Queue = operate::queue(&name).ok_or(Refused::NotFound)?;
    let actor = action.operator.caller.actor();
    match wish.as_str() {
        "pause" => operate::pause(&state.db, queue, &actor).await.map(|_| ())?,
        "resume" => operate::resume(&state.db, queue).await.map(|_| ())?,
        "retry" => operate::retry_all(&state.db, queue).await.map(|_| ())?,
        _ => return Err(Refused::NotFound),
    }
    tracing::info!(queue = queue.name, wish, actor, "an operator acted on a queue");
    Ok(Redirect::to("/ops/queues"))
}

pub(super) async fn job(
    State(state): State<AppState>,
    Path((id, wish)): Path<(String, String)>,
    action: Action,
) -> Result<Redirect, Refused> {
    action.needs_the_installation()?;
    let done = match wish.as_str() {
        _ if id.contains('\0') => return Err(Refused::NotFound),
        "retry" => operate::retry(&state.db, &id).await?,
        "discard" => operate::discard(&state.db, &id).await?,
        _ => return Err(Refused::NotFound),
    };
    tracing::info!(job = id, wish, actor = action.operator.caller.actor(), done, "an operator acted on a job");
    if done {
        Ok(Redirect::to("/ops/queues"))
    } else {
        Err(Refused::Conflict("That is no dead letter (any more).".to_owned()))
    }
}
