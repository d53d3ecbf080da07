//! A payment event, whoever sent it. The bytes are parsed after their signature was verified: what is
//! malformed here was sent by the provider, or by someone who knows the secret.

use serde_json::{Map, Value};

use super::{Effect, Provider, lenient, standard, stripe};

/// The most characters of an event's id or type.
pub const MOST_ID_CHARS: usize = 255;
/// The most characters of an order's id or reference, and of a payment's id. Stripe's metadata values end at 500.
pub const MOST_REFERENCE_CHARS: usize = 500;

/// What a provider's event says about an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentEvent {
    /// The provider's id of the event: the key under which it is kept once.
    pub event_id: String,
    /// The provider's own name for what happened.
    pub kind: String,
    /// What that means to the order.
    pub effect: Effect,
    /// The order's id or reference, as the provider gave it.
    pub order_ref: Option<String>,
    /// The provider's id of the payment; several events can share it.
    pub payment_id: Option<String>,
    /// In the currency's minor unit, 0 or more.
    pub amount: Option<i64>,
    /// Three upper-case letters (ISO 4217).
    pub currency: Option<String>,
}

/// Why a body is no event. No variant quotes the body, so that it can be logged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventFault {
    /// JSON is UTF-8; this is not.
    #[error("the body is not UTF-8")]
    NotUtf8,
    /// Truncated, or never JSON.
    #[error("the body is not JSON")]
    NotJson,
    /// JSON, but not an object.
    #[error("the body is not a JSON object")]
    NotAnObject,
    /// A field is missing or does not fit.
    #[error("{pointer}: {detail}")]
    Unfit {
        /// Where, as a JSON Pointer.
        pointer: String,
        /// What is wrong there.
        detail: &'static str,
    },
}

/// Reads `body` as an event of `provider`. `event_id` is the provider's id of the event where that stands
/// outside the body (Standard Webhooks: the header `webhook-id`); Stripe's stands in the body.
///
/// # Errors
/// A body that is no event of this provider. An event of a type that is not known is none of these: its
/// effect is [`Effect::None`].
pub fn parse(provider: Provider, event_id: &str, body: &[u8]) -> Result<PaymentEvent, EventFault> {
    let text = std::str::from_utf8(body).map_err(|_| EventFault::NotUtf8)?;
    let fields = lenient::read(text)?;
    let root = Fields { at: "", map: &fields };
    match provider {
        Provider::Stripe => stripe::parse(&root),
        Provider::Standard => standard::parse(event_id, &root),
    }
}

/// The fields of one object of a body, and where it stands there.
pub(super) struct Fields<'a> {
    at: &'static str,
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub(super) fn unfit(&self, name: &str, detail: &'static str) -> EventFault {
        EventFault::Unfit { pointer: format!("{}/{name}", self.at), detail }
    }

    /// A field that may be missing; null is missing.
    pub(super) fn value(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|v| !v.is_null())
    }

    /// An object that must be there; `at` is its own pointer.
    pub(super) fn object(&self, name: &str, at: &'static str) -> Result<Fields<'a>, EventFault> {
        let map = self.value(name).and_then(Value::as_object).ok_or_else(|| self.unfit(name, "must be an object"))?;
        Ok(Fields { at, map })
    }

    /// A string that may be missing or empty (which is missing), of at most `most` characters.
    pub(super) fn text(&self, name: &str, most: usize) -> Result<Option<String>, EventFault> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let text = value.as_str().ok_or_else(|| self.unfit(name, "must be a string"))?;
        if text.contains('\0') {
            return Err(self.unfit(name, "must not contain U+0000"));
        }
        if text.chars().nth(most).is_some() {
            return Err(self.unfit(name, "is too long"));
        }
        Ok(Some(text.to_owned()).filter(|t| !t.is_empty()))
    }

    /// A string that must be there.
    pub(super) fn required_text(&self, name: &str, most: usize) -> Result<String, EventFault> {
        self.text(name, most)?.ok_or_else(|| self.unfit(name, "is missing"))
    }

    /// A string where there is one that can be kept; whatever else stands there says nothing.
    pub(super) fn name(&self, name: &str, most: usize) -> Option<String> {
        self.text(name, most).ok().flatten()
    }

    /// The event's id. One that cannot be read whole would stand for others too.
    pub(super) fn event_id(&self) -> Result<String, EventFault> {
        let id = self.required_text("id", MOST_ID_CHARS)?;
        if id.contains(char::REPLACEMENT_CHARACTER) { Err(self.unfit("id", "cannot be read")) } else { Ok(id) }
    }

    /// The provider's name for what happened. One that is not known may be anything: it is kept as far as it can be.
    pub(super) fn kind(&self) -> Result<String, EventFault> {
        let value = self.value("type").ok_or_else(|| self.unfit("type", "is missing"))?;
        let text = value.as_str().ok_or_else(|| self.unfit("type", "must be a string"))?;
        if text.is_empty() {
            return Err(self.unfit("type", "is missing"));
        }
        let kept = text.chars().take(MOST_ID_CHARS).map(|c| if c == '\0' { char::REPLACEMENT_CHARACTER } else { c });
        Ok(kept.collect())
    }

    /// An amount in the currency's minor unit.
    pub(super) fn amount(&self, name: &str) -> Result<Option<i64>, EventFault> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let amount = value.as_i64().filter(|a| *a >= 0);
        amount.map(Some).ok_or_else(|| self.unfit(name, "must be a whole number of minor units, 0 or more"))
    }

    /// A currency, in upper case whatever it came in.
    pub(super) fn currency(&self, name: &str) -> Result<Option<String>, EventFault> {
        let Some(code) = self.text(name, MOST_ID_CHARS)? else { return Ok(None) };
        if code.len() == 3 && code.bytes().all(|b| b.is_ascii_alphabetic()) {
            Ok(Some(code.to_ascii_uppercase()))
        } else {
            Err(self.unfit(name, "must be three letters"))
        }
    }
}
