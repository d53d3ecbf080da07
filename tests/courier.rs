//! Outbound events: what is told, how often, in which order, and what a receiver can do to the courier.

use std::collections::BTreeSet;
use std::time::Duration;

use onehold::courier::{self, endpoints};
use onehold::db::Verdict;
use onehold::orders;
use serde_json::{Value, json};
use sqlx::types::Uuid;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::courier_crash::{in_the_way, until_someone_waits_in};
use crate::receiver::{Received, Receiver, Reply, ok};
use crate::scene::{SHOP, Scene, one_machine};
use crate::support::eventually;

const LIMIT: Duration = Duration::from_secs(40);

/// A courier of its own; it ends with this.
pub(crate) fn courier(scene: &Scene) -> DropGuard {
    let shutdown = CancellationToken::new();
    courier::start(scene.db.clone(), shutdown.clone(), Duration::ZERO).unwrap();
    shutdown.drop_guard()
}

/// Adds an endpoint of the shop at a receiver; gives its id and secret.
pub(crate) async fn endpoint(scene: &Scene, receiver: &Receiver) -> (Uuid, String) {
    let url = format!("{}/hook", receiver.base);
    match endpoints::add(&scene.db, SHOP, &url, true).await.unwrap() {
        endpoints::Added::New { id, secret } => (id, secret),
        endpoints::Added::Unusable(why) => panic!("{why}"),
    }
}

/// The endpoint's deliveries in this state.
pub(crate) async fn deliveries(scene: &Scene, endpoint: Uuid, state: &str) -> Vec<endpoints::Delivery> {
    endpoints::deliveries(&scene.db, SHOP, endpoint, Some(state), None, 200).await.unwrap().unwrap()
}

async fn until_there_are(scene: &Scene, endpoint: Uuid, state: &str, count: usize) -> Vec<endpoints::Delivery> {
    eventually(LIMIT, || async { deliveries(scene, endpoint, state).await.len() == count }).await;
    deliveries(scene, endpoint, state).await
}

/// Waits until there have been `count` attempts, and gives the only pending delivery.
async fn after_attempts(scene: &Scene, endpoint: Uuid, count: i64) -> endpoints::Delivery {
    let query = "select count(*) from onehold.delivery_attempts";
    eventually(LIMIT, || async { scene.number(query).await == count }).await;
    deliveries(scene, endpoint, "pending").await.remove(0)
}

/// The pause before the next attempt is over.
pub(crate) async fn pause_is_over(scene: &Scene) {
    scene.run("update onehold.deliveries set due_at = clock_timestamp() where state = 'pending'").await;
}

async fn cancel(scene: &Scene, id: Uuid) {
    orders::cancel(&scene.db, SHOP, id, "api:test", Some("changed their mind")).await.unwrap();
}

