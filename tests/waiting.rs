//! Orders that wait for stock: who frees it hands it on, oldest first, with no free moment in between.

use std::time::Duration;

use onehold::allocator::{Kind, Outcome, waiting};
use onehold::orders::{self, AfterRelease, Ending, Status};
use onehold::stock::{description, movement};
use onehold::sweep::{Requeued, requeue, sweep};
use serde_json::{Value, json};
use sqlx::types::Uuid;

use crate::scene::{SHOP, Scene};
use crate::stock_stage::stocked;

pub(crate) fn patient(mut lines: Value) -> Value {
    lines["wait_seconds"] = 600.into();
    lines
}

pub(crate) fn machine() -> Value {
    patient(json!({"lines": [{"asset": {"category": "box"}, "quantity": 1}]}))
}

pub(crate) fn units(quantity: i32) -> Value {
    patient(json!({"lines": [{"sku": "PSU", "quantity": quantity}]}))
}

/// Places an order and has it decided to wait.
pub(crate) async fn waits(scene: &Scene, key: &str, body: Value) -> Uuid {
    let id = scene.place(key, body).await;
    assert_eq!(scene.reserve(id).await, Outcome::Waiting);
    id
}

/// Ends an order's wait as time would.
async fn end_wait(scene: &Scene, id: Uuid) {
    scene
        .run(&format!(
            "update onehold.orders set placed_at = placed_at - interval '1 day',
                 waiting_until = waiting_until - interval '1 day' where id = '{id}'"
        ))
        .await;
}

async fn status(scene: &Scene, id: Uuid) -> (Status, bool) {
    let order = scene.order(id).await;
    (order.status, order.waiting)
}

const RESERVED: (Status, bool) = (Status::Reserved, false);
const WAITING: (Status, bool) = (Status::Placed, true);

#[tokio::test]
async fn an_order_that_finds_nothing_waits_and_is_told_so_once() {
    let scene = Scene::with_machines(1).await;
    scene.reserved("first").await;
    let id = waits(&scene, "second", machine()).await;
    assert_eq!(status(&scene, id).await, WAITING);
    // Its job run again changes nothing.
    assert_eq!(scene.reserve(id).await, Outcome::Waiting);
    assert_eq!(scene.history(id).await, ["placed", "waiting"]);
    assert_eq!(scene.number("select count(*) from apalis.jobs where idempotency_key like '%:until'").await, 1);
    // What nobody ever had is waited for too.
    let unheard = waits(&scene, "third", units(1)).await;
    assert_eq!(status(&scene, unheard).await, WAITING);
    scene.verify().await;
}

#[tokio::test]
async fn an_order_that_does_not_ask_to_wait_is_refused_as_ever() {
    let scene = Scene::with_machines(1).await;
    scene.reserved("first").await;
    let id = scene.place_one("second").await;
    assert!(matches!(scene.reserve(id).await, Outcome::Refused(r) if r.kind == Kind::Held));
    assert_eq!(scene.history(id).await, ["placed", "refused"]);
}

#[tokio::test]
async fn when_its_time_is_over_a_waiting_order_is_refused_honestly() {
    let scene = Scene::with_machines(1).await;
    scene.reserved("first").await;
    let id = waits(&scene, "second", machine()).await;
    let due = format!(
        "select count(*) from apalis.jobs j join onehold.orders o on j.idempotency_key = o.id || ':until'
         where o.id = '{id}' and abs(extract(epoch from j.run_at - o.placed_at) - 600) < 2"
    );
    assert_eq!(scene.number(&due).await, 1);
    end_wait(&scene, id).await;
    assert!(matches!(scene.reserve(id).await, Outcome::Refused(r) if r.kind == Kind::Held));
    assert_eq!(scene.history(id).await, ["placed", "waiting", "refused"]);
    assert_eq!(scene.number("select count(*) from onehold.order_lines where waits").await, 0);
    assert_eq!(scene.reserve(id).await, Outcome::AlreadyDecided);
}

