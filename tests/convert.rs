//! Holds that become sales, and money that finds none (cases A8, D1, D2, W1, W7 and the ends of W3 to W6).

use std::time::Duration;

use onehold::allocator::{Kind, Outcome};
use onehold::convert::{self, Applied};
use onehold::db::Db;
use onehold::sweep;
use serde_json::json;

use crate::scene::{SHOP, Scene};

const ACTIVE: &str = "select count(*) from onehold.bindings where ended_at is null";

/// Safe to repeat, and one story told once.
#[tokio::test]
async fn a_paid_hold_becomes_a_sale_and_a_second_run_changes_nothing() {
    let scene = Scene::with_machines(1).await;
    let id = scene.reserved("k").await;
    assert_eq!(scene.pay(id, "evt").await, Applied::Converted);
    assert_eq!(scene.apply("evt").await, Applied::AlreadySettled);
    let order = scene.order(id).await;
    assert_eq!((order.status.code(), order.payment.state.code()), ("converted", "paid"));
    assert_eq!(scene.assets(id, "converted").await, ["m-01"]);
    assert_eq!(scene.history(id).await, ["placed", "reserved", "converted"]);
    assert_eq!(scene.number(ACTIVE).await, 1);
    scene.verify().await;
}

/// Case Q8 at its end: one event's job runs five times at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_runs_of_one_event_at_once_convert_once() {
    let scene = Scene::with_machines(1).await;
    let id = scene.reserved("k").await;
    scene.keep_event(&id.to_string(), "evt", "succeeded").await;
    let answers = scene
        .at_once(vec![(); 5], |db, ()| async move { convert::apply(&db, SHOP, "standard", "evt").await.unwrap() })
        .await;
    assert_eq!(answers.iter().filter(|a| **a == Applied::Converted).count(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|a| **a == Applied::AlreadySettled).count(), 4, "{answers:?}");
    assert_eq!(scene.history(id).await, ["placed", "reserved", "converted"]);
    scene.verify().await;
}

/// Case W7: session completed and intent succeeded speak of one payment.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_different_events_for_one_payment_convert_once() {
    let scene = Scene::with_machines(1).await;
    let id = scene.reserved("k").await;
    scene.keep_event(&id.to_string(), "session", "succeeded").await;
    scene.keep_event(&id.to_string(), "intent", "succeeded").await;
    let answers = scene
        .at_once(vec!["session", "intent"], |db, event| async move {
            convert::apply(&db, SHOP, "standard", event).await.unwrap()
        })
        .await;
    assert!(answers.contains(&Applied::Converted) && answers.contains(&Applied::Unchanged), "{answers:?}");
    assert_eq!(scene.number(ACTIVE).await, 1);
    assert_eq!(scene.history(id).await, ["placed", "reserved", "converted"]);
}

/// Case W1: the money comes before the reserve job has run.
#[tokio::test]
async fn money_that_comes_before_the_reservation_waits_for_it() {
    let scene = Scene::with_machines(1).await;
    let id = scene.place_one("k").await;
    assert_eq!(scene.pay(id, "early").await, Applied::Waits);
    assert_eq!(scene.number("select count(*) from onehold.payment_events where state = 'pending'").await, 1);
    assert_eq!(scene.reserve(id).await, Outcome::Reserved);
    // The reservation put the event's job into the queue, in its own transaction.
    let job = "select count(*) from apalis.jobs where idempotency_key = '1:standard:early:reserved'";
    assert_eq!(scene.number(job).await, 1);
    assert_eq!(scene.apply("early").await, Applied::Converted);
}

/// Case W1: the money comes before the order itself, named by its reference.
#[tokio::test]
async fn money_that_comes_before_its_order_is_kept_and_applied_when_the_order_appears() {
    let scene = Scene::with_machines(1).await;
    for event in ["one", "two"] {
        scene.keep_event("R-7", event, "succeeded").await;
        assert_eq!(scene.apply(event).await, Applied::Waits);
    }
    let body = json!({"reference": "R-7", "lines": [{"asset": {"category": "box"}, "quantity": 1}]});
    let id = scene.place("k", body).await;
    let jobs =
        "select count(*) from apalis.jobs where idempotency_key in ('1:standard:one:placed', '1:standard:two:placed')";
    assert_eq!(scene.number(jobs).await, 2, "every event that waited got its job with the order");
    scene.reserve(id).await;
    assert_eq!(scene.apply("one").await, Applied::Converted);
    assert_eq!(scene.apply("two").await, Applied::Unchanged);
}

#[tokio::test]
async fn money_for_a_refused_order_is_owed_back_once() {
    let scene = Scene::with_machines(0).await;
    let id = scene.place_one("k").await;
    assert_eq!(scene.pay(id, "early").await, Applied::Waits);
    assert!(matches!(scene.reserve(id).await, Outcome::Refused(r) if r.kind == Kind::Unavailable));
    let job = "select count(*) from apalis.jobs where idempotency_key = '1:standard:early:refused'";
    assert_eq!(scene.number(job).await, 1);
    assert_eq!(scene.apply("early").await, Applied::RefundDue);
    assert_eq!(scene.pay(id, "again").await, Applied::Unchanged);
    assert_eq!(scene.history(id).await, ["placed", "refused", "refund_due"]);
    assert_eq!(scene.order(id).await.payment.state.code(), "refund_due");
}

