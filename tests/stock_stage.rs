//! The stage for units of stock: what is put on the shelves, what carts look like, and the sum that must
//! come out right whatever happened.

use onehold::allocator::{self, Outcome, Refusal};
use serde_json::{Value, json};
use sqlx::types::Uuid;

use crate::scene::{SHOP, Scene};

/// What one pool has: the rest is what stands in the ledger and is neither held nor put out as unit rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) on_hand: i64,
    pub(crate) held: i64,
    pub(crate) pooled: i64,
    pub(crate) rest: i64,
}

/// What became of a movement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Posted {
    pub(crate) outcome: String,
    pub(crate) lacking: Option<i64>,
}

/// A database with `units` of each SKU at each location.
pub(crate) async fn stocked(shelves: &[(&str, &str, i32)]) -> Scene {
    let scene = Scene::with_machines(0).await;
    for (sku, location, units) in shelves {
        receive(&scene, sku, location, *units).await;
    }
    scene
}

/// Posts a receipt under a reference of its own.
pub(crate) async fn receive(scene: &Scene, sku: &str, location: &str, units: i32) {
    let reference = format!("PO-{}", Uuid::now_v7());
    let posted = post(scene, SHOP, sku, location, units, "receipt", &reference, false).await;
    assert_eq!(posted.outcome, "posted");
}

/// Posts a movement as the API does: one that would oversell is rolled back.
#[allow(clippy::too_many_arguments, reason = "they are the columns of a movement")]
pub(crate) async fn post(
    scene: &Scene,
    shop: i32,
    sku: &str,
    location: &str,
    delta: i32,
    kind: &str,
    reference: &str,
    force: bool,
) -> Posted {
    post_on(scene.db.pool(), shop, sku, location, delta, kind, reference, force).await
}

/// As [`post`], for tasks that have only the pool.
#[allow(clippy::too_many_arguments, reason = "they are the columns of a movement")]
#[allow(clippy::disallowed_methods, reason = "tests may begin where they stand")]
pub(crate) async fn post_on(
    pool: &sqlx::PgPool,
    shop: i32,
    sku: &str,
    location: &str,
    delta: i32,
    kind: &str,
    reference: &str,
    force: bool,
) -> Posted {
    let mut tx = pool.begin().await.unwrap();
    let (outcome, lacking): (String, Option<i64>) =
        sqlx::query_as("select outcome, lacking from onehold.post_movement($1, $2, $3, $4, $5, $6, 'api:test', $7)")
            .bind(shop)
            .bind(sku)
            .bind(location)
            .bind(delta)
            .bind(kind)
            .bind(reference)
            .bind(force)
            .fetch_one(&mut *tx)
            .await
            .unwrap();
    if outcome == "would_oversell" {
        tx.rollback().await.unwrap()
    } else {
        tx.commit().await.unwrap()
    }
    Posted { outcome, lacking }
}

/// What one pool of the shop `main` has.
pub(crate) async fn figures(scene: &Scene, sku: &str, location: &str) -> Figures {
    let (on_hand, held, pooled): (i64, i64, i64) =
        sqlx::query_as("select on_hand, held, pooled from onehold.pool_figures($1, $2, $3)")
            .bind(SHOP)
            .bind(sku)
            .bind(location)
            .fetch_one(scene.db.pool())
            .await
            .unwrap();
    Figures { on_hand, held, pooled, rest: on_hand - held - pooled }
}

/// How many units of the SKU are held, by the reservations themselves, at all locations.
pub(crate) async fn held(scene: &Scene, sku: &str) -> i64 {
    scene
        .number(&format!(
            "select coalesce(sum(quantity), 0)::bigint from onehold.reservations where sku = '{sku}' and state = 'held'"
        ))
        .await
}

/// Conservation: for every pool of every shop, on-hand = held + pooled + rest with a rest that is not
/// negative, no more rows out than the bound, and on-hand the sum of the ledger. And every other invariant.
pub(crate) async fn conserved(scene: &Scene) {
    conserved_or_short(scene).await;
    let open = "select count(*) from onehold.stock_shortfalls where cleared_at is null";
    assert_eq!(scene.number(open).await, 0, "nothing is lacking");
}

/// As [`conserved`], where stock may have been cut below what is held by force: then that much is recorded. A
/// buyer who had rows locked at that moment and did not buy leaves them out, recorded as lacking, until the next
/// refill takes them in: after it, no row is out that nothing stands for.
pub(crate) async fn conserved_or_short(scene: &Scene) {
    accounted_for(scene, "f.held + f.pooled - f.on_hand > s.units").await;
    scene.run("select onehold.refill_if_free(shop_id, sku, location) from onehold.stock_levels").await;
    accounted_for(scene, "f.held - f.on_hand > s.units or (f.pooled > 0 and f.held + f.pooled > f.on_hand)").await;
    scene.verify().await;
}

