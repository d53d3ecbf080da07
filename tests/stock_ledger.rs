//! The ledger under load and by hand: roll-up beside sales, and what `verify` says of units that are not
//! accounted for.

use onehold::stock::ledger;
use serde_json::{Value, json};

use crate::scene::{SHOP, Scene, constraint};

async fn stocked(units: i32) -> Scene {
    let scene = Scene::with_machines(0).await;
    receive(&scene, units, "PO-1").await;
    scene
}

async fn receive(scene: &Scene, units: i32, reference: &str) {
    scene
        .run(&format!(
            "select onehold.post_movement(1, 'PSU', 'BER', {units}, 'receipt', '{reference}', 'test', false)"
        ))
        .await;
}

fn wants(units: i32) -> Value {
    json!({"lines": [{"sku": "PSU", "quantity": units, "locations": null, "split": false}]})
}

/// What breaks, in the words of `verify`.
async fn broken(scene: &Scene) -> Vec<(String, i64)> {
    let checks = onehold::ops::verify::verify(&scene.db, |_| {}).await.unwrap();
    checks.into_iter().filter(|check| check.broken > 0).map(|check| (check.invariant, check.broken)).collect()
}

async fn says(scene: &Scene, beginning: &str) {
    let broken = broken(scene).await;
    assert!(broken.iter().any(|(says, n)| says.starts_with(beginning) && *n == 1), "{beginning:?}: {broken:?}");
}

#[tokio::test]
async fn rolling_up_keeps_on_hand_while_sales_run_at_once() {
    let scene = stocked(200).await;
    let mut orders = Vec::new();
    for n in 0..24 {
        let id = scene.place(&format!("o{n}"), wants(2)).await;
        scene.reserve(id).await;
        scene.keep_event(&id.to_string(), &format!("e{n}"), "succeeded").await;
        orders.push(Some(format!("e{n}")));
    }
    // Sales, roll-ups and looks at on-hand minus held, which no sale changes, all at once.
    let all: Vec<Option<String>> = orders.into_iter().flat_map(|event| [event, None, None]).collect();
    scene
        .at_once(all, |db, event| async move {
            match event {
                Some(event) => {
                    onehold::convert::apply(&db, SHOP, "standard", &event).await.unwrap();
                }
                None => {
                    ledger::roll_up(&db, SHOP).await.unwrap();
                    let level = ledger::levels(&db, SHOP, "PSU").await.unwrap().remove(0);
                    assert_eq!((level.available, level.pooled), (152, 152));
                }
            }
        })
        .await;
    ledger::roll_up(&scene.db, SHOP).await.unwrap();
    assert_eq!(ledger::roll_up(&scene.db, SHOP).await.unwrap(), 0);
    assert_eq!(scene.number("select count(*) from onehold.stock_deltas").await, 0);
    assert_eq!(scene.number("select rolled from onehold.stock_levels").await, 152);
    let level = ledger::levels(&scene.db, SHOP, "PSU").await.unwrap().remove(0);
    assert_eq!((level.on_hand, level.held, level.pooled), (152, 0, 152));
    scene.verify().await;
}

/// Movements of eight pools, PSU with one of them, that nothing has rolled up.
async fn movements(count: i32) -> Scene {
    let scene = Scene::with_machines(0).await;
    scene
        .run(&format!(
            "insert into onehold.stock_movements (shop_id, sku, location, delta, kind, reference)
             select 1, case n when 1 then 'PSU' else 'S' || n % 7 end, 'BER', 1, 'receipt', 'r' || n
             from generate_series(1, {count}) n"
        ))
        .await;
    scene
}