#[tokio::test]
async fn every_decision_is_told_once_signed_and_in_order() {
    let scene = Scene::with_machines(2).await;
    let mut receiver = Receiver::start(|_| ok()).await;
    let (endpoint, secret) = endpoint(&scene, &receiver).await;
    let body = json!({"reference": "R-1", "metadata": {"cart": "77"}, "lines": one_machine()["lines"]});
    let sold = scene.place("sold", body).await;
    scene.reserve(sold).await;
    scene.pay(sold, "evt-1").await;
    let other = scene.reserved("cancelled").await;
    cancel(&scene, other).await;
    let none = scene.place("refused", json!({"lines": [{"asset": {"category": "none"}, "quantity": 1}]})).await;
    scene.reserve(none).await;
    let lapsed = scene.reserved("lapsed").await;
    scene.lapse(lapsed).await;
    onehold::sweep::sweep(&scene.db).await.unwrap();

    let _courier = courier(&scene);
    until_there_are(&scene, endpoint, "delivered", 7).await;
    let told = receiver.rest();
    let of = |order: Uuid| -> Vec<String> {
        let of_order = |r: &&Received| r.json()["data"]["order_id"] == order.to_string();
        told.iter().filter(of_order).map(Received::kind).collect()
    };
    assert_eq!(of(sold), ["order.reserved", "order.converted"]);
    assert_eq!(of(other), ["order.reserved", "order.cancelled"]);
    assert_eq!(of(none), ["order.refused"]);
    assert_eq!(of(lapsed), ["order.reserved", "order.expired"]);
    assert_eq!(told.iter().map(|r| &r.id).collect::<BTreeSet<_>>().len(), 7, "each has an id of its own");
    for received in &told {
        assert!(received.is_signed_with(&secret) && received.path == "/hook", "{received:?}");
        assert!(!received.is_signed_with("whsec_b3RoZXI="));
        let at: chrono::DateTime<chrono::Utc> = received.json()["timestamp"].as_str().unwrap().parse().unwrap();
        assert!((chrono::Utc::now() - at).num_seconds() < 60);
    }
    let first = told.iter().find(|r| r.json()["data"]["order_id"] == sold.to_string()).unwrap().json();
    let data = &first["data"];
    assert_eq!((&data["reference"], &data["metadata"]), (&json!("R-1"), &json!({"cart": "77"})));
    let order = serde_json::to_value(scene.order(sold).await).unwrap();
    let deadline = |value: &Value| value.as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap();
    let held_until = deadline(&order["lines"][0]["reservations"][0]["expires_at"]);
    assert_eq!(deadline(&data["hold_expires_at"]), held_until);
    assert_eq!(data["detail"]["reservations"][0]["asset"], "m-01");
    assert_eq!(data["detail"]["reservations"][0]["reason"], Value::Null, "why stays inside");
    scene.verify().await;
}

#[tokio::test]
async fn what_is_rolled_back_is_not_told_and_neither_is_a_shop_without_an_endpoint() {
    let scene = Scene::with_machines(3).await;
    let events = "select count(*) from onehold.outbound_events";
    scene.reserved("before").await;
    scene.run("insert into onehold.shops (name) values ('other')").await;
    let receiver = Receiver::start(|_| ok()).await;
    let other_shop =
        i32::try_from(scene.number("select id::bigint from onehold.shops where name = 'other'").await).unwrap();
    endpoints::add(&scene.db, other_shop, &receiver.base, true).await.unwrap();
    let id = scene.reserved("elsewhere").await;
    assert_eq!(scene.number(events).await, 0, "another shop's endpoint is another shop's");

    endpoint(&scene, &receiver).await;
    let inside = scene
        .db
        .transaction("test", |mut tx| {
            Box::pin(async move {
                sqlx::query("select onehold.cancel_order('main', $1, 'no')").bind(id).execute(&mut *tx).await?;
                let told: i64 = sqlx::query_scalar(events).fetch_one(&mut *tx).await?;
                Ok(Verdict::Rollback(told))
            })
        })
        .await
        .unwrap();
    assert_eq!((inside, scene.number(events).await), (1, 0));
}

#[tokio::test]
async fn what_fails_is_tried_again_later_and_what_comes_after_it_waits() {
    let scene = Scene::with_machines(2).await;
    let mut receiver = Receiver::start(|_| Reply::Close).await;
    let (endpoint, _) = endpoint(&scene, &receiver).await;
    let id = scene.reserved("a").await;
    cancel(&scene, id).await;
    let _courier = courier(&scene);
    let elsewhere = Receiver::start(|_| ok()).await;
    let to = format!("location: {}/elsewhere\r\n", elsewhere.base);
    let failures: [(Reply, Option<u16>, f64); 4] = [
        (Reply::Close, None, 5.0),
        (Reply::Status(500, String::new()), Some(500), 300.0),
        (Reply::Status(302, to), Some(302), 1_800.0),
        (Reply::TenMegabytes, Some(500), 7_200.0),
    ];
    for (attempt, (reply, status, pause)) in (1..).zip(failures) {
        receiver.now(move |_| reply.clone());
        pause_is_over(&scene).await;
        assert_eq!(receiver.next().await.kind(), "order.reserved", "attempt {attempt}");
        let waits = after_attempts_of_first(&scene, endpoint, attempt).await;
        assert_eq!(waits.attempts[attempt - 1]["status"], json!(status));
        assert!(waits.attempts[attempt - 1]["error"].as_str().unwrap().len() < 1_300);
        let until = (waits.next_attempt_at.unwrap() - chrono::Utc::now()).as_seconds_f64();
        assert!((pause * 0.9 - 1.0..=pause * 1.2 + 1.0).contains(&until), "attempt {attempt}: {until}");
    }
    assert_eq!(*elsewhere.connections.lock().unwrap(), 0, "nobody is led elsewhere");
    assert!(*receiver.taken.lock().unwrap() < 8 << 20, "an answer is not read to its end");
    assert!(receiver.rest().is_empty());
    receiver.now(|_| ok());
    pause_is_over(&scene).await;
    until_there_are(&scene, endpoint, "delivered", 2).await;
    assert_eq!(receiver.rest().iter().map(Received::kind).collect::<Vec<_>>(), ["order.reserved", "order.cancelled"]);
}

