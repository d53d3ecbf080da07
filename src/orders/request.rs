//! What a request about an order may say. Everything is checked before anything is written, and every
//! fault is named.

mod endings;
mod line;
#[cfg(test)]
mod tests;

pub use endings::{Cancel, Extend, Release, cancel, extend, release};

use serde_json::Value;

pub use crate::body::BodyFault;
use crate::body::{Controls, Faults, Fields};

/// The most lines of an order.
pub const MOST_LINES: usize = 100;
/// The longest hold, in seconds: a day.
pub const MOST_HOLD_SECONDS: i64 = 86_400;
/// The longest wait for stock, in seconds: a day.
const MOST_WAIT_SECONDS: i64 = 86_400;
const MOST_REFERENCE_CHARS: usize = 255;
const MOST_BUYER_CHARS: usize = 200;
/// The most that can be paid, in the currency's minor unit: far above any price, far below 2^53.
const MOST_AMOUNT: i64 = 1_000_000_000_000_000;

/// Checks the body of an order (or of the question whether it could be had) and gives its lines,
/// normalised: `[{"asset": {Requirement}, "quantity": n}, {"sku": …, "locations": […] or null, "split": bool,
/// "quantity": n}, …]`.
///
/// Null is as good as leaving a field out where answers show null (`reference`, `buyer`, `vendor`), and a
/// fault everywhere else.
///
/// # Errors
/// What does not fit.
pub fn check(body: &Value) -> Result<Value, Vec<BodyFault>> {
    const KNOWN: &[&str] = &["reference", "lines", "hold_seconds", "payment", "metadata", "buyer", "wait_seconds"];
    let mut faults = Faults::of(body);
    let mut lines = Vec::new();
    if let Some(fields) = faults.object(body, "", KNOWN) {
        check_header(&fields, &mut faults);
        if let Some(value) = fields.require("lines", &mut faults) {
            lines = line::all(value, &fields.pointer("lines"), &mut faults);
        }
    }
    faults.or(lines.into())
}

fn check_header(fields: &Fields<'_>, faults: &mut Faults) {
    if let Some(value) = fields.given("reference") {
        faults.text(value, &fields.pointer("reference"), 1..=MOST_REFERENCE_CHARS, Controls::Refused);
    }
    if let Some(value) = fields.given("buyer") {
        faults.text(value, &fields.pointer("buyer"), 1..=MOST_BUYER_CHARS, Controls::Refused);
    }
    if let Some(value) = fields.get("hold_seconds") {
        faults.whole(value, &fields.pointer("hold_seconds"), 1..=MOST_HOLD_SECONDS);
    }
    if let Some(value) = fields.get("wait_seconds") {
        faults.whole(value, &fields.pointer("wait_seconds"), 0..=MOST_WAIT_SECONDS);
    }
    if let Some(value) = fields.get("metadata") {
        faults.map(value, &fields.pointer("metadata"));
    }
    if let Some(value) = fields.get("payment") {
        check_payment(value, &fields.pointer("payment"), faults);
    }
}

fn check_payment(value: &Value, at: &str, faults: &mut Faults) {
    let Some(fields) = faults.object(value, at, &["amount", "currency"]) else { return };
    if let Some(amount) = fields.require("amount", faults) {
        faults.whole(amount, &fields.pointer("amount"), 0..=MOST_AMOUNT);
    }
    if let Some(currency) = fields.require("currency", faults) {
        let code = currency.as_str().unwrap_or_default();
        if code.len() != 3 || !code.bytes().all(|b| b.is_ascii_uppercase()) {
            faults.add(fields.pointer("currency"), "must be three upper-case letters (ISO 4217), such as EUR");
        }
    }
}
