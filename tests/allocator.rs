//! What the allocator lists, locks and refuses (cases A10 to A15, A17).

use onehold::allocator::attempt::{Attempt, NewHold, hold};
use onehold::allocator::candidates::{list, lock_first};
use onehold::allocator::{self, Kind, Outcome, Reason, Refusal};
use onehold::db::{Fault, Verdict};
use onehold::orders;
use onehold::stock::requirement::Requirement;
use serde_json::{Value, json};
use sqlx::types::Uuid;

use crate::scene::{SHOP, Scene, one_machine};

fn refusal(outcome: Outcome) -> Refusal {
    match outcome {
        Outcome::Refused(refusal) => refusal,
        other => panic!("refused, not {other:?}"),
    }
}

fn counted(refusal: &Refusal) -> Vec<(Reason, i64)> {
    refusal.reasons.iter().map(|c| (c.reason, c.count)).collect()
}

async fn ask(scene: &Scene, key: &str, asset: Value) -> Outcome {
    let id = scene.place(key, json!({"lines": [{"asset": asset, "quantity": 1}]})).await;
    scene.reserve(id).await
}

/// Case A10, and every other reason that can rule an asset out, counted over the whole category.
#[tokio::test]
async fn a_refusal_counts_each_reason_over_the_whole_category() {
    let scene = Scene::with_machines(6).await;
    scene
        .run(
            "update onehold.assets set available_from = now() + interval '1 day' where key = 'm-01';
             update onehold.assets set status = 'maintenance' where key = 'm-02';
             update onehold.assets set location = 'FRA' where key = 'm-03';
             update onehold.assets set vendor = 'HP' where key = 'm-04';
             update onehold.assets set attributes = '{\"ram_gb\": 64}' where key = 'm-05';
             update onehold.assets set attributes = '{\"ram_gb\": 256}' where key in ('m-01', 'm-02', 'm-03', 'm-04');",
        )
        .await;
    let wanted =
        json!({"category": "box", "locations": ["BER"], "vendor": "Dell", "attributes": {"ram_gb": {"min": 128}}});
    let no = refusal(ask(&scene, "picky", wanted).await);
    assert_eq!((no.kind, no.retry_after_seconds), (Kind::Unavailable, None));
    let expected = [
        (Reason::WrongLocation, 1),
        (Reason::WrongVendor, 1),
        // Too little in m-05, none at all in m-06: a missing attribute meets no condition.
        (Reason::AttributeMismatch, 2),
        (Reason::NotReady, 2),
    ];
    assert_eq!(counted(&no), expected);
    // The refusal stands in the order as it was decided.
    let id = scene.place("again", one_machine()).await;
    assert_eq!(scene.reserve(id).await, Outcome::Reserved);
    assert_eq!(scene.assets(id, "held").await, ["m-03"], "the first that is ready");
}

#[tokio::test]
async fn a_category_that_nobody_has_is_unavailable_and_not_an_error() {
    let scene = Scene::with_machines(1).await;
    let no = refusal(ask(&scene, "k", json!({"category": "yacht"})).await);
    assert_eq!((no.kind, no.reasons.len()), (Kind::Unavailable, 0));
}

#[tokio::test]
async fn all_that_fits_held_is_held_until_the_first_lapse_and_all_sold_is_unavailable() {
    let scene = Scene::with_machines(1).await;
    let first = scene.reserved("first").await;
    let no = refusal(ask(&scene, "second", json!({"category": "box"})).await);
    assert_eq!(no.kind, Kind::Held);
    let wait = no.retry_after_seconds.unwrap();
    assert!((890..=900).contains(&wait), "the first hold lapses in 900 s, not {wait}");
    assert_eq!(counted(&no), [(Reason::Held, 1)]);

    scene.pay(first, "evt").await;
    let no = refusal(ask(&scene, "third", json!({"category": "box"})).await);
    assert_eq!((no.kind, no.retry_after_seconds), (Kind::Unavailable, None));
    assert_eq!(counted(&no), [(Reason::Bound, 1)]);
    // Two are wanted and one is held: nothing that lapses can help.
    let scene = Scene::with_machines(1).await;
    scene.reserved("first").await;
    let two = scene.place("two", json!({"lines": [{"asset": {"category": "box"}, "quantity": 2}]})).await;
    assert_eq!(refusal(scene.reserve(two).await).kind, Kind::Unavailable);
}

