//! Endpoints of outbound events over HTTP: what they were told, and telling it again. They are added and disabled by
//! command alone: whoever may choose addresses may make the courier knock at them.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use uuid::Uuid;

use super::AppState;
use super::auth::{Authorised, Ops};
use super::input::{Id, JsonBody, Params};
use super::paging::{Page, Paging};
use super::problem::{Code, Problem};
use crate::body::{BodyFault, Controls, Faults, Fields};
use crate::courier::endpoints::{self, Delivery, Replayed, Which, Window};

/// The states of a delivery.
const STATES: [&str; 3] = ["pending", "delivered", "given_up"];
/// The most characters of a time in a body.
const MOST_TIME_CHARS: usize = 64;

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/v1/endpoints", get(list))
        .route("/v1/endpoints/{id}/deliveries", get(deliveries))
        .route("/v1/endpoints/{id}/replay", post(replay))
}

/// All of them: a shop has a handful.
async fn list(caller: Authorised<Ops>, State(state): State<AppState>) -> Result<Json<Value>, Problem> {
    let endpoints = endpoints::list(&state.db, caller.shop.id).await?;
    Ok(Json(json!({"data": endpoints, "next_cursor": null})))
}

/// Newest first.
async fn deliveries(
    caller: Authorised<Ops>,
    State(state): State<AppState>,
    Id(id): Id,
    params: Params,
) -> Result<Json<Page<Delivery>>, Problem> {
    let params = params.only(&["state", "cursor", "limit"])?;
    let paging = Paging::of(&params)?;
    let wanted = params.text("state");
    if wanted.is_some_and(|state| !STATES.contains(&state)) {
        return Err(Params::unfit("state", "must be pending, delivered or given_up"));
    }
    let before = paging.after.as_deref().map(|text| text.parse().map_err(|_| Paging::bad_cursor())).transpose()?;
    let found = endpoints::deliveries(&state.db, caller.shop.id, id, wanted, before, paging.rows()).await?;
    let rows = found.ok_or_else(Problem::not_found)?;
    Ok(paging.page(rows, |delivery| delivery.event.to_string()))
}

/// 202: they are on their way.
async fn replay(
    caller: Authorised<Ops>,
    State(state): State<AppState>,
    Id(id): Id,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let which = which(&body).map_err(Problem::invalid_body)?;
    match endpoints::replay(&state.db, caller.shop.id, id, which).await? {
        Replayed::Done { events, go_on_from } => {
            Ok((StatusCode::ACCEPTED, Json(json!({"events": events, "go_on_from": go_on_from}))).into_response())
        }
        Replayed::Disabled => Err(Problem::new(Code::EndpointDisabled, "the endpoint is disabled; add another")),
        Replayed::NoSuchEndpoint | Replayed::NoSuchEvent => Err(Problem::not_found()),
    }
}

/// `{"event": ID}`, or `{"since": TIME, "until": TIME}`, whose end is now unless it says otherwise.
fn which(body: &Value) -> Result<Which, Vec<BodyFault>> {
    let mut faults = Faults::of(body);
    let fields = faults.object(body, "", &["event", "since", "until"]);
    let mut read = |name: &str| fields.as_ref().and_then(|fields| time_or_id(&mut faults, fields, name));
    let (event, since, until) = (read("event"), read("since"), read("until"));
    let event: Option<Uuid> = event.and_then(|text| parsed(&mut faults, "/event", "must be an event's id", &text));
    let time = "must be a time as in RFC 3339";
    let since: Option<DateTime<Utc>> = since.and_then(|text| parsed(&mut faults, "/since", time, &text));
    let until: Option<DateTime<Utc>> = until.and_then(|text| parsed(&mut faults, "/until", time, &text));
    let which = match (event, since) {
        (Some(event), None) if until.is_none() => Which::One(event),
        (None, Some(since)) => Which::Within(Window { since, until: until.unwrap_or_else(Utc::now) }),
        _ => {
            if faults.is_empty() {
                faults.add("", "must have either event, or since and perhaps until");
            }
            Which::One(Uuid::nil())
        }
    };
    faults.or(which)
}

fn time_or_id(faults: &mut Faults, fields: &Fields<'_>, name: &str) -> Option<String> {
    let value = fields.get(name)?;
    faults.text(value, &fields.pointer(name), 1..=MOST_TIME_CHARS, Controls::Refused)
}

fn parsed<T: std::str::FromStr>(faults: &mut Faults, at: &str, must: &str, text: &str) -> Option<T> {
    let value = text.parse().ok();
    if value.is_none() {
        faults.add(at, must);
    }
    value
}
