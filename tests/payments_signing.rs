//! Webhooks as the providers sign and send them.

use std::fmt::Write as _;

use hmac::{Hmac, Mac as _};
use reqwest::RequestBuilder;
use serde_json::json;
use sha2::Sha256;
use standardwebhooks::Webhook;

use crate::served::Served;

pub(crate) fn now() -> i64 {
    i64::try_from(std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap()
}

pub(crate) fn stripe_signature(secret: &str, at: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(at.as_bytes());
    mac.update(b".");
    mac.update(body);
    mac.finalize().into_bytes().iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

pub(crate) fn stripe_header(secret: &str, at: i64, body: &[u8]) -> String {
    format!("t={at},v1={}", stripe_signature(secret, &at.to_string(), body))
}

/// A webhook of Stripe as Stripe sends it.
pub(crate) fn stripe(served: &Served, shop: &str, secret: &str, body: &[u8]) -> RequestBuilder {
    let header = stripe_header(secret, now(), body);
    served.post(&format!("/webhooks/{shop}/stripe")).header("stripe-signature", header).body(body.to_vec())
}

/// A webhook in the standard scheme, signed at an instant.
pub(crate) fn standard_at(served: &Served, shop: &str, secret: &str, id: &str, at: i64, body: &str) -> RequestBuilder {
    let signature = Webhook::new(secret).unwrap().sign(id, at, body.as_bytes()).unwrap();
    served
        .post(&format!("/webhooks/{shop}/standard"))
        .header("webhook-id", id)
        .header("webhook-timestamp", at)
        .header("webhook-signature", signature)
        .body(body.to_owned())
}

pub(crate) fn standard(served: &Served, shop: &str, secret: &str, id: &str, body: &str) -> RequestBuilder {
    standard_at(served, shop, secret, id, now(), body)
}

pub(crate) fn stripe_event(id: &str) -> String {
    json!({"id": id, "object": "event", "type": "payment_intent.succeeded", "data": {"object": {"id": "pi_1",
        "amount_received": 19900, "currency": "eur", "metadata": {"onehold_order": "R-1"}}}})
    .to_string()
}

pub(crate) fn standard_event() -> String {
    json!({"type": "payment.succeeded",
        "data": {"order_id": "R-1", "payment_id": "p-1", "amount": 19900, "currency": "EUR"}})
    .to_string()
}