/// Each way to free a machine hands it to the one who waits, in its own transaction.
#[tokio::test]
async fn whoever_frees_a_machine_hands_it_on() {
    let ways: [&str; 7] = ["cancel", "sweep", "abandon", "late", "release", "put", "ready"];
    for way in ways {
        let scene = Scene::with_machines(1).await;
        let first = scene.reserved("first").await;
        let id = waits(&scene, "second", machine()).await;
        match way {
            "cancel" => {
                assert_eq!(orders::cancel(&scene.db, SHOP, first, "api:t", None).await.unwrap(), Ending::Done);
            }
            "sweep" => {
                scene.lapse(first).await;
                assert_eq!(sweep(&scene.db).await.unwrap(), 1);
            }
            "abandon" => {
                scene.keep_event(&first.to_string(), "e", "abandoned").await;
                scene.apply("e").await;
            }
            "late" => {
                // Lapsed, and another machine: however late money is dealt with, one of the two is free.
                scene.lapse(first).await;
                scene.pay(first, "e").await;
                if scene.order(first).await.status == Status::Converted {
                    continue;
                }
            }
            "release" => {
                scene.pay(first, "e").await;
                orders::release(&scene.db, SHOP, first, "api:t", None, AfterRelease::Ready).await.unwrap();
            }
            "put" => put(&scene, "m-02", "ready").await,
            "ready" => {
                put(&scene, "m-02", "maintenance").await;
                assert_eq!(status(&scene, id).await, WAITING, "in maintenance");
                put(&scene, "m-02", "ready").await;
            }
            other => panic!("{other}"),
        }
        assert_eq!(status(&scene, id).await, RESERVED, "{way}");
        assert_eq!(scene.history(id).await, ["placed", "waiting", "reserved"], "{way}");
        assert_eq!(scene.number("select count(*) from onehold.order_lines where waits").await, 0, "{way}");
        // Its own job finds it decided.
        assert_eq!(scene.reserve(id).await, Outcome::AlreadyDecided);
        scene.verify().await;
    }
}

async fn put(scene: &Scene, key: &str, status: &str) {
    let body = json!({"category": "box", "location": "BER", "status": status});
    waiting::put_asset(&scene.db, SHOP, key, &description::check(&body).unwrap()).await.unwrap();
}

pub(crate) async fn receive(scene: &Scene, units: i32) {
    let body = json!({"sku": "PSU", "location": "BER", "delta": units, "kind": "receipt", "reference": Uuid::now_v7().to_string()});
    waiting::post_movement(&scene.db, SHOP, &movement::check(&body).unwrap(), "api:t").await.unwrap();
}

/// Each way to free units.
#[tokio::test]
async fn whoever_frees_units_hands_them_on() {
    for way in ["cancel", "sweep", "release", "receipt"] {
        let scene = stocked(&[("PSU", "BER", 5)]).await;
        let first = scene.place("first", json!({"lines": [{"sku": "PSU", "quantity": 4}]})).await;
        assert_eq!(scene.reserve(first).await, Outcome::Reserved);
        let id = waits(&scene, "second", units(3)).await;
        match way {
            "cancel" => {
                orders::cancel(&scene.db, SHOP, first, "api:t", None).await.unwrap();
            }
            "sweep" => {
                scene.lapse(first).await;
                sweep(&scene.db).await.unwrap();
            }
            "release" => {
                scene.pay(first, "e").await;
                assert_eq!(status(&scene, id).await, WAITING);
                orders::release(&scene.db, SHOP, first, "api:t", None, AfterRelease::Ready).await.unwrap();
            }
            "receipt" => {
                receive(&scene, 1).await;
                assert_eq!(status(&scene, id).await, WAITING, "two are not three");
                receive(&scene, 1).await;
            }
            other => panic!("{other}"),
        }
        assert_eq!(status(&scene, id).await, RESERVED, "{way}");
        scene.verify().await;
    }
}

#[tokio::test]
async fn the_oldest_that_fits_is_served_and_what_is_left_goes_to_the_next() {
    let scene = stocked(&[]).await;
    let large = waits(&scene, "large", units(5)).await;
    let small = waits(&scene, "small", units(2)).await;
    let last = waits(&scene, "last", units(2)).await;
    receive(&scene, 3).await;
    assert_eq!(status(&scene, large).await, WAITING, "three are not five");
    assert_eq!(status(&scene, small).await, RESERVED);
    assert_eq!(status(&scene, last).await, WAITING);
    // One is left: with six more there are seven, for the oldest and the last.
    receive(&scene, 6).await;
    assert_eq!(status(&scene, large).await, RESERVED);
    assert_eq!(status(&scene, last).await, RESERVED);
    scene.verify().await;
}

