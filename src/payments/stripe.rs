//! Stripe's events. Field names are those of Stripe's API reference for the objects Payment Intent,
//! Checkout Session and Charge.

use serde_json::Value;

use super::Effect;
use super::event::{EventFault, Fields, MOST_REFERENCE_CHARS, PaymentEvent};

const METADATA_FIELD: &str = "onehold_order";

/// What an event's type says, before the object is looked at: its effect, and where its amount stands.
fn meaning(kind: &str) -> Option<(Effect, &'static str)> {
    Some(match kind {
        "payment_intent.succeeded" => (Effect::Succeeded, "amount_received"),
        "checkout.session.completed" | "checkout.session.async_payment_succeeded" => {
            (Effect::Succeeded, "amount_total")
        }
        "checkout.session.expired" => (Effect::Abandoned, "amount_total"),
        "payment_intent.canceled" => (Effect::Abandoned, "amount"),
        "payment_intent.payment_failed" => (Effect::Failed, "amount"),
        "charge.refunded" => (Effect::Refunded, "amount_refunded"),
        "charge.dispute.created" => (Effect::Disputed, "amount"),
        _ => return None,
    })
}

pub(super) fn parse(root: &Fields<'_>) -> Result<PaymentEvent, EventFault> {
    let event_id = root.event_id()?;
    let kind = root.kind()?;
    let Some((effect, amount)) = meaning(&kind) else {
        let effect = Effect::None;
        return Ok(PaymentEvent {
            event_id,
            kind,
            effect,
            order_ref: None,
            payment_id: None,
            amount: None,
            currency: None,
        });
    };
    let object = root.object("data", "/data")?.object("object", "/data/object")?;
    // A session that completed with a delayed method (a bank transfer) is not paid yet; its own
    // `async_payment_succeeded` follows.
    let unpaid =
        kind == "checkout.session.completed" && object.value("payment_status").and_then(Value::as_str) != Some("paid");
    Ok(PaymentEvent {
        effect: if unpaid { Effect::None } else { effect },
        order_ref: order_ref(&object),
        payment_id: payment_id(&object)?,
        amount: object.amount(amount)?,
        currency: object.currency("currency")?,
        event_id,
        kind,
    })
}

/// The shop's own fields, which may hold anything: what is no text names no order, and money is not refused for it.
fn order_ref(object: &Fields<'_>) -> Option<String> {
    let metadata = object.object("metadata", "/data/object/metadata").ok();
    let named = metadata.and_then(|metadata| metadata.name(METADATA_FIELD, MOST_REFERENCE_CHARS));
    named.or_else(|| object.name("client_reference_id", MOST_REFERENCE_CHARS))
}

