//! Which units a stock line gets, and which no it gets where there are none: empty is not sold out.

use onehold::allocator::{self, Kind, Outcome, Reason, Refusal};
use serde_json::json;
use sqlx::{Connection as _, PgConnection};

use crate::scene::{SHOP, Scene};
use crate::stock_stage::{
    Posted, conserved, figures, held, place, place_many, pool_bound, post_on, receive, refused, reserved, stocked,
    taken, units, units_from,
};

fn counted(refusal: &Refusal) -> Vec<(Reason, i64)> {
    refusal.reasons.iter().map(|c| (c.reason, c.count)).collect()
}

#[tokio::test]
async fn more_than_a_pool_may_have_out_can_be_had() {
    let scene = Scene::with_machines(0).await;
    pool_bound(&scene, 5).await;
    receive(&scene, "X", "BER", 20).await;
    assert_eq!(figures(&scene, "X", "BER").await.pooled, 5);
    let id = reserved(&scene, "many", vec![units("X", 12)]).await;
    let reason = &scene.order(id).await.lines[0].reservations[0].reason;
    assert_eq!(reason["taken"], json!({"location": "BER", "quantity": 12, "from_pool": 5}));
    reserved(&scene, "all the others", vec![units("X", 8)]).await;
    let now = figures(&scene, "X", "BER").await;
    assert_eq!((now.held, now.pooled, now.rest), (20, 0, 0));
    assert_eq!(refused(&scene, "late", vec![units("X", 1)]).await.kind, Kind::Held);
    conserved(&scene).await;
}

#[tokio::test]
async fn a_line_that_may_be_split_is_filled_from_several_locations_as_preferred() {
    let scene = stocked(&[("X", "BER", 3), ("X", "FRA", 4), ("X", "AMS", 9)]).await;
    let id = reserved(&scene, "split", vec![units_from("X", 6, &["FRA", "BER"], true)]).await;
    assert_eq!(taken(&scene, id, "held").await, [("FRA".to_owned(), 4), ("BER".to_owned(), 2)]);
    let reasons = scene.order(id).await.lines.remove(0).reservations;
    assert_eq!(reasons[1].reason["tried"], json!([{"location": "FRA", "had": 4}, {"location": "BER", "had": 2}]));
    conserved(&scene).await;
}

#[tokio::test]
async fn a_line_that_may_not_be_split_wants_one_location_whole() {
    let scene = stocked(&[("X", "BER", 3), ("X", "FRA", 4), ("X", "AMS", 9)]).await;
    let refusal = refused(&scene, "whole", vec![units_from("X", 6, &["FRA", "BER"], false)]).await;
    assert_eq!((refusal.kind, refusal.retry_after_seconds), (Kind::Unavailable, None));
    assert_eq!(counted(&refusal), [(Reason::WrongLocation, 1), (Reason::InsufficientStock, 2)]);
    let now = (figures(&scene, "X", "BER").await, figures(&scene, "X", "FRA").await);
    assert_eq!((now.0.pooled, now.1.pooled), (3, 4), "what was looked at is back");
    // The first that can fill it, though it is preferred least.
    let id = reserved(&scene, "any", vec![units_from("X", 6, &["FRA", "BER", "AMS"], false)]).await;
    assert_eq!(taken(&scene, id, "held").await, [("AMS".to_owned(), 6)]);
    conserved(&scene).await;
}

#[tokio::test]
async fn locations_are_taken_as_preferred_even_where_another_has_more() {
    let scene = stocked(&[("X", "BER", 2), ("X", "FRA", 50)]).await;
    for (key, from) in [("a", "BER"), ("b", "BER"), ("c", "FRA")] {
        let id = reserved(&scene, key, vec![units_from("X", 1, &["BER", "FRA"], false)]).await;
        assert_eq!(taken(&scene, id, "held").await, [(from.to_owned(), 1)]);
    }
    conserved(&scene).await;
}

