//! Whose word is believed: signatures over the raw bytes of a webhook, with several secrets while one is
//! being rotated. Timestamps are judged by this machine's clock, as there must be an answer before the
//! database is asked anything; the tolerance is what absorbs its error.

use hmac::{Hmac, Mac as _};
use http::{HeaderMap, HeaderName};
use sha2::Sha256;
use standardwebhooks::{HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook, WebhookError};
use subtle::ConstantTimeEq as _;

use super::event::MOST_ID_CHARS;

/// How far a signature's timestamp may lie from now, in either direction (Stripe's and Standard Webhooks'
/// own default).
pub const TOLERANCE_SECONDS: u64 = 300;
/// Longer headers are absurd: room for some dozens of signatures.
const MOST_HEADER_BYTES: usize = 4096;
const STRIPE_HEADER: &str = "stripe-signature";

/// Why a webhook is not believed. No variant holds a secret, a signature or a part of the body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureFault {
    /// A header that the scheme needs is not there.
    #[error("the header {0} is missing")]
    Missing(&'static str),
    /// A header stands there more than once, and they could be read in two ways.
    #[error("the header {0} stands there more than once")]
    Repeated(&'static str),
    /// A header is too long, not ASCII, or not of the scheme's form.
    #[error("the header {0} is not of the form that the scheme describes")]
    Malformed(&'static str),
    /// The timestamp is more than [`TOLERANCE_SECONDS`] from now.
    #[error("the signature's timestamp is more than {TOLERANCE_SECONDS} seconds from now")]
    Stale,
    /// No signature fits the body under any of the secrets; also where there is no secret at all, so that
    /// nobody learns which shops exist.
    #[error("no signature fits the body")]
    Mismatch,
}

/// Verifies Stripe's scheme: `Stripe-Signature: t=SECONDS,v1=HEX[,v1=HEX…]`, each `v1` being the
/// HMAC-SHA256 of `t`, a full stop and the body, under the whole secret (`whsec_` included). One `v1` under
/// one of `secrets` is enough. Other schemes (`v0`) prove nothing.
///
/// Our own over hmac, sha2 and subtle: the library that is kept (async-stripe-webhook 1.0) takes one secret
/// and a decoded string, and parses the event in the same call, so that a type or an API version which it
/// does not know could not be stored.
///
/// # Errors
/// Why it is not believed.
pub fn verify_stripe(headers: &HeaderMap, body: &[u8], secrets: &[String]) -> Result<(), SignatureFault> {
    verify_stripe_at(now(), headers, body, secrets)
}

fn verify_stripe_at(now: i64, headers: &HeaderMap, body: &[u8], secrets: &[String]) -> Result<(), SignatureFault> {
    let malformed = || SignatureFault::Malformed(STRIPE_HEADER);
    let mut timestamp = None;
    let mut signatures = Vec::new();
    for item in only(headers, STRIPE_HEADER)?.split(',') {
        match item.split_once('=').ok_or_else(malformed)? {
            ("t", t) if timestamp.is_some() || t.is_empty() => return Err(malformed()),
            ("t", t) => timestamp = Some(t),
            // One that is no HMAC at all can fit nothing, and does not spoil the others.
            ("v1", hex) => signatures.extend(hex::decode(hex).ok().filter(|bytes| bytes.len() == 32)),
            _ => {}
        }
    }
    let timestamp = timestamp.ok_or_else(malformed)?;
    check_fresh(now, seconds(timestamp).ok_or_else(malformed)?)?;
    let mut fits = false;
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes a key of any length");
        mac.update(timestamp.as_bytes());
        mac.update(b".");
        mac.update(body);
        let expected = mac.finalize().into_bytes();
        for signature in &signatures {
            fits |= bool::from(signature.as_slice().ct_eq(expected.as_slice()));
        }
    }
    if fits { Ok(()) } else { Err(SignatureFault::Mismatch) }
}

/// Verifies the Standard Webhooks scheme (headers `webhook-id`, `webhook-timestamp`, `webhook-signature`)
/// under any of `secrets` (base64, with or without `whsec_`), and gives the event's id.
///
/// # Errors
/// Why it is not believed.
pub fn verify_standard(headers: &HeaderMap, body: &[u8], secrets: &[String]) -> Result<String, SignatureFault> {
    let id = only(headers, HEADER_WEBHOOK_ID)?;
    if id.is_empty() || id.len() > MOST_ID_CHARS {
        return Err(SignatureFault::Malformed(HEADER_WEBHOOK_ID));
    }
    only(headers, HEADER_WEBHOOK_SIGNATURE)?;
    // The library subtracts whatever number stands there, which overflows for some of them.
    let timestamp = seconds(only(headers, HEADER_WEBHOOK_TIMESTAMP)?);
    check_fresh(now(), timestamp.ok_or(SignatureFault::Malformed(HEADER_WEBHOOK_TIMESTAMP))?)?;
    // `whsec_` alone would be the empty key, under which anyone can sign.
    for secret in secrets.iter().filter(|secret| !secret.trim_start_matches("whsec_").is_empty()) {
        match Webhook::new(secret).and_then(|webhook| webhook.verify(body, headers)) {
            Ok(()) => return Ok(id.to_owned()),
            Err(WebhookError::InvalidSecret(_)) => {
                tracing::warn!("a standard webhook secret is not base64 and verifies nothing");
            }
            Err(_) => {}
        }
    }
    Err(SignatureFault::Mismatch)
}

fn now() -> i64 {
    chrono::Utc::now().timestamp()
}

fn check_fresh(now: i64, timestamp: i64) -> Result<(), SignatureFault> {
    if now.abs_diff(timestamp) <= TOLERANCE_SECONDS { Ok(()) } else { Err(SignatureFault::Stale) }
}

/// Digits only: no sign, no blank, at most what an i64 holds.
fn seconds(text: &str) -> Option<i64> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// The value of a header that must stand there once, in visible ASCII.
fn only<'h>(headers: &'h HeaderMap, name: &'static str) -> Result<&'h str, SignatureFault> {
    let mut values = headers.get_all(HeaderName::from_static(name)).iter();
    let value = values.next().ok_or(SignatureFault::Missing(name))?;
    if values.next().is_some() {
        return Err(SignatureFault::Repeated(name));
    }
    if value.len() > MOST_HEADER_BYTES {
        return Err(SignatureFault::Malformed(name));
    }
    value.to_str().map_err(|_| SignatureFault::Malformed(name))
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;