#[tokio::test]
async fn who_waits_for_something_else_is_not_served_and_does_not_stand_in_the_way() {
    let scene = Scene::with_machines(1).await;
    let first = scene.reserved("first").await;
    let elsewhere = json!({"lines": [{"asset": {"category": "box", "locations": ["FRA"]}, "quantity": 1}]});
    let picky = json!({"lines": [{"asset": {"category": "box", "attributes": {"ram": {"min": 1}}}, "quantity": 1}]});
    let both = json!({"lines": [{"asset": {"category": "box"}, "quantity": 1}, {"sku": "PSU", "quantity": 1}]});
    let mut others = Vec::new();
    for (n, body) in [elsewhere, picky, both].into_iter().enumerate() {
        others.push(waits(&scene, &format!("other-{n}"), patient(body)).await);
    }
    let id = waits(&scene, "second", machine()).await;
    orders::cancel(&scene.db, SHOP, first, "api:t", None).await.unwrap();
    assert_eq!(status(&scene, id).await, RESERVED);
    for other in others {
        assert_eq!(status(&scene, other).await, WAITING);
        assert_eq!(
            scene.number(&format!("select count(*) from onehold.reservations where order_id = '{other}'")).await,
            0
        );
    }
    scene.verify().await;
}

/// More than a pool's bound is not there as rows; the order's own job gets it under the pool's lock.
#[tokio::test]
async fn an_order_for_more_than_a_pool_holds_is_woken_instead() {
    let scene = stocked(&[]).await;
    let id = waits(&scene, "large", units(3_000)).await;
    receive(&scene, 3_000).await;
    assert_eq!(status(&scene, id).await, WAITING);
    assert_eq!(woken(&scene, id).await, 1);
    assert_eq!(scene.reserve(id).await, Outcome::Reserved);
    scene.verify().await;
}

async fn woken(scene: &Scene, id: Uuid) -> i64 {
    scene.number(&format!("select count(*) from apalis.jobs where idempotency_key like '{id}:wake:%'")).await
}

/// What cannot be handed on at once: a cancellation in a caller's transaction, an import, an asset's time that comes.
#[tokio::test]
async fn what_is_freed_without_serving_wakes_those_who_wait() {
    let scene = Scene::with_machines(1).await;
    let first = scene.reserved("first").await;
    let older = waits(&scene, "second", machine()).await;
    let newer = waits(&scene, "third", machine()).await;
    scene.run(&format!("select onehold.cancel_order('main', '{first}', 'changed their mind')")).await;
    assert_eq!((woken(&scene, older).await, woken(&scene, newer).await), (1, 1));
    // Whoever's job comes first: the older one is served.
    assert_eq!(scene.reserve(newer).await, Outcome::Waiting);
    assert_eq!(status(&scene, older).await, RESERVED);
    // An import.
    let file = std::io::Cursor::new("key,category,location\nm-02,box,BER\n");
    onehold::stock::import::import(&scene.db, SHOP, Box::new(file), onehold::stock::import::Format::Csv, None, |_| {})
        .await
        .unwrap();
    assert_eq!(woken(&scene, newer).await, 2);
    assert_eq!(scene.reserve(newer).await, Outcome::Reserved);
    // The clock.
    let last = waits(&scene, "last", machine()).await;
    scene
        .run(
            "insert into onehold.assets (shop_id, key, category, location, available_from)
              values (1, 'm-03', 'box', 'BER', clock_timestamp())",
        )
        .await;
    assert_eq!(requeue(&scene.db).await.unwrap(), Requeued { woken: 1, ..Requeued::default() });
    assert_eq!(scene.reserve(last).await, Outcome::Reserved);
    scene.verify().await;
}

#[tokio::test]
async fn the_housekeeping_leaves_waiting_orders_alone_until_their_time_is_over() {
    let scene = Scene::with_machines(1).await;
    scene.reserved("first").await;
    let id = waits(&scene, "second", machine()).await;
    scene.run("delete from apalis.jobs; update onehold.orders set placed_at = placed_at - interval '5 minutes'").await;
    assert_eq!(requeue(&scene.db).await.unwrap(), Requeued::default());
    end_wait(&scene, id).await;
    assert_eq!(requeue(&scene.db).await.unwrap(), Requeued { orders: 1, ..Requeued::default() });
}