#[tokio::test]
async fn rolling_up_ends_with_everything_and_leaves_what_others_have_locked() {
    let scene = movements(12_001).await;
    let mut other = scene.db.pool().acquire().await.unwrap();
    sqlx::raw_sql("begin; select from onehold.stock_deltas where sku = 'PSU' for update")
        .execute(&mut *other)
        .await
        .unwrap();
    assert_eq!(ledger::roll_up(&scene.db, SHOP).await.unwrap(), 12_000);
    sqlx::raw_sql("rollback").execute(&mut *other).await.unwrap();
    assert_eq!(ledger::roll_up(&scene.db, SHOP).await.unwrap(), 1);
    assert_eq!(scene.number("select sum(rolled)::bigint from onehold.stock_levels").await, 12_001);
    scene.verify().await;
}

#[tokio::test]
async fn six_at_once_roll_each_movement_up_once() {
    let scene = movements(12_001).await;
    let rolled = scene.at_once(vec![(); 6], |db, ()| async move { ledger::roll_up(&db, SHOP).await.unwrap() }).await;
    let left = ledger::roll_up(&scene.db, SHOP).await.unwrap();
    assert_eq!(rolled.iter().sum::<u64>() + left, 12_001, "{rolled:?}");
    assert_eq!(scene.number("select sum(rolled)::bigint from onehold.stock_levels").await, 12_001);
    scene.verify().await;
}

#[tokio::test]
async fn taking_units_reads_those_and_not_the_pool_whatever_the_statistics_say() {
    let scene = Scene::with_machines(0).await;
    // As on the day of the first receipt, and as in a shop whose pools are mostly small.
    scene.run("analyze onehold.pool_units").await;
    receive(&scene, 5_000, "PO-1").await;
    let mut conn = scene.db.pool().acquire().await.unwrap();
    sqlx::raw_sql("begin; select onehold.take_units(1, 'PSU', 'BER', 3)").execute(&mut *conn).await.unwrap();
    let read = "select idx_tup_fetch from pg_stat_xact_user_tables where relid = 'onehold.pool_units'::regclass";
    let read: i64 = sqlx::query_scalar(read).fetch_one(&mut *conn).await.unwrap();
    assert!((3..=12).contains(&read), "{read} rows were read to take 3");
    sqlx::raw_sql("rollback").execute(&mut *conn).await.unwrap();
}

#[tokio::test]
async fn a_movement_is_never_changed_or_removed_by_hand() {
    let scene = stocked(3).await;
    for statement in [
        "update onehold.stock_movements set delta = 4",
        "delete from onehold.stock_movements",
        "truncate onehold.stock_movements",
    ] {
        assert_eq!(constraint(scene.try_run(statement).await), "the_ledger_is_append_only", "{statement}");
    }
    scene.verify().await;
}

#[tokio::test]
async fn verify_sees_a_unit_too_many_and_one_too_few() {
    let scene = stocked(5).await;
    assert!(broken(&scene).await.is_empty());
    scene.run("insert into onehold.pool_units values (1, 'PSU', 'BER', 999)").await;
    says(&scene, "every unit is accounted for").await;
    scene.run("delete from onehold.pool_units where unit = 999").await;
    scene.run("insert into onehold.pool_units values (1, 'GHOST', 'BER', 1)").await;
    says(&scene, "every unit is accounted for").await;
    scene.run("delete from onehold.pool_units where sku = 'GHOST'").await;
    scene.run("update onehold.shops set pool_bound = 4").await;
    says(&scene, "no pool has more unit rows").await;
    scene.run("update onehold.shops set pool_bound = 1000").await;
    scene.run("update onehold.stock_levels set rolled = rolled + 1").await;
    says(&scene, "the ledger's sum is").await;
    scene.run("update onehold.stock_levels set rolled = rolled - 1").await;
    scene
        .run(
            "insert into onehold.stock_movements (shop_id, sku, location, delta, kind, reference)
             values (1, 'PSU', 'BER', 1, 'receipt', 'typed')",
        )
        .await;
    scene.run("delete from onehold.stock_deltas").await;
    says(&scene, "the ledger's sum is").await;
}