/// Case A8: A's hold lapsed, B holds the machine, A's money arrives.
#[tokio::test]
async fn late_money_does_not_touch_the_hold_of_the_next_order() {
    let scene = Scene::with_machines(1).await;
    let a = scene.reserved("a").await;
    scene.lapse(a).await;
    let b = scene.reserved("b").await;
    assert_eq!(scene.pay(a, "late").await, Applied::RefundDue);
    assert_eq!(scene.assets(b, "held").await, ["m-01"]);
    assert_eq!(scene.history(a).await, ["placed", "reserved", "expired", "payment_late", "refund_due"]);
    let order = scene.order(a).await;
    assert_eq!((order.status.code(), order.payment.state.code()), ("expired", "refund_due"));
    assert_eq!(scene.number("select count(*) from onehold.bindings").await, 0);
    scene.verify().await;
}

/// Invariant 4 with no sweeper for a week: lapsed is lapsed at the moment of deciding.
#[tokio::test]
async fn a_lapsed_hold_that_nobody_swept_does_not_convert() {
    let scene = Scene::with_machines(1).await;
    scene.run("update onehold.shops set late_money = 'refund'").await;
    let id = scene.reserved("k").await;
    scene.lapse(id).await;
    assert_eq!(scene.pay(id, "late").await, Applied::RefundDue);
    assert_eq!(scene.history(id).await, ["placed", "reserved", "expired", "payment_late", "refund_due"]);
    assert_eq!(scene.number("select count(*) from onehold.assets where owner_id is not null").await, 0);
    scene.verify().await;
}

/// Case D2: the payment waits for the order's lock across the deadline.
#[tokio::test]
async fn a_convert_that_waits_for_a_lock_across_the_deadline_comes_too_late() {
    let scene = Scene::with_machines(1).await;
    scene.run("update onehold.shops set late_money = 'refund'").await;
    let id = scene.reserved("k").await;
    scene.keep_event(&id.to_string(), "evt", "succeeded").await;
    #[allow(clippy::disallowed_methods, reason = "a rival, not the product")]
    let mut rival = scene.db.pool().begin().await.unwrap();
    sqlx::query("select from onehold.orders where id = $1 for update").bind(id).execute(&mut *rival).await.unwrap();
    // The payment begins while the hold is live and stands at the lock.
    let db = scene.db.clone();
    let waiting = tokio::spawn(async move { convert::apply(&db, SHOP, "standard", "evt").await.unwrap() });
    crate::support::eventually(Duration::from_secs(5), || async {
        scene
            .number(
                "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
            )
            .await
            == 1
    })
    .await;
    // The deadline passes before the lock is free.
    sqlx::query("update onehold.reservations set expires_at = clock_timestamp() where order_id = $1")
        .bind(id)
        .execute(&mut *rival)
        .await
        .unwrap();
    rival.commit().await.unwrap();
    assert_eq!(waiting.await.unwrap(), Applied::RefundDue);
    scene.verify().await;
}

/// Case D2 at its sharpest: the deadline passes between the look and the update, and the database's own
/// refusal is the answer.
#[tokio::test]
async fn the_deadline_that_passes_at_the_very_update_is_an_answer_and_not_a_fault() {
    let scene = Scene::with_machines(1).await;
    scene.run("update onehold.shops set late_money = 'refund'").await;
    let id = scene.reserved("k").await;
    // Stands before the guard in name order, and lets the time pass just there.
    scene
        .run(&format!(
            "create function public.dawdle() returns trigger language plpgsql as $$
             begin perform pg_sleep_until(old.expires_at); return new; end $$;
             create trigger a_dawdle before update of state on onehold.reservations
                 for each row when (new.state = 'converted') execute function public.dawdle();
             update onehold.reservations set expires_at = clock_timestamp() + interval '500 ms' where order_id = '{id}'"
        ))
        .await;
    assert_eq!(scene.pay(id, "evt").await, Applied::RefundDue);
    assert_eq!(scene.history(id).await, ["placed", "reserved", "expired", "payment_late", "refund_due"]);
    scene.verify().await;
}

/// Case D1: a session three hours off, and a worker whose clock nobody asks.
#[tokio::test]
async fn the_databases_clock_decides_whatever_the_session_takes_the_time_zone_to_be() {
    let scene = Scene::with_machines(1).await;
    let db = Db::connect(&scene.test.url, 1).await.unwrap();
    let scene = Scene { test: scene.test, db };
    scene.run("set timezone = 'Etc/GMT-3'").await;
    let zone: String = sqlx::query_scalar("show timezone").fetch_one(scene.db.pool()).await.unwrap();
    assert_eq!(zone, "Etc/GMT-3", "the pool of one kept the session");
    let id = scene.reserved("k").await;
    assert_eq!(sweep::sweep(&scene.db).await.unwrap(), 0, "a hold of 900 s has not lapsed three hours ago");
    assert_eq!(scene.pay(id, "evt").await, Applied::Converted);
}