#[tokio::test]
async fn a_waiting_order_can_be_cancelled_and_gets_nothing_later() {
    let scene = Scene::with_machines(1).await;
    let first = scene.reserved("first").await;
    let id = waits(&scene, "second", machine()).await;
    assert_eq!(orders::cancel(&scene.db, SHOP, id, "api:t", None).await.unwrap(), Ending::Done);
    assert_eq!(scene.history(id).await, ["placed", "waiting", "cancelled"]);
    orders::cancel(&scene.db, SHOP, first, "api:t", None).await.unwrap();
    assert_eq!(status(&scene, id).await, (Status::Cancelled, false));
    requeue(&scene.db).await.unwrap();
    assert_eq!(scene.number("select count(*) from onehold.order_lines where waits").await, 0);
    assert!(scene.assets(id, "held").await.is_empty());
    scene.verify().await;
}

/// Somebody waits for a machine whose hold lapses, and a newcomer finds it first: he clears it, for the one who waits.
#[tokio::test]
async fn a_newcomer_who_clears_a_lapsed_hold_does_not_overtake() {
    let scene = Scene::with_machines(1).await;
    let first = scene.reserved("first").await;
    let id = waits(&scene, "second", machine()).await;
    scene.lapse(first).await;
    let newcomer = scene.place_one("third").await;
    assert!(matches!(scene.reserve(newcomer).await, Outcome::Refused(r) if r.kind == Kind::Held));
    assert_eq!(status(&scene, id).await, RESERVED);
    assert_eq!(scene.order(first).await.status, Status::Expired);
    scene.verify().await;
}

/// Something stands free that nobody was served with: a newcomer serves the older one first, and takes what is left.
#[tokio::test]
async fn a_newcomer_does_not_overtake_one_who_waits_for_the_same() {
    let scene = Scene::with_machines(1).await;
    scene.reserved("first").await;
    let id = waits(&scene, "second", machine()).await;
    let picky = patient(json!({"lines": [{"asset": {"category": "box", "locations": ["FRA"]}, "quantity": 1}]}));
    let other = waits(&scene, "picky", picky).await;
    scene
        .run(
            "insert into onehold.assets (shop_id, key, category, location)
              values (1, 'm-02', 'box', 'BER'), (1, 'm-03', 'box', 'BER')",
        )
        .await;
    let newcomer = scene.place_one("third").await;
    assert_eq!(scene.reserve(newcomer).await, Outcome::Reserved, "one who waits for what is not there is passed");
    assert_eq!(scene.assets(id, "held").await, ["m-02"]);
    assert_eq!(scene.assets(newcomer, "held").await, ["m-03"]);
    assert_eq!(status(&scene, other).await, WAITING);
    scene.verify().await;
}

#[tokio::test]
async fn money_that_came_before_its_waiting_order_was_served_is_applied_when_it_is() {
    let scene = Scene::with_machines(1).await;
    let first = scene.reserved("first").await;
    let id = waits(&scene, "second", machine()).await;
    scene.pay(id, "early").await;
    assert_eq!(status(&scene, id).await, WAITING);
    orders::cancel(&scene.db, SHOP, first, "api:t", None).await.unwrap();
    let again =
        "select count(*) from apalis.jobs where job_type = 'convert' and idempotency_key like '%early:reserved'";
    assert_eq!(scene.number(again).await, 1);
    scene.apply("early").await;
    assert_eq!(scene.order(id).await.status, Status::Converted);
}

/// Nobody waits: what freeing costs more is answered by an index that has no rows.
#[tokio::test]
async fn the_question_whether_anyone_waits_reads_an_empty_index() {
    let scene = Scene::with_machines(0).await;
    scene
        .run(
            "insert into onehold.orders (shop_id, idempotency_key, status, refusal)
              select 1, 'k' || n, 'refused', '{}' from generate_series(1, 5000) n; analyze onehold.orders",
        )
        .await;
    let plan: Vec<String> = sqlx::query_scalar(
        "explain select exists (select from onehold.orders
                 where shop_id = 1 and status = 'placed' and waiting_until is not null)",
    )
    .fetch_all(scene.db.pool())
    .await
    .unwrap();
    assert!(plan.iter().any(|line| line.contains("waiting_orders")), "{plan:#?}");
    let began = std::time::Instant::now();
    for _ in 0..100 {
        scene.run("select onehold.enter_waiting_list(1)").await;
    }
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}