#[tokio::test]
async fn without_a_preference_the_fullest_pool_is_first() {
    let scene = stocked(&[("X", "AMS", 3), ("X", "BER", 5), ("X", "FRA", 4)]).await;
    let mut from = Vec::new();
    for n in 0..12 {
        let id = reserved(&scene, &format!("o{n}"), vec![units("X", 1)]).await;
        from.push(taken(&scene, id, "held").await.remove(0).0);
    }
    // 5-4-3, each time from the fullest; of two that are equal, the first by name.
    assert_eq!(from, ["BER", "BER", "FRA", "AMS", "BER", "FRA", "AMS", "BER", "FRA", "AMS", "BER", "FRA"]);
    conserved(&scene).await;
}

/// Another session that has `n` unit rows of a SKU locked.
async fn lock(scene: &Scene, n: i32) -> PgConnection {
    let mut rival = PgConnection::connect(&scene.test.url).await.unwrap();
    let statements =
        format!("begin; select from onehold.pool_units where sku = 'X' order by unit limit {n} for update");
    sqlx::raw_sql(sqlx::AssertSqlSafe(statements)).execute(&mut rival).await.unwrap();
    rival
}

#[tokio::test]
async fn units_that_others_have_locked_are_contended_at_each_edge() {
    let scene = stocked(&[("X", "BER", 5)]).await;
    reserved(&scene, "first", vec![units("X", 1)]).await;
    let rival = lock(&scene, 2).await;
    // On hand 5, held 1, locked 2: two can be had at once, four as soon as the others are done.
    let mut looked = 0;
    for (quantity, kind) in [(3, Kind::Contended), (4, Kind::Contended), (5, Kind::Held), (6, Kind::Unavailable)] {
        let refusal = refused(&scene, &format!("{quantity}"), vec![units("X", quantity)]).await;
        assert_eq!(refusal.kind, kind, "{quantity}");
        looked += 1;
    }
    assert_eq!(looked, 4);
    let contended = refused(&scene, "again", vec![units("X", 3)]).await;
    assert_eq!((contended.retry_after_seconds, contended.line), (Some(1), 1));
    reserved(&scene, "two", vec![units("X", 2)]).await;
    rival.close().await.unwrap();
    reserved(&scene, "the others", vec![units("X", 2)]).await;
    conserved(&scene).await;
}

#[tokio::test]
async fn a_contended_order_gets_what_comes_free_within_its_tries() {
    let scene = stocked(&[("X", "BER", 1)]).await;
    let rival = lock(&scene, 1).await;
    let id = place(&scene, "patient", vec![units("X", 1)]).await;
    let (outcome, ()) = tokio::join!(scene.reserve(id), async { rival.close().await.unwrap() });
    assert_eq!(outcome, Outcome::Reserved);
    conserved(&scene).await;
}

#[tokio::test]
async fn what_is_held_is_held_until_the_first_of_the_holds_in_the_way_lapses() {
    let scene = stocked(&[("X", "BER", 5), ("X", "FRA", 9), ("Y", "BER", 1)]).await;
    for (key, seconds, line) in [
        ("long", 600, units_from("X", 2, &["BER"], false)),
        ("short", 90, units_from("X", 1, &["BER"], false)),
        // Neither another location's holds nor another SKU's are in the way.
        ("elsewhere", 5, units_from("X", 1, &["FRA"], false)),
        ("other", 5, units("Y", 1)),
    ] {
        let mut body = crate::stock_stage::cart(vec![line]);
        body["hold_seconds"] = json!(seconds);
        let id = scene.place(key, body).await;
        assert_eq!(scene.reserve(id).await, Outcome::Reserved);
    }
    // On hand 5, held 3: two can be had, three to five are held, six were never there.
    let from_ber = |quantity| vec![units_from("X", quantity, &["BER"], false)];
    for quantity in [3, 5] {
        let refusal = refused(&scene, &format!("held-{quantity}"), from_ber(quantity)).await;
        let wait = refusal.retry_after_seconds.unwrap();
        assert_eq!(refusal.kind, Kind::Held);
        assert!((60..=90).contains(&wait), "until the shorter one lapses, not {wait}");
        assert!(counted(&refusal).contains(&(Reason::Held, 1)), "{refusal:?}");
    }
    let refusal = refused(&scene, "six", from_ber(6)).await;
    assert_eq!((refusal.kind, refusal.retry_after_seconds), (Kind::Unavailable, None));
    reserved(&scene, "two", from_ber(2)).await;
    conserved(&scene).await;
}