#[tokio::test]
async fn a_wrong_amount_or_currency_converts_nothing_and_the_right_one_still_does() {
    let scene = Scene::with_machines(1).await;
    let body = json!({"lines": [{"asset": {"category": "box"}, "quantity": 1}],
                      "payment": {"amount": 250, "currency": "EUR"}});
    let id = scene.place("k", body).await;
    scene.reserve(id).await;
    assert_eq!(scene.pay(id, "wrong").await, Applied::Mismatch);
    let order = scene.order(id).await;
    assert_eq!((order.status.code(), order.payment.state.code()), ("reserved", "mismatch"));
    assert_eq!(scene.assets(id, "held").await, ["m-01"]);
    scene.keep_event(&id.to_string(), "right", "succeeded").await;
    scene.run("update onehold.payment_events set amount = 250 where event_id = 'right'").await;
    assert_eq!(scene.apply("right").await, Applied::Converted);
    assert_eq!(scene.history(id).await, ["placed", "reserved", "payment_mismatch", "converted"]);
}

#[tokio::test]
async fn a_failed_attempt_keeps_the_hold_and_an_abandoned_payment_gives_it_back() {
    let scene = Scene::with_machines(1).await;
    let id = scene.reserved("k").await;
    scene.keep_event(&id.to_string(), "failed", "failed").await;
    assert_eq!(scene.apply("failed").await, Applied::Failed);
    assert_eq!(scene.assets(id, "held").await, ["m-01"]);
    scene.keep_event(&id.to_string(), "gone", "abandoned").await;
    assert_eq!(scene.apply("gone").await, Applied::Abandoned);
    assert_eq!(scene.order(id).await.status.code(), "cancelled");
    assert_eq!(scene.history(id).await, ["placed", "reserved", "payment_failed", "cancelled"]);
    assert_eq!(scene.pay(id, "after").await, Applied::RefundDue, "never resurrected");
    scene.verify().await;
}

/// A refund of the wrong amount leaves the way free for the right one: each payment has its own story.
#[tokio::test]
async fn a_refunded_wrong_payment_does_not_keep_the_right_one_from_converting() {
    let scene = Scene::with_machines(1).await;
    let body = json!({"lines": [{"asset": {"category": "box"}, "quantity": 1}],
                      "payment": {"amount": 250, "currency": "EUR"}});
    let id = scene.place("k", body).await;
    scene.reserve(id).await;
    assert_eq!(scene.pay(id, "wrong").await, Applied::Mismatch);
    scene.keep_event(&id.to_string(), "back", "refunded").await;
    assert_eq!(scene.apply("back").await, Applied::Refunded);
    scene.keep_event(&id.to_string(), "right", "succeeded").await;
    scene.run("update onehold.payment_events set amount = 250, payment_id = 'second' where event_id = 'right'").await;
    assert_eq!(scene.apply("right").await, Applied::Converted);
    assert_eq!(scene.order(id).await.payment.state.code(), "paid");
    scene.verify().await;
}

/// Paid twice by two payments: the sale stands, the second payment is owed back, and its refund leaves the
/// order paid.
#[tokio::test]
async fn a_second_payment_for_a_sold_order_is_owed_back_and_the_sale_stands() {
    let scene = Scene::with_machines(1).await;
    let id = scene.reserved("k").await;
    assert_eq!(scene.pay(id, "first").await, Applied::Converted);
    for (event, effect) in [("twice", "succeeded"), ("twice-back", "refunded")] {
        scene.keep_event(&id.to_string(), event, effect).await;
        scene.run(&format!("update onehold.payment_events set payment_id = 'second' where event_id = '{event}'")).await;
    }
    assert_eq!(scene.apply("twice").await, Applied::RefundDue);
    assert_eq!(scene.order(id).await.payment.state.code(), "paid");
    assert_eq!(scene.apply("twice-back").await, Applied::Refunded);
    let order = scene.order(id).await;
    assert_eq!((order.status.code(), order.payment.state.code()), ("converted", "paid"));
    assert_eq!(scene.history(id).await, ["placed", "reserved", "converted", "refund_due", "refunded"]);
}

/// A part of the price that goes back leaves the order paid.
#[tokio::test]
async fn a_partial_refund_is_told_and_leaves_the_order_paid() {
    let scene = Scene::with_machines(1).await;
    let body = json!({"lines": [{"asset": {"category": "box"}, "quantity": 1}],
                      "payment": {"amount": 100, "currency": "EUR"}});
    let id = scene.place("k", body).await;
    scene.reserve(id).await;
    assert_eq!(scene.pay(id, "evt").await, Applied::Converted);
    scene.keep_event(&id.to_string(), "part", "refunded").await;
    scene.run("update onehold.payment_events set amount = 10 where event_id = 'part'").await;
    assert_eq!(scene.apply("part").await, Applied::Refunded);
    assert_eq!(scene.order(id).await.payment.state.code(), "paid");
    assert_eq!(scene.history(id).await, ["placed", "reserved", "converted", "refunded"]);
}
