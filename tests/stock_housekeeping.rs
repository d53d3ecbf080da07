//! Pools are refilled in the background, before anyone waits: by the buyers who draw them down, and by the
//! housekeeping where nobody did.

use onehold::allocator::Outcome;
use onehold::queue::catalogue::{REFILL, RefillPool};
use onehold::queue::decode;
use onehold::stock::pools;
use onehold::sweep::{self, Requeued};
use serde_json::json;

use crate::queue_support::{Worker, count, fast, handler, until};
use crate::scene::{SHOP, Scene};

async fn stocked(units: i32) -> Scene {
    let scene = Scene::with_machines(0).await;
    scene
        .run(&format!("select onehold.post_movement(1, 'PSU', 'BER', {units}, 'receipt', 'PO-1', 'test', false)"))
        .await;
    scene
}

async fn pooled(scene: &Scene) -> i64 {
    scene.number("select count(*) from onehold.pool_units where sku = 'PSU'").await
}

async fn jobs(scene: &Scene) -> i64 {
    scene.number("select count(*) from apalis.jobs where job_type = 'refill'").await
}

async fn buy(scene: &Scene, key: &str, units: i64) {
    let line = json!({"sku": "PSU", "quantity": units, "locations": null, "split": false});
    let id = scene.place(key, json!({ "lines": [line] })).await;
    assert_eq!(scene.reserve(id).await, Outcome::Reserved);
}

#[tokio::test]
async fn a_pool_that_a_reservation_draws_down_is_refilled_by_a_worker_to_its_bound() {
    let scene = stocked(5_000).await;
    assert_eq!(pooled(&scene).await, 1_000);
    let db = scene.db.clone();
    let run = handler(move |delivery| {
        let db = db.clone();
        async move {
            let job: RefillPool = decode(&delivery)?;
            pools::refill(&db, job.shop, &job.sku, &job.location).await?;
            Ok(())
        }
    });
    // A tenth of the bound is looked after for certain.
    buy(&scene, "a", 100).await;
    assert_eq!(jobs(&scene).await, 1);
    let worker = Worker::start(&scene.test.url, REFILL, 2, run, fast()).await;
    until("the look", async || count(&scene.db, "Done").await == 1).await;
    assert_eq!(pooled(&scene).await, 900, "above half of its bound it is left alone");
    buy(&scene, "b", 500).await;
    until("the refill", async || pooled(&scene).await == 1_000).await;
    assert_eq!(jobs(&scene).await, 1, "one key is one job");
    worker.stop().await;
    scene.verify().await;
}

#[tokio::test]
async fn buyers_of_single_units_wake_the_refill_about_once_in_a_hundred() {
    let scene = stocked(20_000).await;
    // The same draw as 5,000 buyers make; with the chance of 1 in 100, none in 5,000 is less likely than 1e-21.
    scene
        .run(
            "insert into onehold.orders (shop_id, idempotency_key) select 1, 'o' || n from generate_series(1, 900) n;
             insert into onehold.order_lines (shop_id, order_id, line, sku, quantity)
                 select 1, id, 1, 'PSU', 1 from onehold.orders",
        )
        .await;
    let woke = "select count(*) filter (where (stocked->>'woke')::boolean) from (
                    select onehold.reserve_stock(1, id, now() + interval '1 hour', false) as stocked
                    from onehold.orders) s";
    let woke = scene.number(woke).await;
    assert!((1..=1).contains(&woke), "one job serves them all: {woke}");
    assert_eq!(jobs(&scene).await, 1);
}

#[tokio::test]
async fn buyers_do_not_wait_for_each_other_to_wake_a_refill() {
    let scene = stocked(5_000).await;
    let mut other = scene.db.pool().acquire().await.unwrap();
    sqlx::raw_sql("begin; select onehold.enqueue_refill(1, 'PSU', 'BER')").execute(&mut *other).await.unwrap();
    // Would wait for the other's commit, which does not come.
    scene.run("set lock_timeout = '100ms'; select onehold.enqueue_refill(1, 'PSU', 'BER'); reset lock_timeout").await;
    sqlx::raw_sql("commit").execute(&mut *other).await.unwrap();
    assert_eq!(jobs(&scene).await, 1);
}

