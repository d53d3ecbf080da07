//! Cancel, extend and release over real HTTP: what each answers in every state of an order.

use serde_json::{Value, json};

use crate::http::{Answer, Web, one_machine, send};
use onehold::{allocator, convert};

/// A web process and one machine.
async fn with_a_machine() -> Web {
    let web = Web::start().await;
    web.run("insert into onehold.assets (shop_id, key, category, location) values (1, 'm-1', 'box', 'BER')").await;
    web
}

/// Places an order for the machine and reserves it, as the worker does.
async fn reserved(web: &Web, key: &str) -> String {
    let id = web.placed(key).await;
    let outcome = allocator::run(&web.db, 1, id.parse().unwrap()).await.unwrap();
    assert_eq!(outcome, allocator::Outcome::Reserved);
    id
}

/// As [`reserved`], and pays for it, as the convert job does.
async fn converted(web: &Web, key: &str) -> String {
    let id = reserved(web, key).await;
    web.run(&format!(
        "insert into onehold.payment_events (shop_id, provider, event_id, type, effect, order_ref, payload)
         values (1, 'standard', 'evt-{key}', 'payment.succeeded', 'succeeded', '{id}', '{{}}')"
    ))
    .await;
    convert::apply(&web.db, 1, "standard", &format!("evt-{key}")).await.unwrap();
    id
}

async fn end(web: &Web, id: &str, how: &str, body: Value) -> Answer {
    send(web.post(&format!("/v1/orders/{id}/{how}")).json(&body)).await
}

#[tokio::test]
async fn a_cancelled_order_holds_nothing_and_a_second_cancel_changes_nothing() {
    let web = with_a_machine().await;
    let id = reserved(&web, "k").await;
    let first = end(&web, &id, "cancel", json!({"reason": "changed their mind"})).await;
    assert_eq!((first.status.as_u16(), &first.body["status"]), (200, &json!("cancelled")));
    assert_eq!(first.body["lines"][0]["reservations"][0]["state"], "cancelled");
    let before = web.written().await;
    let second = end(&web, &id, "cancel", json!({})).await;
    assert_eq!((second.status.as_u16(), &second.body), (200, &first.body));
    // A body may be left out.
    assert_eq!(send(web.post(&format!("/v1/orders/{id}/cancel"))).await.status, 200);
    assert_eq!(web.written().await, before);
    let events = send(web.get(&format!("/v1/orders/{id}/events"))).await.body;
    let last = events["data"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["kind"], &last["actor"]), (&json!("cancelled"), &json!("api:bootstrap")));
    assert_eq!(last["detail"]["reason"], "changed their mind");
    reserved(&web, "next").await;
}

#[tokio::test]
async fn a_hold_is_prolonged_while_it_lives() {
    let web = with_a_machine().await;
    let id = reserved(&web, "k").await;
    let deadline = async || {
        let query = format!(
            "select extract(epoch from expires_at - clock_timestamp())::bigint
                             from onehold.reservations where order_id = '{id}'"
        );
        web.number(&query).await
    };
    assert_eq!(end(&web, &id, "extend", json!({"hold_seconds": 1_800})).await.status, 200);
    assert!((1_790..=1_800).contains(&deadline().await));
    let shorter = end(&web, &id, "extend", json!({"hold_seconds": 1})).await;
    assert_eq!((shorter.status.as_u16(), &shorter.body["status"]), (200, &json!("reserved")));
    assert!((1_700..=1_800).contains(&deadline().await), "never earlier than it was");
    let before = web.written().await;
    for bad in [json!({}), json!({"hold_seconds": 0}), json!({"hold_seconds": 86_401}), json!({"hold_seconds": "1"})] {
        assert_eq!(end(&web, &id, "extend", bad).await.problem(), (422, "invalid_body", vec!["/hold_seconds"]));
    }
    web.run("update onehold.reservations set expires_at = clock_timestamp() - interval '1 second'").await;
    assert_eq!(end(&web, &id, "extend", json!({"hold_seconds": 60})).await.code(), (409, "not_held"));
    assert_eq!(web.written().await, before);
    let placed = web.placed("placed only").await;
    assert_eq!(end(&web, &placed, "extend", json!({"hold_seconds": 60})).await.code(), (409, "not_held"));
}

#[tokio::test]
async fn a_sold_order_is_released_not_cancelled() {
    let web = with_a_machine().await;
    let id = converted(&web, "k").await;
    assert_eq!(end(&web, &id, "cancel", json!({})).await.code(), (409, "already_converted"));
    assert_eq!(end(&web, &id, "extend", json!({"hold_seconds": 60})).await.code(), (409, "not_held"));
    let bad = end(&web, &id, "release", json!({"assets": "lost", "why": 1})).await;
    assert_eq!(bad.problem(), (422, "invalid_body", vec!["/why", "/assets"]));
    let released = end(&web, &id, "release", json!({"reason": "returned", "assets": "maintenance"})).await;
    assert_eq!((released.status.as_u16(), &released.body["status"]), (200, &json!("released")));
    assert_eq!(web.number("select count(*) from onehold.assets where status = 'maintenance'").await, 1);
    let before = web.written().await;
    assert_eq!(end(&web, &id, "release", json!({})).await.code(), (409, "not_converted"));
    assert_eq!(end(&web, &id, "cancel", json!({})).await.code(), (409, "already_converted"));
    assert_eq!(web.written().await, before);
}

#[tokio::test]
async fn what_holds_nothing_is_not_released() {
    let web = with_a_machine().await;
    let id = reserved(&web, "k").await;
    assert_eq!(end(&web, &id, "release", json!({})).await.code(), (409, "not_converted"));
    let order = send(web.get(&format!("/v1/orders/{id}"))).await.body;
    assert_eq!(
        (&order["status"], &order["lines"][0]["reservations"][0]["state"]),
        (&json!("reserved"), &json!("held"))
    );
    assert_eq!(order["lines"][0]["asset"], one_machine()["lines"][0]["asset"]);
}
