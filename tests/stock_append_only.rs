//! The ledger only grows, and counts each reference once, also by hand-typed SQL (cases C6, M1).

use onehold::convert::Applied;

use crate::scene::{SHOP, Scene, constraint};
use crate::stock_stage::{Figures, conserved, figures, pool_bound, post, post_on, receive, reserved, stocked, units};

#[tokio::test]
async fn a_movement_can_neither_be_changed_nor_deleted_nor_can_the_ledger_be_emptied() {
    let scene = stocked(&[("X", "BER", 7)]).await;
    for typed in [
        "update onehold.stock_movements set delta = 8",
        "update onehold.stock_movements set reference = 'another'",
        "update onehold.stock_movements set at = now()",
        "delete from onehold.stock_movements",
        "delete from onehold.stock_movements where delta > 0",
        "truncate onehold.stock_movements",
        "truncate onehold.stock_movements cascade",
        "with gone as (delete from onehold.stock_movements returning *) select count(*) from gone",
        "insert into onehold.stock_movements (shop_id, id, sku, location, delta, kind, reference)
             select shop_id, id, sku, location, delta, kind, reference from onehold.stock_movements
             on conflict (shop_id, id) do update set delta = 100",
        "merge into onehold.stock_movements m using (select 1) x on true when matched then delete",
    ] {
        assert_eq!(constraint(scene.try_run(typed).await), "the_ledger_is_append_only", "{typed}");
    }
    assert_eq!(figures(&scene, "X", "BER").await.on_hand, 7);
    conserved(&scene).await;
}

#[tokio::test]
async fn movements_typed_by_hand_move_on_hand_and_must_go_the_way_of_their_kind() {
    let scene = stocked(&[("X", "BER", 7)]).await;
    scene
        .run(
            "insert into onehold.stock_movements (shop_id, sku, location, delta, kind, reference) values
                 (1, 'X', 'BER', -2, 'adjustment', 'count'), (1, 'X', 'BER', 1, 'return', 'back'),
                 (1, 'Y', 'FRA', 3, 'receipt', 'new')",
        )
        .await;
    assert_eq!(figures(&scene, "X", "BER").await.on_hand, 6);
    assert_eq!(figures(&scene, "Y", "FRA").await.on_hand, 3);
    for (delta, kind, broken) in [
        (0, "adjustment", "a_movement_moves"),
        (-1, "receipt", "a_kind_has_its_direction"),
        (-1, "return", "a_kind_has_its_direction"),
        (-1, "release", "a_kind_has_its_direction"),
        (1, "sale", "a_kind_has_its_direction"),
        (1, "gift", "movement_kind_is_known"),
    ] {
        let typed = format!(
            "insert into onehold.stock_movements (shop_id, sku, location, delta, kind, reference)
             values (1, 'X', 'BER', {delta}, '{kind}', 'typed')"
        );
        assert_eq!(constraint(scene.try_run(&typed).await), broken, "{kind} {delta}");
    }
}

/// Case C6 and "once is once": a reservation is sold once, whoever writes the sale.
#[tokio::test]
async fn a_sale_is_named_by_its_reservation_and_counts_once() {
    let scene = stocked(&[("X", "BER", 7)]).await;
    let id = reserved(&scene, "k", vec![units("X", 2)]).await;
    assert_eq!(scene.pay(id, "paid").await, Applied::Converted);
    let named: String = sqlx::query_scalar("select reference from onehold.stock_movements where kind = 'sale'")
        .fetch_one(scene.db.pool())
        .await
        .unwrap();
    let reservation = scene.order(id).await.lines[0].reservations[0].id;
    assert_eq!(named, format!("onehold:sale:{reservation}"));
    let again = format!(
        "insert into onehold.stock_movements (shop_id, sku, location, delta, kind, reference)
         values (1, 'X', 'BER', -2, 'sale', '{named}')"
    );
    assert_eq!(constraint(scene.try_run(&again).await), "one_movement_per_reference");
    assert_eq!(figures(&scene, "X", "BER").await.on_hand, 5);
    conserved(&scene).await;
}

