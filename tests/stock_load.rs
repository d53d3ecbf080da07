//! What a reservation costs does not grow with what was sold or lapsed: counted in rows, not in time (cases
//! D3 and Q5).

use onehold::allocator::{self, Outcome};
use onehold::sweep::sweep;
use sqlx::{Connection as _, PgConnection};

use crate::scene::{SHOP, Scene};
use crate::stock_stage::{conserved, held, place_many, pool_bound, receive, units};

/// Case D3. 2,000 lapsed holds are swept in batches, twice at once, while buyers buy beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_thousand_lapsed_holds_are_swept_while_buyers_buy_beside_it() {
    let scene = Scene::with_machines(0).await;
    // Put straight into the table: with a small pool out, the rest is what they hold.
    pool_bound(&scene, 50).await;
    receive(&scene, "X", "BER", 2_100).await;
    receive(&scene, "Y", "FRA", 100).await;
    scene
        .run(
            "with placed as (
                 insert into onehold.orders (shop_id, idempotency_key, status)
                 select 1, 'old-' || n, 'reserved' from generate_series(1, 2000) n returning id
             ), lines as (
                 insert into onehold.order_lines (shop_id, order_id, line, sku, quantity)
                 select 1, id, 1, 'X', 1 from placed
             ), told as (
                 insert into onehold.order_events (shop_id, order_id, kind, actor)
                 select 1, id, kind, 'sql' from placed, unnest(array['placed', 'reserved']) kind
             )
             insert into onehold.reservations (shop_id, order_id, sku, location, expires_at)
             select 1, id, 'X', 'BER', clock_timestamp() from placed",
        )
        .await;
    conserved(&scene).await;
    let mut beside = place_many(&scene, "x", 60, &[units("X", 1)]).await;
    beside.extend(place_many(&scene, "y", 60, &[units("Y", 1)]).await);
    let mut work = vec![None; 2];
    work.extend(beside.into_iter().map(Some));
    let outcomes = scene
        .at_once(work, |db, order| async move {
            match order {
                Some(id) => (allocator::run(&db, SHOP, id).await.unwrap() == Outcome::Reserved, 0),
                None => (true, sweep(&db).await.unwrap()),
            }
        })
        .await;
    assert!(outcomes.iter().all(|(reserved, _)| *reserved), "there was stock enough for every buyer");
    // What a buyer had to expire for himself, or what both sweeps passed over, is not counted by a sweep.
    let swept = outcomes.iter().map(|(_, swept)| swept).sum::<u64>() + sweep(&scene.db).await.unwrap();
    assert!(swept > 1_000, "{swept}");
    assert_eq!(scene.number("select count(*) from onehold.orders where status = 'expired'").await, 2_000);
    let told = "select count(*) from onehold.order_events where kind = 'expired'";
    assert_eq!(scene.number(told).await, 2_000, "every lapse is told once");
    assert_eq!((held(&scene, "X").await, held(&scene, "Y").await), (60, 60));
    conserved(&scene).await;
}

const SOLD: i64 = 3_000;
const PROBES: i32 = 60;

/// How many index entries of the pool a search for one unit passes, on average.
async fn entries_passed(scene: &Scene) -> i64 {
    let mut conn = PgConnection::connect(&scene.test.url).await.unwrap();
    let counter = "select pg_stat_get_xact_tuples_returned('onehold.pool_units_pkey'::regclass)";
    sqlx::raw_sql("begin").execute(&mut conn).await.unwrap();
    let before: i64 = sqlx::query_scalar(counter).fetch_one(&mut conn).await.unwrap();
    let taken: i64 = sqlx::query_scalar(
        "select sum(cardinality(onehold.take_units(1, 'X', 'BER', 1)))::bigint from generate_series(1, $1)",
    )
    .bind(PROBES)
    .fetch_one(&mut conn)
    .await
    .unwrap();
    assert_eq!(taken, i64::from(PROBES));
    let after: i64 = sqlx::query_scalar(counter).fetch_one(&mut conn).await.unwrap();
    sqlx::raw_sql("rollback").execute(&mut conn).await.unwrap();
    (after - before) / i64::from(PROBES)
}

/// Sells `SOLD` units, a few dozen a transaction, with refills between, while another session's transaction
/// stays open, so that nothing that was sold can be cleaned away. Gives the entries passed before and after.
async fn sell_beside_a_long_transaction(scene: &Scene) -> (i64, i64) {
    pool_bound(scene, 200).await;
    receive(scene, "X", "BER", 10_000).await;
    let before = entries_passed(scene).await;
    let mut long = PgConnection::connect(&scene.test.url).await.unwrap();
    sqlx::raw_sql("begin isolation level repeatable read; select 1").execute(&mut long).await.unwrap();
    let sell = "select sum(cardinality(onehold.take_units(1, 'X', 'BER', 1)))::bigint from generate_series(1, 50)";
    let mut sold = 0;
    while sold < SOLD {
        sold += scene.number(sell).await;
        if sold % 100 == 0 {
            // What was taken counts as sold: the ledger follows, and the pool is put out anew.
            scene.run("select onehold.post_movement(1, 'X', 'BER', -100, 'adjustment', gen_random_uuid()::text, 'test', true)").await;
            scene.run("select onehold.refill_if_free(1, 'X', 'BER')").await;
        }
    }
    let after = entries_passed(scene).await;
    long.close().await.unwrap();
    (before, after)
}

/// Case Q5 for unit rows, and beside it what happens where searches begin at the head of the index.
#[tokio::test]
async fn a_long_open_transaction_makes_no_search_pass_over_all_that_was_sold() {
    let scene = Scene::with_machines(0).await;
    let (before, after) = sell_beside_a_long_transaction(&scene).await;
    assert!(before <= 3, "{before} before anything was sold");
    // The window of units is at most two bounds wide, and a search begins anywhere in it.
    assert!(after <= 100, "{before} before, {after} after {SOLD} were sold");

    let wrong = Scene::with_machines(0).await;
    wrong
        .run(
            "do $$ begin
                 execute regexp_replace(pg_get_functiondef('onehold.take_units'::regproc), 'v_from := [^;]*;', 'v_from := 0;');
             end $$",
        )
        .await;
    let (before, after) = sell_beside_a_long_transaction(&wrong).await;
    assert!(after > 1_000, "from the head of the index every search passes all that was sold: {before}, {after}");
}