#[tokio::test]
async fn verify_sees_holds_that_are_not_counted_as_held() {
    let scene = stocked(5).await;
    let id = scene.place("a", wants(2)).await;
    scene.reserve(id).await;
    assert!(broken(&scene).await.is_empty());
    scene.run("update onehold.stock_levels set held = held + 1").await;
    says(&scene, "what is held is what was rolled up").await;
    scene.run("update onehold.stock_levels set held = held - 1").await;
    scene.run("delete from onehold.stock_deltas").await;
    says(&scene, "what is held is what was rolled up").await;
}

/// Holds that are typed by hand count as well, each statement's once; and those that end count no more.
#[tokio::test]
async fn what_is_held_follows_whatever_begins_or_ends_holds() {
    let scene = stocked(9).await;
    for n in 0..3 {
        let id = scene.place(&format!("o{n}"), wants(2)).await;
        scene.reserve(id).await;
    }
    let held = || async { ledger::levels(&scene.db, SHOP, "PSU").await.unwrap().remove(0).held };
    assert_eq!(held().await, 6);
    let first = "(select id from onehold.orders where idempotency_key = 'o0')";
    scene.run(&format!("update onehold.reservations set state = 'expired' where order_id = {first}")).await;
    assert_eq!(held().await, 4);
    scene
        .run("update onehold.reservations set expires_at = expires_at + interval '1 second' where state = 'held'")
        .await;
    assert_eq!(held().await, 4);
    ledger::roll_up(&scene.db, SHOP).await.unwrap();
    assert_eq!(held().await, 4);
    scene.run("delete from onehold.reservations where state = 'held'").await;
    assert_eq!(held().await, 0);
    scene
        .run(&format!(
            "insert into onehold.reservations (shop_id, order_id, line, sku, location, quantity, expires_at)
             select 1, {first}, n, 'PSU', 'BER', n, now() + interval '1 hour' from generate_series(3, 4) n"
        ))
        .await;
    assert_eq!(held().await, 7);
    assert_eq!(scene.number("select count(*) from onehold.stock_deltas where held <> 0").await, 2);
}

#[tokio::test]
async fn verify_sees_holds_and_sales_that_the_ledger_does_not_know() {
    let scene = stocked(5).await;
    let id = scene.place("a", wants(5)).await;
    scene.reserve(id).await;
    scene.run("insert into onehold.stock_movements (shop_id, sku, location, delta, kind, reference) values (1, 'PSU', 'BER', -1, 'adjustment', 'typed')").await;
    says(&scene, "no more is held").await;
    receive(&scene, 1, "PO-2").await;
    scene.run("insert into onehold.stock_movements (shop_id, sku, location, delta, kind, reference) values (1, 'X', 'BER', 1, 'receipt', 'x'), (1, 'X', 'BER', -1, 'sale', 'onehold:sale:' || gen_random_uuid())").await;
    says(&scene, "every sale in the ledger").await;

    let scene = stocked(5).await;
    let id = scene.place("a", wants(2)).await;
    scene.reserve(id).await;
    scene.run(&format!("update onehold.reservations set state = 'converted' where order_id = '{id}'")).await;
    says(&scene, "every converted hold of stock").await;

    let scene = stocked(5).await;
    let id = scene.place("a", wants(2)).await;
    scene.reserve(id).await;
    scene.pay(id, "e").await;
    assert!(broken(&scene).await.is_empty());
    scene.run(&format!("update onehold.orders set status = 'released' where id = '{id}'")).await;
    says(&scene, "the units of a released order").await;
    scene.run(&format!("insert into onehold.stock_movements (shop_id, sku, location, delta, kind, reference) select 1, 'PSU', 'BER', 2, 'release', 'onehold:release:' || id from onehold.reservations where order_id = '{id}'")).await;
    scene.run(&format!("update onehold.orders set status = 'converted' where id = '{id}'")).await;
    says(&scene, "every sale in the ledger").await;
}