/// Case C6.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_reference_posted_many_times_at_once_counts_once() {
    let scene = stocked(&[("X", "BER", 1)]).await;
    let outcomes = scene
        .at_once(vec![(); 12], |db, ()| async move {
            post_on(db.pool(), SHOP, "X", "BER", 5, "receipt", "PO-1", false).await.outcome
        })
        .await;
    assert_eq!(outcomes.iter().filter(|o| *o == "posted").count(), 1, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|o| *o == "replayed").count(), 11, "{outcomes:?}");
    // The same reference at once on different pools, where no lock of a pool keeps them apart.
    let locations = ["BER", "FRA", "AMS", "CDG"];
    let outcomes = scene
        .at_once(locations.to_vec(), |db, location| async move {
            post_on(db.pool(), SHOP, "X", location, 5, "receipt", "PO-2", false).await.outcome
        })
        .await;
    assert_eq!(outcomes.iter().filter(|o| *o == "posted").count(), 1, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|o| *o == "reference_reused").count(), 3, "{outcomes:?}");
    assert_eq!(scene.number("select sum(delta)::bigint from onehold.stock_movements").await, 11);
    conserved(&scene).await;
}

#[tokio::test]
async fn a_reference_with_other_content_is_told_apart_and_counts_nothing() {
    let scene = stocked(&[("X", "BER", 1)]).await;
    let outcome = |posted: crate::stock_stage::Posted| posted.outcome;
    assert_eq!(outcome(post(&scene, SHOP, "X", "BER", 5, "receipt", "PO", false).await), "posted");
    assert_eq!(outcome(post(&scene, SHOP, "X", "BER", 5, "receipt", "PO", false).await), "replayed");
    for (sku, location, delta, kind) in
        [("Y", "BER", 5, "receipt"), ("X", "FRA", 5, "receipt"), ("X", "BER", 6, "receipt"), ("X", "BER", 5, "return")]
    {
        assert_eq!(outcome(post(&scene, SHOP, sku, location, delta, kind, "PO", false).await), "reference_reused");
    }
    assert_eq!(figures(&scene, "X", "BER").await.on_hand, 6);
    conserved(&scene).await;
}

/// Case M1.
#[tokio::test]
async fn stock_cannot_be_cut_below_what_is_held_unless_forced_and_then_the_shortfall_stands_until_it_is_made_good() {
    let scene = stocked(&[("X", "BER", 10)]).await;
    reserved(&scene, "k", vec![units("X", 6)]).await;
    let before = figures(&scene, "X", "BER").await;
    let posted = post(&scene, SHOP, "X", "BER", -5, "adjustment", "cut", false).await;
    assert_eq!((posted.outcome.as_str(), posted.lacking), ("would_oversell", Some(1)));
    assert_eq!(figures(&scene, "X", "BER").await, before, "nothing was changed");
    // Just as much as is not held can go.
    assert_eq!(post(&scene, SHOP, "X", "BER", -4, "adjustment", "fits", false).await.outcome, "posted");
    assert_eq!(figures(&scene, "X", "BER").await, Figures { on_hand: 6, held: 6, pooled: 0, rest: 0 });
    let posted = post(&scene, SHOP, "X", "BER", -3, "adjustment", "forced", true).await;
    assert_eq!((posted.outcome.as_str(), posted.lacking), ("posted", Some(3)));
    let open = "select coalesce(sum(units), 0)::bigint from onehold.stock_shortfalls where cleared_at is null";
    assert_eq!(scene.number(open).await, 3);
    receive(&scene, "X", "BER", 2).await;
    assert_eq!(scene.number(open).await, 1);
    receive(&scene, "X", "BER", 1).await;
    assert_eq!(scene.number(open).await, 0);
    assert_eq!(figures(&scene, "X", "BER").await, Figures { on_hand: 6, held: 6, pooled: 0, rest: 0 });
    conserved(&scene).await;
}

/// Reading on-hand stays cheap and right: what is rolled up and what is not count together.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_hand_is_the_sum_of_the_ledger_however_much_of_it_is_rolled_up() {
    let scene = Scene::with_machines(0).await;
    pool_bound(&scene, 4).await;
    scene
        .run(
            "insert into onehold.stock_movements (shop_id, sku, location, delta, kind, reference)
             select 1, sku, location, delta, 'receipt', sku || n
             from generate_series(1, 20) n, (values ('X', 'BER', 1), ('Y', 'FRA', 2)) s (sku, location, delta)",
        )
        .await;
    let rolled = scene
        .at_once(vec![7; 6], |db, limit| async move {
            sqlx::query_scalar::<_, i64>("select onehold.roll_up(1, $1)")
                .bind(limit)
                .fetch_one(db.pool())
                .await
                .unwrap()
        })
        .await;
    assert!(rolled.iter().sum::<i64>() > 0);
    conserved(&scene).await;
    while scene.number("select onehold.roll_up(1, 1000)").await > 0 {}
    assert_eq!(scene.number("select count(*) from onehold.stock_deltas").await, 0);
    let (x, y) = (figures(&scene, "X", "BER").await, figures(&scene, "Y", "FRA").await);
    assert_eq!((x.on_hand, y.on_hand), (20, 40));
    conserved(&scene).await;
}
