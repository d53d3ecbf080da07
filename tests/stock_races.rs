//! Orders that race for units of stock (cases A1, A2, A6, A9, T1, T2, T3, C4).

use onehold::allocator::{self, Kind, Outcome};
use onehold::db::Db;
use onehold::sweep::sweep;
use sqlx::types::Uuid;
use sqlx::{Connection as _, PgConnection};

use crate::scene::{SHOP, Scene};
use crate::stock_stage::{
    conserved, figures, held, place, place_many, pool_bound, post_on, receive, refused, reserve_at_once, reserved,
    stocked, units, units_from,
};

/// Case A1.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_orders_at_once_for_the_last_unit_one_gets_it_and_nothing_is_left() {
    let scene = stocked(&[("X", "BER", 1)]).await;
    let ids = place_many(&scene, "o", 2, &[units("X", 1)]).await;
    let outcomes =
        scene.at_once(ids.clone(), |db, id| async move { allocator::run(&db, SHOP, id).await.unwrap() }).await;
    let refusals: Vec<_> =
        outcomes.iter().filter_map(|o| if let Outcome::Refused(r) = o { Some(r) } else { None }).collect();
    assert_eq!(refusals.len(), 1, "{outcomes:?}");
    assert!(matches!(refusals[0].kind, Kind::Held | Kind::Contended), "{refusals:?}");
    let now = figures(&scene, "X", "BER").await;
    assert_eq!((now.on_hand - now.held, now.pooled, now.rest), (0, 0, 0));
    for (id, outcome) in ids.iter().zip(&outcomes) {
        let left = format!("select count(*) from onehold.reservations where order_id = '{id}'");
        assert_eq!(scene.number(&left).await, i64::from(*outcome == Outcome::Reserved), "a loser leaves nothing");
    }
    conserved(&scene).await;
}

/// Case A2.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_fifty_orders_at_once_for_ten_units_ten_are_reserved() {
    let scene = stocked(&[("X", "BER", 10)]).await;
    let ids = place_many(&scene, "o", 50, &[units("X", 1)]).await;
    assert_eq!(reserve_at_once(&scene, ids).await, 10);
    assert_eq!(held(&scene, "X").await, 10);
    assert_eq!(figures(&scene, "X", "BER").await.held, 10);
    conserved(&scene).await;
}

/// Case A2 where the pool is far smaller than the stock: buyers empty it again and again, and refill it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn buyers_who_empty_a_small_pool_again_and_again_sell_all_of_the_stock() {
    let scene = Scene::with_machines(0).await;
    pool_bound(&scene, 3).await;
    receive(&scene, "X", "BER", 60).await;
    let ids = place_many(&scene, "o", 50, &[units("X", 1)]).await;
    assert_eq!(reserve_at_once(&scene, ids).await, 50);
    assert_eq!(held(&scene, "X").await, 50);
    conserved(&scene).await;
}

/// Case A9.
#[tokio::test]
async fn where_one_of_ten_units_is_locked_nine_can_be_had() {
    let scene = stocked(&[("X", "BER", 10)]).await;
    for locked in [1, 5, 10] {
        let mut rival = lock_units(
            &scene,
            &format!("unit in (select unit from onehold.pool_units order by unit offset {} limit 1)", locked - 1),
        )
        .await;
        let id = place(&scene, &format!("nine-{locked}"), vec![units("X", 9)]).await;
        assert_eq!(allocator::run_rounds(&scene.db, SHOP, id, 1).await.unwrap(), Outcome::Reserved);
        let refusal = refused(&scene, &format!("one-more-{locked}"), vec![units("X", 1)]).await;
        assert_eq!(refusal.kind, Kind::Contended, "the tenth is there, and locked");
        finish(&mut rival).await;
        onehold::orders::cancel(&scene.db, SHOP, id, "api:test", None).await.unwrap();
        conserved(&scene).await;
    }
}