/// Case M4.
#[tokio::test]
async fn what_nobody_ever_stocked_is_unavailable_and_not_an_error() {
    let scene = stocked(&[("X", "BER", 1)]).await;
    for (key, line) in [
        ("sku", units("never heard of", 1)),
        ("location", units_from("X", 1, &["MARS"], false)),
        ("split", units_from("X", 1, &["MARS"], true)),
    ] {
        let refusal = refused(&scene, key, vec![line]).await;
        assert_eq!((refusal.kind, refusal.line, refusal.retry_after_seconds), (Kind::Unavailable, 1, None), "{key}");
    }
    conserved(&scene).await;
}

/// A refused cart names the line, and leaves nothing of the lines before it.
#[tokio::test]
async fn a_cart_of_many_lines_is_whole_or_names_the_line_that_cannot_be_filled() {
    let scene = stocked(&[("A", "BER", 5), ("B", "BER", 5), ("C", "BER", 1)]).await;
    let lines = vec![units("C", 2), units("B", 1), units("A", 1)];
    let refusal = refused(&scene, "cart", lines).await;
    assert_eq!((refusal.kind, refusal.line), (Kind::Unavailable, 1));
    for sku in ["A", "B", "C"] {
        assert_eq!(held(&scene, sku).await, 0);
    }
    conserved(&scene).await;
}

#[tokio::test]
async fn a_cart_of_machines_and_units_is_whole_or_empty() {
    let scene = stocked(&[("X", "BER", 1)]).await;
    scene.add_machines(1).await;
    let machine = json!({"asset": {"category": "box"}, "quantity": 1});
    let refusal = refused(&scene, "units short", vec![machine.clone(), units("X", 2)]).await;
    assert_eq!((refusal.kind, refusal.line), (Kind::Unavailable, 2));
    let two = json!({"asset": {"category": "box"}, "quantity": 2});
    let refusal = refused(&scene, "machines short", vec![units("X", 1), two]).await;
    assert_eq!((refusal.kind, refusal.line), (Kind::Unavailable, 2));
    assert_eq!(scene.number("select count(*) from onehold.reservations").await, 0);
    reserved(&scene, "both", vec![machine, units("X", 1)]).await;
    conserved(&scene).await;
}

#[tokio::test]
async fn a_lapsed_hold_in_the_way_is_expired_by_the_order_that_needs_it() {
    let scene = stocked(&[("X", "BER", 4)]).await;
    let old = reserved(&scene, "old", vec![units("X", 3)]).await;
    let live = reserved(&scene, "live", vec![units("X", 1)]).await;
    scene.lapse(old).await;
    let new = reserved(&scene, "new", vec![units("X", 2)]).await;
    assert_eq!(scene.history(old).await, ["placed", "reserved", "expired"]);
    assert_eq!(scene.history(live).await, ["placed", "reserved"]);
    assert_eq!(taken(&scene, new, "held").await, [("BER".to_owned(), 2)]);
    conserved(&scene).await;
}