#[tokio::test]
async fn names_that_run_into_each_other_are_two_pools() {
    let scene = stocked(1).await;
    scene.run("select onehold.enqueue_refill(1, 'a:b', 'c'), onehold.enqueue_refill(1, 'a', 'b:c')").await;
    assert_eq!(jobs(&scene).await, 2);
    // The longest names there are, in the widest characters.
    let long = "\u{10348}".repeat(200);
    scene.run(&format!("select onehold.enqueue_refill(1, '{long}', '{long}')")).await;
    assert_eq!(jobs(&scene).await, 3);
}

#[tokio::test]
async fn refilling_twice_or_for_nothing_changes_nothing() {
    let scene = stocked(3_000).await;
    scene.run("delete from onehold.pool_units where unit % 3 > 0").await;
    // Safe to repeat, also at once.
    let put =
        scene.at_once(vec![(); 6], |db, ()| async move { pools::refill(&db, SHOP, "PSU", "BER").await.unwrap() }).await;
    assert_eq!(put.iter().filter(|&&n| n > 0).count(), 1, "{put:?}");
    assert_eq!(pooled(&scene).await, 1_000);
    assert_eq!(pools::refill(&scene.db, SHOP, "GHOST", "BER").await.unwrap(), 0);
    assert_eq!(pools::refill(&scene.db, 99, "PSU", "BER").await.unwrap(), 0);
    // What is left is what there is: nothing to put out, however low.
    scene.run("select onehold.post_movement(1, 'PSU', 'BER', -2900, 'adjustment', 'loss', 'test', false)").await;
    assert_eq!(pools::refill(&scene.db, SHOP, "PSU", "BER").await.unwrap(), 0);
    assert_eq!(pooled(&scene).await, 100);
    scene.verify().await;
}

#[tokio::test]
async fn the_housekeeping_finds_low_pools_that_nobody_woke_all_the_way_round() {
    let scene = stocked(3_000).await;
    scene
        .run(
            "insert into onehold.stock_movements (shop_id, sku, location, delta, kind, reference)
             select 1, 'S' || n, 'BER', 1, 'receipt', 'r' || n from generate_series(1, 6000) n;
             delete from onehold.pool_units where unit > 400",
        )
        .await;
    // 6,000 pools without a unit out, though each has one, and one that is drawn down: more than one run looks at.
    let first = sweep::requeue(&scene.db).await.unwrap();
    assert_eq!(first, Requeued { pools: 5_000, ..Requeued::default() });
    assert_eq!(sweep::requeue(&scene.db).await.unwrap().pools, 1_001);
    assert_eq!(sweep::requeue(&scene.db).await.unwrap().pools, 0, "a job that waits serves");
    assert_eq!(pooled(&scene).await, 400);
    let refill = "select count(onehold.refill_if_needed(shop_id, sku, location)) from onehold.stock_levels";
    assert_eq!(scene.number(refill).await, 6_001);
    assert_eq!(pooled(&scene).await, 1_000);
    scene.run("delete from apalis.jobs").await;
    for _ in 0..2 {
        assert_eq!(sweep::requeue(&scene.db).await.unwrap().pools, 0, "full pools are left alone");
    }
    scene.verify().await;
}

#[tokio::test]
async fn a_bound_that_was_lowered_is_kept_again() {
    let scene = stocked(3_000).await;
    scene.run("update onehold.shops set pool_bound = 10").await;
    assert_eq!(sweep::requeue(&scene.db).await.unwrap().pools, 1);
    pools::refill(&scene.db, SHOP, "PSU", "BER").await.unwrap();
    assert_eq!(pooled(&scene).await, 10);
    scene.verify().await;
    buy(&scene, "more than the bound", 2_000).await;
    scene.verify().await;
}