/// Case T1. Both carts want one of each; what they name first differs.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_carts_of_two_skus_named_in_either_order_never_deadlock_and_sell_all_they_can() {
    for (x, y) in [(100, 100), (100, 60), (60, 100)] {
        let scene = stocked(&[("X", "BER", x), ("Y", "FRA", y)]).await;
        let mut ids = place_many(&scene, "xy", 100, &[units("X", 1), units("Y", 1)]).await;
        ids.extend(place_many(&scene, "yx", 100, &[units("Y", 1), units("X", 1)]).await);
        let sold = i64::try_from(reserve_at_once(&scene, ids).await).unwrap();
        assert_eq!(sold, i64::from(x.min(y)));
        assert_eq!((held(&scene, "X").await, held(&scene, "Y").await), (sold, sold), "carts are whole or empty");
        no_deadlock(&scene).await;
        conserved(&scene).await;
    }
}

/// Case T1 under the pools' locks: every cart wants more than a pool has out, so each takes both locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn carts_that_need_the_locks_of_two_pools_take_them_in_one_order() {
    let scene = Scene::with_machines(0).await;
    pool_bound(&scene, 1).await;
    // A unit more than is wanted: the row that is out may be locked by a neighbour's first look.
    receive(&scene, "X", "BER", 121).await;
    receive(&scene, "Y", "FRA", 121).await;
    let mut ids = place_many(&scene, "xy", 30, &[units("X", 2), units("Y", 2)]).await;
    ids.extend(place_many(&scene, "yx", 30, &[units("Y", 2), units("X", 2)]).await);
    assert_eq!(reserve_at_once(&scene, ids).await, 60);
    no_deadlock(&scene).await;
    conserved(&scene).await;
}

/// Case T2.
#[tokio::test]
async fn two_lines_of_one_cart_for_the_last_unit_are_refused_for_their_sum_counts() {
    let scene = stocked(&[("X", "BER", 1)]).await;
    let refusal = refused(&scene, "twice", vec![units("X", 1), units("X", 1)]).await;
    assert_eq!((refusal.kind, refusal.line, refusal.retry_after_seconds), (Kind::Unavailable, 2, None));
    assert_eq!(held(&scene, "X").await, 0);
    assert_eq!(figures(&scene, "X", "BER").await.pooled, 1, "the first line's unit is back");
    conserved(&scene).await;
}

/// Case T3, from the pool as it stands, and under its lock.
#[tokio::test]
async fn two_lines_of_one_cart_for_the_same_sku_are_both_filled_where_stock_is_enough() {
    for bound in [1000, 1] {
        let scene = Scene::with_machines(0).await;
        pool_bound(&scene, bound).await;
        receive(&scene, "X", "BER", 5).await;
        reserved(&scene, "twice", vec![units("X", 2), units("X", 3)]).await;
        assert_eq!(held(&scene, "X").await, 5);
        conserved(&scene).await;
    }
}

/// An order's search, the sweep and the background refill meet at one pool (case C4).
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_sweep_and_refills_and_buyers_at_once_neither_lose_nor_make_a_unit() {
    let scene = Scene::with_machines(0).await;
    pool_bound(&scene, 20).await;
    receive(&scene, "X", "BER", 100).await;
    for id in place_many(&scene, "old", 60, &[units("X", 1)]).await {
        assert_eq!(scene.reserve(id).await, Outcome::Reserved);
    }
    scene.run("update onehold.reservations set expires_at = clock_timestamp() - interval '1 second'").await;
    let mut steps: Vec<Step> = (0..15).flat_map(|_| [Step::Sweep, Step::Refill("X", "BER")]).collect();
    steps.extend(place_many(&scene, "new", 50, &[units("X", 1)]).await.into_iter().map(Step::Reserve));
    scene.at_once(steps, |db, step| async move { step.go(&db).await }).await;
    assert_eq!(scene.number("select count(*) from onehold.orders where status = 'expired'").await, 60);
    // Forty were free from the start; whoever found the others being swept was told to try again.
    let sold = held(&scene, "X").await;
    assert!((40..=50).contains(&sold), "{sold}");
    let kinds = "select count(*) from onehold.orders where refusal->>'kind' = 'contended'";
    assert_eq!(scene.number(kinds).await, 50 - sold);
    conserved(&scene).await;
}

