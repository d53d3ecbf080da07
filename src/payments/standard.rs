//! Events in the Standard Webhooks scheme: `{"type", "data": {"order_id", "payment_id", "amount", "currency"}}`.

use super::Effect;
use super::event::{EventFault, Fields, MOST_REFERENCE_CHARS, PaymentEvent};

pub(super) fn parse(event_id: &str, root: &Fields<'_>) -> Result<PaymentEvent, EventFault> {
    let kind = root.kind()?;
    let effect = match kind.as_str() {
        "payment.succeeded" => Effect::Succeeded,
        "payment.failed" => Effect::Failed,
        "payment.refunded" => Effect::Refunded,
        "payment.disputed" => Effect::Disputed,
        _ => Effect::None,
    };
    let event_id = event_id.to_owned();
    if effect == Effect::None {
        return Ok(PaymentEvent {
            event_id,
            kind,
            effect,
            order_ref: None,
            payment_id: None,
            amount: None,
            currency: None,
        });
    }
    // The shape of `data` is promised by us, so a sender that does not keep it is told so at once, rather
    // than paid money being kept under no order.
    let data = root.object("data", "/data")?;
    Ok(PaymentEvent {
        event_id,
        kind,
        effect,
        order_ref: Some(data.required_text("order_id", MOST_REFERENCE_CHARS)?),
        payment_id: data.text("payment_id", MOST_REFERENCE_CHARS)?,
        amount: data.amount("amount")?,
        currency: data.currency("currency")?,
    })
}

#[cfg(test)]
mod tests {
    use crate::payments::Effect;
    use crate::payments::Provider::Standard;
    use crate::payments::event::{EventFault, parse};

    #[test]
    fn a_succeeded_payment_names_its_order_amount_and_currency() {
        let body = br#"{"type":"payment.succeeded","timestamp":"2026-01-01T00:00:00Z",
            "data":{"order_id":"R-1","payment_id":"p-1","amount":19900,"currency":"eur"}}"#;
        let event = parse(Standard, "evt-1", body).unwrap();
        assert_eq!(event.event_id, "evt-1");
        assert_eq!(event.kind, "payment.succeeded");
        assert_eq!(event.effect, Effect::Succeeded);
        assert_eq!(event.order_ref.as_deref(), Some("R-1"));
        assert_eq!(event.payment_id.as_deref(), Some("p-1"));
        assert_eq!(event.amount, Some(19900));
        assert_eq!(event.currency.as_deref(), Some("EUR"));
    }

    #[test]
    fn failed_and_refunded_are_known_and_anything_else_has_no_effect() {
        let effect = |kind: &str| {
            let body = format!(r#"{{"type":"{kind}","data":{{"order_id":"R-1"}}}}"#);
            parse(Standard, "e", body.as_bytes()).unwrap().effect
        };
        assert_eq!(effect("payment.failed"), Effect::Failed);
        assert_eq!(effect("payment.refunded"), Effect::Refunded);
        assert_eq!(effect("payment.disputed"), Effect::Disputed);
        assert_eq!(effect("payment.Succeeded"), Effect::None);
        assert_eq!(parse(Standard, "e", br#"{"type":"x"}"#).unwrap().effect, Effect::None);
    }

    #[test]
    fn what_does_not_fit_is_named_by_its_pointer() {
        let pointer = |body: &str| match parse(Standard, "e", body.as_bytes()).unwrap_err() {
            EventFault::Unfit { pointer, .. } => pointer,
            other => panic!("{other}"),
        };
        assert_eq!(pointer("{}"), "/type");
        assert_eq!(pointer(r#"{"type":5}"#), "/type");
        assert_eq!(pointer(r#"{"type":"payment.failed"}"#), "/data");
        let data = |data: &str| pointer(&format!(r#"{{"type":"payment.succeeded","data":{data}}}"#));
        assert_eq!(data("[]"), "/data");
        assert_eq!(data("{}"), "/data/order_id");
        assert_eq!(data(r#"{"order_id":""}"#), "/data/order_id");
        assert_eq!(data(r#"{"order_id":"a\u0000b"}"#), "/data/order_id");
        assert_eq!(data(&format!(r#"{{"order_id":"{}"}}"#, "x".repeat(501))), "/data/order_id");
        assert_eq!(data(r#"{"order_id":"a","payment_id":1}"#), "/data/payment_id");
        for amount in ["-1", "1.5", "\"2\"", "9223372036854775808", "true"] {
            assert_eq!(data(&format!(r#"{{"order_id":"a","amount":{amount}}}"#)), "/data/amount");
        }
        assert_eq!(data(r#"{"order_id":"a","currency":"EURO"}"#), "/data/currency");
        assert_eq!(data(r#"{"order_id":"a","currency":"€"}"#), "/data/currency");
    }

    #[test]
    fn a_body_that_is_no_json_object_is_told_apart() {
        assert_eq!(parse(Standard, "e", b"{\"type\":\"\xff\"}").unwrap_err(), EventFault::NotUtf8);
        assert_eq!(parse(Standard, "e", b"{\"type\":").unwrap_err(), EventFault::NotJson);
        assert_eq!(parse(Standard, "e", b"").unwrap_err(), EventFault::NotJson);
        assert_eq!(parse(Standard, "e", b"[1]").unwrap_err(), EventFault::NotAnObject);
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert_eq!(parse(Standard, "e", deep.as_bytes()).unwrap_err(), EventFault::NotAnObject);
    }
}