/// The payment intent's id, whichever object this is, so that a session's completion, its intent's success
/// and its charge's refund are known to be about one payment. An expanded intent is an object.
fn payment_id(object: &Fields<'_>) -> Result<Option<String>, EventFault> {
    match object.value("payment_intent") {
        Some(Value::Object(_)) => {
            object.object("payment_intent", "/data/object/payment_intent")?.text("id", MOST_REFERENCE_CHARS)
        }
        Some(_) => object.text("payment_intent", MOST_REFERENCE_CHARS),
        None => object.text("id", MOST_REFERENCE_CHARS),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::payments::Effect;
    use crate::payments::Provider::Stripe;
    use crate::payments::event::{EventFault, PaymentEvent, parse};

    fn event(kind: &str, object: &Value) -> PaymentEvent {
        let body = json!({"id": "evt_1", "object": "event", "type": kind, "data": {"object": object}});
        parse(Stripe, "", body.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn an_intent_and_its_session_and_its_refund_share_the_payment_id() {
        let intent = event(
            "payment_intent.succeeded",
            &json!({"id": "pi_1", "amount": 500, "amount_received": 400, "currency": "eur",
                "metadata": {"onehold_order": "R-1"}}),
        );
        assert_eq!(intent.effect, Effect::Succeeded);
        assert_eq!((intent.event_id.as_str(), intent.kind.as_str()), ("evt_1", "payment_intent.succeeded"));
        assert_eq!(intent.order_ref.as_deref(), Some("R-1"));
        assert_eq!((intent.amount, intent.currency.as_deref()), (Some(400), Some("EUR")));

        let session = event(
            "checkout.session.completed",
            &json!({"id": "cs_1", "payment_intent": "pi_1", "payment_status": "paid", "amount_total": 400,
                "currency": "eur", "metadata": {}, "client_reference_id": "R-1"}),
        );
        assert_eq!(session.effect, Effect::Succeeded);
        assert_eq!(session.order_ref.as_deref(), Some("R-1"));
        assert_eq!(session.amount, Some(400));

        let refund = event(
            "charge.refunded",
            &json!({"id": "ch_1", "payment_intent": {"id": "pi_1"}, "amount": 400, "amount_refunded": 100,
                "currency": "eur", "metadata": {}}),
        );
        assert_eq!(refund.effect, Effect::Refunded);
        assert_eq!((refund.order_ref, refund.amount), (None, Some(100)));
        for payment in [intent.payment_id, session.payment_id, refund.payment_id] {
            assert_eq!(payment.as_deref(), Some("pi_1"));
        }
    }

    #[test]
    fn a_session_converts_only_when_it_is_paid() {
        for (status, effect) in [
            (json!("paid"), Effect::Succeeded),
            (json!("unpaid"), Effect::None),
            (json!("no_payment_required"), Effect::None),
            (json!(null), Effect::None),
        ] {
            let object = json!({"id": "cs_1", "payment_status": status, "client_reference_id": "R-1"});
            assert_eq!(event("checkout.session.completed", &object).effect, effect, "{status}");
        }
        let later = json!({"id": "cs_1", "payment_status": "unpaid", "client_reference_id": "R-1"});
        assert_eq!(event("checkout.session.async_payment_succeeded", &later).effect, Effect::Succeeded);
    }

    #[test]
    fn metadata_goes_before_the_client_reference() {
        let object = json!({"id": "cs_1", "metadata": {"onehold_order": "R-1"}, "client_reference_id": "R-2"});
        assert_eq!(event("checkout.session.expired", &object).order_ref.as_deref(), Some("R-1"));
        let object = json!({"id": "cs_1", "metadata": {"onehold_order": ""}, "client_reference_id": "R-2"});
        assert_eq!(event("checkout.session.expired", &object).order_ref.as_deref(), Some("R-2"));
    }

    #[test]
    fn what_is_no_text_names_no_order() {
        for metadata in [json!([]), json!({"onehold_order": 5}), json!({"onehold_order": "x".repeat(501)})] {
            let object = json!({"id": "pi_1", "metadata": metadata, "client_reference_id": "R-2"});
            assert_eq!(event("payment_intent.succeeded", &object).order_ref.as_deref(), Some("R-2"), "{object}");
            let object = json!({"id": "pi_1", "metadata": metadata, "client_reference_id": 7});
            assert_eq!(event("payment_intent.succeeded", &object).order_ref, None, "{object}");
        }
    }

    #[test]
    fn an_end_without_payment_abandons_and_a_failed_attempt_does_not() {
        let object = json!({"id": "x_1", "metadata": null});
        assert_eq!(event("checkout.session.expired", &object).effect, Effect::Abandoned);
        assert_eq!(event("payment_intent.canceled", &object).effect, Effect::Abandoned);
        assert_eq!(event("payment_intent.payment_failed", &object).effect, Effect::Failed);
        assert_eq!(event("invoice.created", &json!("not even an object")).effect, Effect::None);
    }

    #[test]
    fn what_does_not_fit_is_named_by_its_pointer() {
        let pointer = |body: Value| match parse(Stripe, "", body.to_string().as_bytes()).unwrap_err() {
            EventFault::Unfit { pointer, .. } => pointer,
            other => panic!("{other}"),
        };
        assert_eq!(pointer(json!({"type": "a"})), "/id");
        assert_eq!(pointer(json!({"id": "", "type": "a"})), "/id");
        assert_eq!(pointer(json!({"id": "evt_1"})), "/type");
        assert_eq!(pointer(json!({"id": "evt\u{0}", "type": "a"})), "/id");
        assert_eq!(pointer(json!({"id": "x".repeat(256), "type": "a"})), "/id");
        let about = |object: Value| {
            pointer(json!({"id": "evt_1", "type": "payment_intent.succeeded", "data": {"object": object}}))
        };
        assert_eq!(about(json!([])), "/data/object");
        assert_eq!(about(json!({"id": "pi_1", "amount_received": "5"})), "/data/object/amount_received");
    }
}
