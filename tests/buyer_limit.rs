//! How much one buyer may hold at a time.

use onehold::allocator::{self, Kind, Outcome};
use onehold::orders::{self, Status};
use onehold::shops::{self, Shop};
use serde_json::{Value, json};
use sqlx::types::Uuid;

use crate::scene::{SHOP, Scene};
use crate::stock_stage::{held, stocked};

fn main_shop() -> Shop {
    Shop { id: SHOP, name: "main".to_owned() }
}

async fn limit(scene: &Scene, most: Option<i32>) {
    assert!(shops::limit_buyers(&scene.db, &main_shop(), most).await.unwrap());
    assert_eq!(shops::buyer_limit(&scene.db, &main_shop()).await.unwrap(), most);
}

fn of(buyer: &str, quantity: i32) -> Value {
    json!({"buyer": buyer, "lines": [{"sku": "PSU", "quantity": quantity}]})
}

fn is_limit(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Refused(r) if r.kind == Kind::Limit && r.retry_after_seconds.is_none())
}

async fn order(scene: &Scene, key: &str, body: Value) -> (Uuid, Outcome) {
    let id = scene.place(key, body).await;
    (id, scene.reserve(id).await)
}

#[tokio::test]
async fn a_buyer_holds_as_much_as_the_shop_allows_each_asset_and_unit_counted() {
    let scene = stocked(&[("PSU", "BER", 100)]).await;
    scene.add_machines(3).await;
    assert_eq!(order(&scene, "k-0", of("ann", 10)).await.1, Outcome::Reserved, "unlimited at first");
    limit(&scene, Some(3)).await;
    assert!(is_limit(&order(&scene, "k-1", of("ann", 1)).await.1), "what is held stays held, and counts");
    let (first, outcome) = order(&scene, "k-2", of("bob", 2)).await;
    assert_eq!(outcome, Outcome::Reserved);
    let mut mixed = of("bob", 1);
    mixed["lines"].as_array_mut().unwrap().push(json!({"asset": {"category": "box"}, "quantity": 1}));
    let (refused, outcome) = order(&scene, "k-3", mixed).await;
    assert!(is_limit(&outcome), "two and two are four");
    let refusal = scene.order(refused).await.refusal.unwrap();
    assert_eq!(refusal, json!({"kind": "limit", "line": 1, "retry_after_seconds": null, "reasons": []}));
    assert_eq!(order(&scene, "k-4", of("bob", 1)).await.1, Outcome::Reserved);
    assert!(is_limit(&order(&scene, "k-5", of("bob", 1)).await.1));
    // Others, and who says not who he is, are not concerned.
    assert_eq!(order(&scene, "k-6", of("cem", 3)).await.1, Outcome::Reserved);
    assert!(is_limit(&order(&scene, "k-7", of("dan", 4)).await.1), "too much in one order");
    assert_eq!(order(&scene, "k-8", json!({"lines": [{"sku": "PSU", "quantity": 9}]})).await.1, Outcome::Reserved);
    // What lapses, is given up or bought counts no more.
    scene.lapse(first).await;
    assert_eq!(order(&scene, "k-9", of("bob", 2)).await.1, Outcome::Reserved, "lapsed, swept or not");
    limit(&scene, None).await;
    assert_eq!(order(&scene, "k-10", of("bob", 9)).await.1, Outcome::Reserved);
    scene.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn orders_of_one_buyer_at_once_never_exceed_the_limit_together() {
    let scene = stocked(&[("PSU", "BER", 100)]).await;
    limit(&scene, Some(5)).await;
    let mut ids = Vec::new();
    for n in 0..12 {
        ids.push(scene.place(&format!("ann-{n}"), of("ann", 2)).await);
    }
    let outcomes = scene.at_once(ids, |db, id| async move { allocator::run(&db, SHOP, id).await.unwrap() }).await;
    assert_eq!(outcomes.iter().filter(|o| **o == Outcome::Reserved).count(), 2, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|o| is_limit(o)).count(), 10, "{outcomes:?}");
    assert_eq!(held(&scene, "PSU").await, 4);
    scene.verify().await;
}

/// Asking to wait does not help: stock that comes free is not what is lacking.
#[tokio::test]
async fn who_holds_too_much_is_refused_at_once_though_he_would_wait() {
    let scene = stocked(&[("PSU", "BER", 10)]).await;
    limit(&scene, Some(1)).await;
    let mut patient = of("ann", 2);
    patient["wait_seconds"] = 60.into();
    assert!(is_limit(&order(&scene, "k", patient).await.1));
}

/// His turn passes to the next while he holds too much, and he goes on waiting.
#[tokio::test]
async fn a_waiting_order_is_passed_over_while_its_buyer_holds_too_much() {
    let scene = stocked(&[("PSU", "BER", 2), ("FAN", "BER", 1)]).await;
    limit(&scene, Some(1)).await;
    let (first, _) = order(&scene, "first", json!({"lines": [{"sku": "PSU", "quantity": 2}]})).await;
    let patient = |mut body: Value| {
        body["wait_seconds"] = 600.into();
        body
    };
    let (ann, outcome) = order(&scene, "ann", patient(of("ann", 1))).await;
    assert_eq!(outcome, Outcome::Waiting);
    let (next, outcome) = order(&scene, "next", patient(of("bob", 1))).await;
    assert_eq!(outcome, Outcome::Waiting);
    let fan = order(&scene, "fan", json!({"buyer": "ann", "lines": [{"sku": "FAN", "quantity": 1}]})).await;
    assert_eq!(fan.1, Outcome::Reserved);
    orders::cancel(&scene.db, SHOP, first, "api:t", None).await.unwrap();
    assert_eq!(scene.order(next).await.status, Status::Reserved);
    assert!(scene.order(ann).await.waiting);
    assert_eq!(scene.reserve(ann).await, Outcome::Waiting, "its own job does not refuse it either");
    orders::cancel(&scene.db, SHOP, fan.0, "api:t", None).await.unwrap();
    assert_eq!(scene.reserve(ann).await, Outcome::Reserved);
    scene.verify().await;
}