/// More lapsed holds than one look expires.
#[tokio::test]
async fn very_many_lapsed_holds_in_the_way_are_expired_too() {
    let scene = stocked(&[("X", "BER", 250)]).await;
    for id in place_many(&scene, "old", 250, &[units("X", 1)]).await {
        assert_eq!(scene.reserve(id).await, Outcome::Reserved);
    }
    scene.run("update onehold.reservations set expires_at = clock_timestamp() - interval '1 second'").await;
    let id = place(&scene, "new", vec![units("X", 250)]).await;
    assert_eq!(allocator::run_rounds(&scene.db, SHOP, id, 1).await.unwrap(), Outcome::Reserved);
    assert_eq!(held(&scene, "X").await, 250);
    conserved(&scene).await;
}

/// The buyer who has the row does buy: then that much is lacking, and recorded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unit_that_was_bought_while_its_stock_was_forced_away_is_recorded_as_lacking() {
    let scene = stocked(&[("X", "BER", 2)]).await;
    let id = place(&scene, "buyer", vec![units("X", 2)]).await;
    let mut buyer = PgConnection::connect(&scene.test.url).await.unwrap();
    let buys = format!(
        "begin; select onehold.reserve_stock(1, '{id}', now() + interval '1 hour', false);
         update onehold.orders set status = 'reserved' where id = '{id}';
         insert into onehold.order_events (shop_id, order_id, kind, actor) values (1, '{id}', 'reserved', 'worker');"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(buys)).execute(&mut buyer).await.unwrap();
    let cut = post_on(scene.db.pool(), SHOP, "X", "BER", -1, "adjustment", "lost", true).await;
    assert_eq!(cut, Posted { outcome: "posted".to_owned(), lacking: Some(1) });
    sqlx::raw_sql("commit").execute(&mut buyer).await.unwrap();
    assert_eq!(scene.number("select units from onehold.stock_shortfalls where cleared_at is null").await, 1);
    receive(&scene, "X", "BER", 1).await;
    assert_eq!(scene.number("select count(*) from onehold.stock_shortfalls where cleared_at is null").await, 0);
    conserved(&scene).await;
}

/// What the search itself put together for the line before it came to an end counts neither as held by others
/// nor as gone.
#[tokio::test]
async fn a_split_line_that_was_filled_in_part_is_told_of_what_kind_its_refusal_is() {
    let scene = stocked(&[("X", "BER", 2), ("X", "FRA", 5)]).await;
    let split = |quantity| vec![units_from("X", quantity, &["BER", "FRA"], true)];
    reserved(&scene, "others", vec![units_from("X", 3, &["FRA"], false)]).await;
    // On hand 7, held 3: four can be had.
    for (quantity, kind) in [(5, Kind::Held), (7, Kind::Held), (8, Kind::Unavailable)] {
        assert_eq!(refused(&scene, &format!("{quantity}"), split(quantity)).await.kind, kind, "{quantity}");
    }
    let rival = lock(&scene, 1).await;
    assert_eq!(refused(&scene, "locked", split(4)).await.kind, Kind::Contended);
    rival.close().await.unwrap();
    reserved(&scene, "free", split(4)).await;
    conserved(&scene).await;
}

/// A hold that somebody is expiring at this very moment is no hold in the way: the order tries again.
#[tokio::test]
async fn a_lapsed_hold_that_another_is_ending_right_now_is_contended_and_not_held() {
    let scene = stocked(&[("X", "BER", 1)]).await;
    let old = reserved(&scene, "old", vec![units("X", 1)]).await;
    scene.lapse(old).await;
    let mut sweeper = PgConnection::connect(&scene.test.url).await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("begin; select from onehold.orders where id = '{old}' for update")))
        .execute(&mut sweeper)
        .await
        .unwrap();
    let refusal = refused(&scene, "new", vec![units("X", 1)]).await;
    assert_eq!((refusal.kind, refusal.retry_after_seconds), (Kind::Contended, Some(1)));
    sweeper.close().await.unwrap();
    reserved(&scene, "again", vec![units("X", 1)]).await;
    conserved(&scene).await;
}