#[tokio::test]
async fn preferred_locations_come_first_then_rank_then_key_and_the_reason_says_so() {
    let scene = Scene::with_machines(3).await;
    scene
        .run(
            "update onehold.assets set location = 'FRA', rank = 5 where key = 'm-01';
             update onehold.assets set rank = 2 where key = 'm-02';
             update onehold.assets set rank = 1 where key = 'm-03';",
        )
        .await;
    let body = json!({"lines": [{"asset": {"category": "box", "locations": ["FRA", "BER"]}, "quantity": 1}]});
    let id = scene.place("fra", body).await;
    scene.reserve(id).await;
    let order = scene.order(id).await;
    let reservation = &order.lines[0].reservations[0];
    assert_eq!((reservation.asset.as_deref(), reservation.location.as_str()), (Some("m-01"), "FRA"));
    let reason = &reservation.reason;
    assert_eq!(reason["candidates"], 3);
    assert_eq!((&reason["skipped"], &reason["attempts"]), (&json!(0), &json!(1)));
    assert_eq!(reason["taken"]["rank"], 5);
    assert_eq!(reason["runner_up"]["facts"]["asset"], "m-03");
    assert_eq!(reason["runner_up"]["lost_because"], "less_preferred_location");

    let anywhere = scene.place("any", one_machine()).await;
    scene.reserve(anywhere).await;
    let order = scene.order(anywhere).await;
    assert_eq!(order.lines[0].reservations[0].asset.as_deref(), Some("m-03"));
    assert_eq!(order.lines[0].reservations[0].reason["runner_up"]["lost_because"], "higher_rank");
}