/// An adjustment looks at what is held while buyers buy and refills put out.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn adjustments_and_buyers_and_refills_at_once_never_oversell() {
    for round in 0..4 {
        let scene = Scene::with_machines(0).await;
        pool_bound(&scene, 10).await;
        receive(&scene, "X", "BER", 40).await;
        let mut steps: Vec<Step> =
            (0..30).flat_map(|n| [Step::Adjust("X", "BER", -1, n), Step::Refill("X", "BER")]).collect();
        steps.extend(place_many(&scene, "o", 30, &[units("X", 1)]).await.into_iter().map(Step::Reserve));
        scene.at_once(steps, |db, step| async move { step.go(&db).await }).await;
        let now = figures(&scene, "X", "BER").await;
        let taken_away =
            scene.number("select -coalesce(sum(delta), 0)::bigint from onehold.stock_movements where delta < 0").await;
        assert_eq!(now.on_hand, 40 - taken_away, "round {round}");
        assert!(now.held <= now.on_hand, "round {round}: {now:?}");
        assert_eq!(scene.number("select count(*) from onehold.stock_shortfalls").await, 0);
        conserved(&scene).await;
    }
}

/// Refills of one pool at once put each unit out once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn refills_and_exact_orders_and_receipts_and_roll_ups_at_once_put_each_unit_out_once() {
    let scene = Scene::with_machines(0).await;
    pool_bound(&scene, 8).await;
    receive(&scene, "X", "BER", 30).await;
    receive(&scene, "X", "FRA", 30).await;
    let mut steps: Vec<Step> = Vec::new();
    for n in 0..10 {
        steps.extend([Step::Refill("X", "BER"), Step::Refill("X", "FRA"), Step::RollUp]);
        steps.push(Step::Adjust("X", "BER", 3, n));
    }
    let split = units_from("X", 9, &["FRA", "BER"], true);
    steps.extend(place_many(&scene, "o", 9, &[split]).await.into_iter().map(Step::Reserve));
    scene.at_once(steps, |db, step| async move { step.go(&db).await }).await;
    assert_eq!(figures(&scene, "X", "BER").await.on_hand, 60);
    assert!(held(&scene, "X").await > 0);
    conserved(&scene).await;
}

/// One thing that happens beside others.
#[derive(Clone, Debug)]
enum Step {
    Reserve(Uuid),
    Sweep,
    Refill(&'static str, &'static str),
    Adjust(&'static str, &'static str, i32, i32),
    RollUp,
}

impl Step {
    async fn go(self, db: &Db) {
        match self {
            Self::Reserve(id) => {
                allocator::run(db, SHOP, id).await.unwrap();
            }
            Self::Sweep => {
                sweep(db).await.unwrap();
            }
            Self::Refill(sku, location) => {
                sqlx::query("select onehold.refill_if_free($1, $2, $3)")
                    .bind(SHOP)
                    .bind(sku)
                    .bind(location)
                    .execute(db.pool())
                    .await
                    .unwrap();
            }
            Self::Adjust(sku, location, delta, n) => {
                let posted =
                    post_on(db.pool(), SHOP, sku, location, delta, "adjustment", &format!("count-{n}"), false).await;
                assert!(["posted", "would_oversell"].contains(&posted.outcome.as_str()), "{posted:?}");
            }
            Self::RollUp => {
                sqlx::query("select onehold.roll_up($1, 1000)").bind(SHOP).execute(db.pool()).await.unwrap();
            }
        }
    }
}

/// Another session that has these unit rows locked until it is finished.
async fn lock_units(scene: &Scene, which: &str) -> PgConnection {
    let mut rival = PgConnection::connect(&scene.test.url).await.unwrap();
    let statements = format!("begin; select from onehold.pool_units where {which} for update");
    sqlx::raw_sql(sqlx::AssertSqlSafe(statements)).execute(&mut rival).await.unwrap();
    rival
}

async fn finish(rival: &mut PgConnection) {
    sqlx::raw_sql("rollback").execute(rival).await.unwrap();
}

/// The server saw no deadlock in this database, not even one that was answered by running again.
async fn no_deadlock(scene: &Scene) {
    scene.run("select pg_stat_force_next_flush()").await;
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(scene.number(deadlocks).await, 0);
}