async fn accounted_for(scene: &Scene, unless: &str) {
    let broken: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
        "select row(l.shop_id, l.sku, l.location, f.on_hand, f.held, f.pooled, m.sum, s.units, b.pool_bound)::text
         from onehold.stock_levels l
         join onehold.shops b on b.id = l.shop_id
         cross join lateral onehold.pool_figures(l.shop_id, l.sku, l.location) f
         cross join lateral (select coalesce(sum(delta), 0)::bigint as sum from onehold.stock_movements m
                             where m.shop_id = l.shop_id and m.sku = l.sku and m.location = l.location) m
         cross join lateral (select coalesce(sum(units), 0)::bigint as units from onehold.stock_shortfalls s
                             where s.shop_id = l.shop_id and s.sku = l.sku and s.location = l.location
                               and s.cleared_at is null) s
         where ({unless}) or f.pooled > b.pool_bound or f.on_hand <> m.sum"
    )))
    .fetch_all(scene.db.pool())
    .await
    .unwrap();
    assert!(broken.is_empty(), "(shop, sku, location, on-hand, held, pooled, ledger, lacking, bound): {broken:?}");
}

/// The most unit rows of one pool.
pub(crate) async fn pool_bound(scene: &Scene, bound: i32) {
    scene.run(&format!("update onehold.shops set pool_bound = {bound} where id = 1")).await;
}

/// The body of an order with these lines.
pub(crate) fn cart(lines: Vec<Value>) -> Value {
    json!({ "lines": lines })
}

/// A line for units of a SKU, from anywhere.
pub(crate) fn units(sku: &str, quantity: i32) -> Value {
    json!({ "sku": sku, "quantity": quantity })
}

/// A line for units of a SKU from these locations, in this order.
pub(crate) fn units_from(sku: &str, quantity: i32, locations: &[&str], split: bool) -> Value {
    json!({ "sku": sku, "quantity": quantity, "locations": locations, "split": split })
}

/// Places an order with these lines; its job is not run.
pub(crate) async fn place(scene: &Scene, key: &str, lines: Vec<Value>) -> Uuid {
    scene.place(key, cart(lines)).await
}

/// Places as many orders with these lines.
pub(crate) async fn place_many(scene: &Scene, prefix: &str, orders: usize, lines: &[Value]) -> Vec<Uuid> {
    let mut ids = Vec::new();
    for n in 0..orders {
        ids.push(place(scene, &format!("{prefix}-{n}"), lines.to_vec()).await);
    }
    ids
}

/// Places an order with these lines and reserves it.
pub(crate) async fn reserved(scene: &Scene, key: &str, lines: Vec<Value>) -> Uuid {
    let id = place(scene, key, lines).await;
    assert_eq!(scene.reserve(id).await, Outcome::Reserved);
    id
}

/// Places an order with these lines, and gives why it was refused at the first try.
pub(crate) async fn refused(scene: &Scene, key: &str, lines: Vec<Value>) -> Refusal {
    let id = place(scene, key, lines).await;
    match allocator::run_rounds(&scene.db, SHOP, id, 1).await.unwrap() {
        Outcome::Refused(refusal) => refusal,
        other => panic!("{key}: {other:?}"),
    }
}

/// (location, quantity) of an order's reservations in `state`, in the order in which they were made.
pub(crate) async fn taken(scene: &Scene, id: Uuid, state: &str) -> Vec<(String, i32)> {
    let lines = scene.order(id).await.lines.into_iter();
    let reservations = lines.flat_map(|l| l.reservations).filter(|r| r.state == state);
    reservations.map(|r| (r.location, r.quantity)).collect()
}

/// Reserves all of these at once, and gives how many were reserved. Whoever was not, was refused.
pub(crate) async fn reserve_at_once(scene: &Scene, ids: Vec<Uuid>) -> usize {
    let outcomes = scene.at_once(ids, |db, id| async move { allocator::run(&db, SHOP, id).await.unwrap() }).await;
    for outcome in &outcomes {
        assert!(matches!(outcome, Outcome::Reserved | Outcome::Refused(_)), "{outcome:?}");
    }
    outcomes.iter().filter(|o| **o == Outcome::Reserved).count()
}
