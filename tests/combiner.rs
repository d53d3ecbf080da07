//! Many orders in one transaction: each stands or falls by itself.

use onehold::allocator::{Combiner, Kind, Outcome};
use onehold::orders;
use serde_json::json;
use sqlx::types::Uuid;

use crate::scene::{SHOP, Scene};

async fn with_stock(units: i32) -> Scene {
    let scene = Scene::with_machines(3).await;
    if units > 0 {
        scene
            .run(&format!("select onehold.post_movement(1, 'PSU', 'BER', {units}, 'receipt', 'PO-1', 'test', false)"))
            .await;
    }
    scene
}

async fn place_units(scene: &Scene, key: &str, units: i32) -> Uuid {
    let body = json!({"lines": [{"sku": "PSU", "quantity": units, "locations": null, "split": false}]});
    scene.place(key, body).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn orders_that_come_at_once_share_commits_and_each_gets_its_own_answer() {
    let scene = with_stock(40).await;
    let mut ids = Vec::new();
    for n in 0..50 {
        ids.push(place_units(&scene, &format!("units-{n}"), 1).await);
    }
    // Not everything is for the quick way: machines, a cancelled order, one that was never placed.
    for n in 0..4 {
        ids.push(scene.place_one(&format!("machine-{n}")).await);
    }
    let cancelled = place_units(&scene, "cancelled", 1).await;
    orders::cancel(&scene.db, SHOP, cancelled, "api:test", None).await.unwrap();
    ids.extend([cancelled, Uuid::nil()]);
    let combiner = Combiner::start(&scene.db);
    let outcomes = scene
        .at_once(ids.clone(), |_, id| {
            let combiner = combiner.clone();
            async move { combiner.run(SHOP, id).await.unwrap() }
        })
        .await;
    let refused = |kind| move |o: &&Outcome| matches!(o, Outcome::Refused(r) if r.kind == kind);
    let (units, others) = outcomes.split_at(50);
    assert_eq!(units.iter().filter(|o| **o == Outcome::Reserved).count(), 40, "{units:?}");
    assert_eq!(units.iter().filter(refused(Kind::Held)).count(), 10, "{units:?}");
    assert_eq!(others[..4].iter().filter(|o| **o == Outcome::Reserved).count(), 3, "{others:?}");
    assert_eq!(others[4..], [Outcome::AlreadyDecided, Outcome::NoSuchOrder]);
    // Told and written as if it had come alone.
    for (id, outcome) in ids.iter().zip(&outcomes).take(54) {
        let expected = if *outcome == Outcome::Reserved { ["placed", "reserved"] } else { ["placed", "refused"] };
        assert_eq!(scene.history(*id).await, expected);
    }
    assert_eq!(scene.number("select count(*) from onehold.pool_units").await, 0);
    scene.verify().await;
}

/// One order's failure undoes one order: the units that it had taken go back, and the others keep theirs.
#[tokio::test]
async fn an_order_that_cannot_be_filled_leaves_the_others_of_its_batch_alone() {
    let scene = with_stock(10).await;
    let (small, large, last) = (
        place_units(&scene, "small", 3).await,
        place_units(&scene, "large", 8).await,
        place_units(&scene, "last", 7).await,
    );
    let answers: Vec<(Uuid, String)> = sqlx::query_as("select * from onehold.reserve_batch(1, $1)")
        .bind([small, large, last])
        .fetch_all(scene.db.pool())
        .await
        .unwrap();
    let expected = [(small, "reserved"), (large, "apart"), (last, "reserved")];
    assert_eq!(answers, expected.map(|(id, outcome)| (id, outcome.to_owned())));
    assert_eq!(scene.number("select sum(quantity) from onehold.reservations").await, 10);
    assert_eq!(scene.history(large).await, ["placed"]);
    assert!(matches!(scene.reserve(large).await, Outcome::Refused(r) if r.kind == Kind::Held));
    scene.verify().await;
}

/// An order whose lock is taken is not waited for: its neighbours would wait with it.
#[tokio::test]
async fn an_order_that_somebody_is_deciding_does_not_hold_up_its_batch() {
    let scene = with_stock(10).await;
    let (busy, free) = (place_units(&scene, "busy", 1).await, place_units(&scene, "free", 1).await);
    #[allow(clippy::disallowed_methods, reason = "a rival, not the product")]
    let mut rival = scene.db.pool().begin().await.unwrap();
    sqlx::query("select from onehold.orders where id = $1 for update").bind(busy).execute(&mut *rival).await.unwrap();
    let combiner = Combiner::start(&scene.db);
    let waiting = tokio::spawn({
        let combiner = combiner.clone();
        async move { combiner.run(SHOP, busy).await.unwrap() }
    });
    assert_eq!(combiner.run(SHOP, free).await.unwrap(), Outcome::Reserved);
    assert!(!waiting.is_finished());
    rival.rollback().await.unwrap();
    assert_eq!(waiting.await.unwrap(), Outcome::Reserved);
    scene.verify().await;
}

/// A batch that fails as a whole is split: every order is answered all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_batch_that_fails_as_a_whole_is_split_and_every_order_is_answered() {
    let scene = with_stock(10).await;
    scene.run("drop function onehold.reserve_batch(int, uuid[])").await;
    let mut ids = Vec::new();
    for n in 0..12 {
        ids.push(place_units(&scene, &format!("k{n}"), 1).await);
    }
    let combiner = Combiner::start(&scene.db);
    let outcomes = scene
        .at_once(ids, |_, id| {
            let combiner = combiner.clone();
            async move { combiner.run(SHOP, id).await.unwrap() }
        })
        .await;
    assert_eq!(outcomes.iter().filter(|o| **o == Outcome::Reserved).count(), 10, "{outcomes:?}");
    scene.verify().await;
}

/// More lapsed holds than one transaction clears stand in the way of a large order, and nobody sweeps: what was
/// cleared stays cleared, and the order gets there.
#[tokio::test]
async fn an_order_behind_thousands_of_lapsed_holds_clears_them_and_is_reserved() {
    let scene = with_stock(2_500).await;
    scene
        .run(
            "insert into onehold.orders (shop_id, idempotency_key, status)
                 select 1, 'lapsed-' || n, 'reserved' from generate_series(1, 2500) n;
             delete from onehold.pool_units;
             insert into onehold.reservations (shop_id, order_id, sku, location, expires_at)
                 select 1, id, 'PSU', 'BER', clock_timestamp() - interval '1 minute' from onehold.orders;",
        )
        .await;
    let id = place_units(&scene, "large", 2_500).await;
    assert_eq!(scene.reserve(id).await, Outcome::Reserved);
    assert_eq!(scene.number("select count(*) from onehold.orders where status = 'expired'").await, 2_500);
}