/// The delivery of the order's first event, once it has been tried `count` times.
async fn after_attempts_of_first(scene: &Scene, endpoint: Uuid, count: usize) -> endpoints::Delivery {
    let query = "select count(*) from onehold.delivery_attempts";
    eventually(LIMIT, || async { scene.number(query).await == i64::try_from(count).unwrap() }).await;
    deliveries(scene, endpoint, "pending").await.into_iter().find(|d| d.kind == "order.reserved").unwrap()
}

#[tokio::test]
async fn a_receiver_that_hangs_is_left_after_fifteen_seconds_and_delays_nobody_else() {
    let scene = Scene::with_machines(3).await;
    let mut slow = Receiver::start(|_| Reply::Hang).await;
    let mut quick = Receiver::start(|_| ok()).await;
    let (slow_one, _) = endpoint(&scene, &slow).await;
    let (quick_one, _) = endpoint(&scene, &quick).await;
    let _courier = courier(&scene);
    scene.reserved("a").await;
    slow.next().await;
    quick.next().await;
    // The slow one is at it all the time.
    for key in ["b", "c"] {
        scene.reserved(key).await;
        quick.next().await;
    }
    until_there_are(&scene, quick_one, "delivered", 3).await;
    assert_eq!(scene.number("select count(*) from onehold.delivery_attempts where status is null").await, 0);
    let given = after_attempts(&scene, slow_one, 4).await;
    let took = given.attempts.as_array().and_then(|all| all.first()).map(|attempt| attempt["took_ms"].clone());
    let tried = deliveries(&scene, slow_one, "pending").await;
    let took = took.or_else(|| tried.iter().find_map(|d| d.attempts.get(0).map(|a| a["took_ms"].clone()))).unwrap();
    assert!((14_900..20_000).contains(&took.as_i64().unwrap()), "{took}");
}

#[tokio::test]
async fn gone_disables_and_what_was_pending_is_given_up() {
    let scene = Scene::with_machines(3).await;
    let mut receiver = Receiver::start(|_| Reply::Status(410, String::new())).await;
    let (endpoint, _) = endpoint(&scene, &receiver).await;
    let id = scene.reserved("a").await;
    cancel(&scene, id).await;
    let _courier = courier(&scene);
    until_there_are(&scene, endpoint, "given_up", 2).await;
    assert_eq!(receiver.rest().len(), 1);
    let listed = endpoints::list(&scene.db, SHOP).await.unwrap().remove(0);
    assert!(listed.disabled_at.is_some() && listed.disabled_because.unwrap().contains("410"));
    scene.reserved("b").await;
    assert_eq!(scene.number("select count(*) from onehold.outbound_events").await, 2, "nobody is there to be told");
}

#[tokio::test]
async fn retry_after_is_honoured() {
    let scene = Scene::with_machines(1).await;
    let receiver = Receiver::start(|_| Reply::Status(429, "retry-after: 600\r\n".into())).await;
    let (endpoint, _) = endpoint(&scene, &receiver).await;
    scene.reserved("a").await;
    let _courier = courier(&scene);
    let waits = after_attempts(&scene, endpoint, 1).await;
    let pause = (waits.next_attempt_at.unwrap() - chrono::Utc::now()).num_seconds();
    assert!((590..=600).contains(&pause), "{pause}");
}