#[tokio::test]
async fn attributes_are_compared_as_json_values_of_one_type() {
    let scene = Scene::with_machines(1).await;
    scene
        .run(r#"update onehold.assets set attributes = '{"ram_gb": 128, "raid": true, "disk": "nvme", "n": null, "tags": ["a", "b"]}'"#)
        .await;
    let asked = |conditions: Value| json!({"category": "box", "attributes": conditions});
    let cases = [
        (json!({"ram_gb": {"min": 128, "max": 128}}), true),
        (json!({"ram_gb": {"min": 128.5}}), false),
        (json!({"ram_gb": {"eq": 128.0}}), true),
        (json!({"ram_gb": {"min": "1"}}), false),
        (json!({"raid": {"eq": true}}), true),
        (json!({"raid": {"eq": false}}), false),
        (json!({"disk": {"in": ["sata", "nvme"]}}), true),
        (json!({"disk": {"in": ["sata"]}}), false),
        (json!({"tags": {"eq": ["a", "b"]}}), true),
        (json!({"tags": {"in": [["b", "a"]]}}), false),
        (json!({"n": {"eq": null}}), true),
        (json!({"gone": {"eq": null}}), false),
        (json!({"gone": {"max": 9}}), false),
    ];
    let mut conn = scene.db.pool().acquire().await.unwrap();
    for (conditions, fits) in cases {
        let wanted: Requirement = serde_json::from_value(asked(conditions.clone())).unwrap();
        let listed = list(&mut conn, SHOP, &wanted).await.unwrap();
        assert_eq!(listed.len(), usize::from(fits), "{conditions}");
    }
}

/// Case A11: history neither blocks nor counts.
#[tokio::test]
async fn an_asset_with_a_lapsed_hold_and_an_ended_binding_is_sold_again() {
    let scene = Scene::with_machines(1).await;
    let lapsed = scene.reserved("lapsed").await;
    scene.lapse(lapsed).await;
    let sold = scene.reserved("sold").await;
    scene.pay(sold, "evt").await;
    orders::release(&scene.db, SHOP, sold, "api:test", None, orders::AfterRelease::Ready).await.unwrap();
    assert_eq!(ask(&scene, "new", json!({"category": "box"})).await, Outcome::Reserved);
    scene.verify().await;
}

/// Case A12: the best 30 of 40 are locked by others, so the 25 that are looked at all are.
#[tokio::test]
async fn a_search_that_meets_only_locked_candidates_ends_after_25_as_contended() {
    let scene = Scene::with_machines(40).await;
    #[allow(clippy::disallowed_methods, reason = "a rival, not the product")]
    let mut rival = scene.db.pool().begin().await.unwrap();
    sqlx::query("select from onehold.assets where key <= 'm-30' for update").execute(&mut *rival).await.unwrap();
    let id = scene.place_one("k").await;
    let no = refusal(allocator::run_rounds(&scene.db, SHOP, id, 1).await.unwrap());
    assert_eq!((no.kind, no.retry_after_seconds), (Kind::Contended, Some(1)));
    // Five fewer locked, and the search finds the first that is free: skips cost no attempt.
    rival.rollback().await.unwrap();
    #[allow(clippy::disallowed_methods, reason = "a rival, not the product")]
    let mut rival = scene.db.pool().begin().await.unwrap();
    sqlx::query("select from onehold.assets where key <= 'm-24' for update").execute(&mut *rival).await.unwrap();
    let id = scene.place_one("k2").await;
    assert_eq!(allocator::run_rounds(&scene.db, SHOP, id, 1).await.unwrap(), Outcome::Reserved);
    let order = scene.order(id).await;
    let reservation = &order.lines[0].reservations[0];
    assert_eq!(reservation.asset.as_deref(), Some("m-25"));
    assert_eq!((&reservation.reason["skipped"], &reservation.reason["attempts"]), (&json!(24), &json!(1)));
}

/// Makes the insert race lost for the machines up to `last`, as a neighbour does who commits between the
/// lock and the insert.
async fn lose_inserts_up_to(scene: &Scene, last: &str) {
    scene
        .run(&format!(
            "create function public.lose() returns trigger language plpgsql as $$
             begin
                 if exists (select from onehold.assets where id = new.asset_id and key <= '{last}') then
                     raise exception 'lost' using errcode = 'unique_violation', constraint = 'one_hold_per_asset';
                 end if;
                 return new;
             end $$;
             create trigger lose before insert on onehold.reservations for each row execute function public.lose();"
        ))
        .await;
}

/// Case A13: six are lost in a row, and the fifth attempt is the last.
#[tokio::test]
async fn a_search_ends_after_five_lost_inserts_as_contended_and_the_transaction_stays_usable() {
    let scene = Scene::with_machines(7).await;
    lose_inserts_up_to(&scene, "m-06").await;
    let id = scene.place_one("k").await;
    let no = refusal(allocator::run_rounds(&scene.db, SHOP, id, 1).await.unwrap());
    assert_eq!(no.kind, Kind::Contended);
    // The refusal itself was written in that transaction.
    assert_eq!(scene.history(id).await, ["placed", "refused"]);

    let scene = Scene::with_machines(7).await;
    lose_inserts_up_to(&scene, "m-04").await;
    let id = scene.place_one("k").await;
    assert_eq!(allocator::run_rounds(&scene.db, SHOP, id, 1).await.unwrap(), Outcome::Reserved);
    let reason = &scene.order(id).await.lines[0].reservations[0].reason;
    assert_eq!((&reason["attempts"], &reason["taken"]["asset"]), (&json!(5), &json!("m-05")));
}

/// Case A15: collisions on the second line leave the first line's work as it is.
#[tokio::test]
async fn work_done_before_a_collision_in_the_same_transaction_survives() {
    let scene = Scene::with_machines(6).await;
    scene.run("insert into onehold.assets (shop_id, key, category, location) values (1, 'a-0', 'first', 'BER')").await;
    lose_inserts_up_to(&scene, "a-").await;
    scene.run("drop trigger lose on onehold.reservations; drop function public.lose()").await;
    lose_inserts_up_to(&scene, "m-04").await;
    scene.run("update onehold.assets set key = 'z-0' where key = 'a-0'").await;
    let body = json!({"lines": [
        {"asset": {"category": "first"}, "quantity": 1}, {"asset": {"category": "box"}, "quantity": 1}]});
    let id = scene.place("k", body).await;
    assert_eq!(scene.reserve(id).await, Outcome::Reserved);
    assert_eq!(scene.assets(id, "held").await, ["z-0", "m-05"]);
}

/// Case A14: between the list and the lock a neighbour holds, converts and commits.
#[tokio::test]
async fn an_asset_that_is_sold_between_the_list_and_the_lock_is_not_sold_again() {
    let scene = Scene::with_machines(1).await;
    let late = scene.place_one("late").await;
    let wanted = Requirement { category: "box".into(), locations: None, vendor: None, attributes: Default::default() };
    let answer = scene
        .db
        .transaction("test", |mut tx| {
            let (scene, wanted) = (&scene, &wanted);
            Box::pin(async move {
                let listed = list(&mut tx, SHOP, wanted).await?;
                assert_eq!(listed.len(), 1);
                let fast = scene.reserved("fast").await;
                scene.pay(fast, "evt").await;
                // The lock looks at the row as it is now.
                assert_eq!(lock_first(&mut tx, SHOP, wanted, &listed).await?, None);
                // And without the lock the database still refuses, by a name that means "taken".
                Ok(Verdict::Commit(insert_anyway(&mut tx, late, listed[0].id).await?))
            })
        })
        .await
        .unwrap();
    assert_eq!(answer, Attempt::Taken);
    assert_eq!(scene.number("select count(*) from onehold.reservations").await, 1);
    scene.verify().await;
}

async fn insert_anyway(tx: &mut sqlx::PgConnection, order: Uuid, asset: Uuid) -> Result<Attempt, Fault> {
    let reason = json!({});
    let expires_at: chrono::DateTime<chrono::Utc> =
        sqlx::query_scalar("select clock_timestamp() + interval '1 minute'").fetch_one(&mut *tx).await?;
    let new = NewHold {
        shop_id: SHOP,
        order,
        line: 1,
        slot: 1,
        acquisition: 1,
        asset,
        location: "BER",
        reason: &reason,
        expires_at,
    };
    hold(tx, &new).await
}

/// A slot that has its reservation keeps it: the unique key answers, not a prior read.
#[tokio::test]
async fn a_second_hold_for_one_slot_is_answered_by_the_first() {
    let scene = Scene::with_machines(2).await;
    let id = scene.reserved("k").await;
    let other: Uuid = sqlx::query_scalar("select id from onehold.assets where key = 'm-02'")
        .fetch_one(scene.db.pool())
        .await
        .unwrap();
    let answer = scene
        .db
        .transaction("test", |mut tx| {
            Box::pin(async move { Ok(Verdict::Commit(insert_anyway(&mut tx, id, other).await?)) })
        })
        .await
        .unwrap();
    assert_eq!(answer, Attempt::HasOne);
    assert_eq!(scene.assets(id, "held").await, ["m-01"]);
    assert_eq!(scene.number("select count(*) from onehold.assets where owner_id is not null").await, 1);
}

/// Case A17: nothing sweeps, and a lapsed hold stands on the only machine.
#[tokio::test]
async fn a_lapsed_hold_in_the_way_is_expired_by_the_order_that_needs_its_machine() {
    let scene = Scene::with_machines(1).await;
    let old = scene.reserved("old").await;
    scene.lapse(old).await;
    let new = scene.place_one("new").await;
    assert_eq!(scene.reserve(new).await, Outcome::Reserved);
    let order = scene.order(old).await;
    assert_eq!((order.status.code(), order.hold_expires_at), ("expired", None));
    assert_eq!(scene.history(old).await, ["placed", "reserved", "expired"]);
    scene.verify().await;
}

#[tokio::test]
async fn a_question_about_availability_says_why_not_and_takes_no_lock() {
    let scene = Scene::with_machines(3).await;
    scene.reserved("holder").await;
    scene.run("update onehold.assets set status = 'maintenance' where key = 'm-03'").await;
    let lines = json!([{"asset": {"category": "box"}, "quantity": 1}]);
    let answer = allocator::availability(&scene.db, SHOP, &lines, 0).await.unwrap();
    let line = &answer["lines"][0];
    assert_eq!((&line["line"], &line["available"]), (&json!(1), &json!(1)));
    let expected = json!([
        {"asset": "m-02", "eligible": true, "reasons": []},
        {"asset": "m-01", "eligible": false, "reasons": ["held"]},
        {"asset": "m-03", "eligible": false, "reasons": ["not_ready"]},
    ]);
    assert_eq!(line["candidates"], expected);
    let behind = allocator::availability(&scene.db, SHOP, &lines, 100).await.unwrap();
    assert_eq!((&behind["lines"][0]["available"], &behind["lines"][0]["candidates"]), (&json!(1), &json!([])));
    assert_eq!(scene.number("select count(*) from onehold.reservations").await, 1);
}

/// What was asked for is looked at again under the lock: an asset that was moved, or described anew, between
/// the list and the lock is not what the line wants any more.
#[tokio::test]
async fn an_asset_that_is_moved_or_changed_between_the_list_and_the_lock_is_passed_over() {
    for change in ["location = 'FRA'", "category = 'other'", "vendor = 'HP'", "attributes = '{}'"] {
        let scene = Scene::with_machines(2).await;
        scene.run("update onehold.assets set attributes = '{\"ram_gb\": 256}'").await;
        let wanted: Requirement = serde_json::from_value(json!({"category": "box", "locations": ["BER"],
            "vendor": "Dell", "attributes": {"ram_gb": {"min": 128}}}))
        .unwrap();
        let mut conn = scene.db.pool().acquire().await.unwrap();
        let listed = list(&mut conn, SHOP, &wanted).await.unwrap();
        assert_eq!(listed.len(), 2);
        scene.run(&format!("update onehold.assets set {change} where key = 'm-01'")).await;
        assert_eq!(lock_first(&mut conn, SHOP, &wanted, &listed).await.unwrap(), Some(1), "{change}");
    }
}

/// A line that takes anything does not take what only another line of its cart can use.
#[tokio::test]
async fn the_pickier_line_of_a_cart_chooses_first() {
    let scene = Scene::with_machines(2).await;
    scene.run("update onehold.assets set location = 'FRA' where key = 'm-02'").await;
    let body = json!({"lines": [{"asset": {"category": "box"}, "quantity": 1},
                                {"asset": {"category": "box", "locations": ["BER"]}, "quantity": 1}]});
    let id = scene.place("k", body).await;
    assert_eq!(scene.reserve(id).await, Outcome::Reserved);
    assert_eq!(scene.assets(id, "held").await, ["m-02", "m-01"]);
}

#[tokio::test]
async fn a_question_counts_what_its_own_lines_would_take() {
    let scene = Scene::with_machines(0).await;
    scene
        .run(
            "insert into onehold.assets (shop_id, key, category, location, rank, attributes) values
                 (1, 'a', 'box', 'BER', 1, '{\"gpu\": true}'), (1, 'b', 'box', 'BER', 2, '{}')",
        )
        .await;
    // The picky line has the first turn, wherever it stands, so that both can be filled.
    let picky = json!({"asset": {"category": "box", "attributes": {"gpu": {"eq": true}}}, "quantity": 1});
    let any = json!({"asset": {"category": "box"}, "quantity": 1});
    let ask = async |lines: serde_json::Value| {
        let answer = allocator::availability(&scene.db, SHOP, &lines, 0).await.unwrap();
        let of = |line: &serde_json::Value| line["available"].as_i64().unwrap();
        answer["lines"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(ask(json!([any, picky])).await, [1, 1]);
    assert_eq!(ask(json!([any, any, any])).await, [2, 1, 0]);
    assert_eq!(ask(json!([picky, picky])).await, [1, 0]);
    // What cannot be filled takes nothing.
    let three = json!({"asset": {"category": "box"}, "quantity": 3});
    assert_eq!(ask(json!([three, any])).await, [2, 2]);
}
