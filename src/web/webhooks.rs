//! Webhooks of payment providers: believed by their signature over the raw bytes, kept once, and answered
//! at once; what they mean to an order is the convert job's business.

use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tracing::Instrument as _;

use super::AppState;
use super::problem::{Code, Problem};
use crate::body::BodyFault;
use crate::payments::event::EventFault;
use crate::payments::signature::{self, SignatureFault};
use crate::payments::{Provider, event};
use crate::queue::catalogue::CONVERT;
use crate::traces::{self, About};

type Answer = Result<Json<Value>, Problem>;
type ShopName = Result<Path<String>, PathRejection>;

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/webhooks/{shop}/stripe", post(stripe)).route("/webhooks/{shop}/standard", post(standard))
}

async fn stripe(State(state): State<AppState>, shop: ShopName, headers: HeaderMap, body: Bytes) -> Answer {
    receive(&state, Provider::Stripe, shop, &headers, &body).await
}

async fn standard(State(state): State<AppState>, shop: ShopName, headers: HeaderMap, body: Bytes) -> Answer {
    receive(&state, Provider::Standard, shop, &headers, &body).await
}

async fn receive(state: &AppState, provider: Provider, shop: ShopName, headers: &HeaderMap, body: &[u8]) -> Answer {
    let shop = match shop {
        Ok(Path(name)) => state.webhook_secrets.shop(&state.db, &name).await?,
        Err(_) => None,
    };
    // A shop that does not exist is one without secrets: its webhooks fit nothing, and nobody learns which
    // shops there are.
    let secrets = match &shop {
        Some(shop) => state.webhook_secrets.of(&state.db, shop, provider.code()).await?,
        None => Vec::new(),
    };
    let believed = match provider {
        Provider::Stripe => signature::verify_stripe(headers, body, &secrets).map(|()| String::new()),
        Provider::Standard => signature::verify_standard(headers, body, &secrets),
    };
    let (shop, event_id) = match (shop, believed) {
        (Some(shop), Ok(event_id)) => (shop, event_id),
        (None, Ok(_)) => return Err(distrust(provider, &SignatureFault::Mismatch)),
        (_, Err(fault)) => return Err(distrust(provider, &fault)),
    };
    let event = event::parse(provider, &event_id, body).map_err(|fault| malformed(provider, fault))?;
    let kept = async {
        traces::keep(state.db.pool(), shop.id, About::Event(provider.code(), &event_id)).await;
        state.inbox.receive(shop.id, provider, event, body).await
    };
    kept.instrument(traces::sending(CONVERT.name)).await?;
    Ok(Json(json!({ "received": true })))
}

/// Neither this nor [`malformed`] can hold a secret, a signature or a part of the body.
fn distrust(provider: Provider, fault: &SignatureFault) -> Problem {
    tracing::info!(provider = provider.code(), %fault, "a webhook was not believed");
    Problem::new(Code::InvalidSignature, fault.to_string())
}

fn malformed(provider: Provider, fault: EventFault) -> Problem {
    tracing::warn!(provider = provider.code(), %fault, "a webhook with a valid signature is no event");
    let problem = Problem::new(Code::InvalidEvent, fault.to_string());
    match fault {
        EventFault::Unfit { pointer, detail } => problem.errors(vec![BodyFault { pointer, detail: detail.to_owned() }]),
        EventFault::NotUtf8 | EventFault::NotJson | EventFault::NotAnObject => problem,
    }
}