#[tokio::test]
async fn after_the_last_attempt_it_is_given_up_and_the_next_goes() {
    let scene = Scene::with_machines(1).await;
    let mut receiver = Receiver::start(|_| Reply::Status(503, String::new())).await;
    let (endpoint, _) = endpoint(&scene, &receiver).await;
    let id = scene.reserved("a").await;
    let _courier = courier(&scene);
    for attempt in 1..10 {
        receiver.next().await;
        after_attempts(&scene, endpoint, attempt).await;
        pause_is_over(&scene).await;
    }
    receiver.next().await;
    until_there_are(&scene, endpoint, "given_up", 1).await;
    receiver.now(|_| ok());
    cancel(&scene, id).await;
    assert_eq!(until_there_are(&scene, endpoint, "delivered", 1).await[0].kind, "order.cancelled");
}

#[tokio::test]
async fn several_couriers_deliver_each_event_once_and_in_order() {
    let scene = Scene::with_machines(12).await;
    let mut receiver = Receiver::start(|_| ok()).await;
    let (endpoint, _) = endpoint(&scene, &receiver).await;
    let _couriers: Vec<_> = (0..4).map(|_| courier(&scene)).collect();
    for n in 0..12 {
        let id = scene.reserved(&format!("o-{n}")).await;
        cancel(&scene, id).await;
    }
    until_there_are(&scene, endpoint, "delivered", 24).await;
    let told = receiver.rest();
    assert_eq!(told.len(), 24, "once each");
    let mut begun = BTreeSet::new();
    for received in told {
        let order = received.json()["data"]["order_id"].as_str().unwrap().to_owned();
        match received.kind().as_str() {
            "order.reserved" => assert!(begun.insert(order)),
            _ => assert!(begun.contains(&order), "cancelled before it was reserved"),
        }
    }
}

#[tokio::test]
async fn stock_low_is_told_once_until_stock_comes_in() {
    let scene = Scene::with_machines(0).await;
    let mut receiver = Receiver::start(|_| ok()).await;
    let (endpoint, _) = endpoint(&scene, &receiver).await;
    let post = |reference: &str, delta: i32| {
        format!(
            "insert into onehold.stock_movements (shop_id, sku, location, delta, kind, reference)
             values (1, 'PSU', 'BER', {delta}, 'adjustment', '{reference}')"
        )
    };
    let low = "select onehold.tell_if_low(1, 'PSU', 'BER')::int::bigint";
    scene.run(&post("a", 6)).await;
    assert_eq!(scene.number(low).await, 0, "six are enough");
    scene.run(&post("b", -1)).await;
    scene.run("select onehold.refill_if_needed(1, 'PSU', 'BER')").await;
    assert_eq!(scene.number(low).await, 0, "it was told");
    let _courier = courier(&scene);
    let told = receiver.next().await.json();
    assert_eq!(told["type"], "stock.low");
    let wanted = json!({"sku": "PSU", "location": "BER", "on_hand": 5, "held": 0, "available": 5, "mark": 5});
    assert_eq!(told["data"], wanted);
    until_there_are(&scene, endpoint, "delivered", 1).await;
    scene.run(&post("c", 9)).await;
    scene.run(&post("d", -10)).await;
    // Two notice at once: one tells, and the other waits for it to commit and tells nothing.
    let mut first = in_the_way(&scene, "select onehold.tell_if_low(1, 'PSU', 'BER')").await;
    let db = scene.db.clone();
    let second = tokio::spawn(async move {
        sqlx::query_scalar::<_, bool>("select onehold.tell_if_low(1, 'PSU', 'BER')").fetch_one(db.pool()).await.unwrap()
    });
    until_someone_waits_in(&scene, "tell_if_low").await;
    sqlx::raw_sql("commit").execute(&mut first).await.unwrap();
    assert!(!second.await.unwrap());
    until_there_are(&scene, endpoint, "delivered", 2).await;
}
