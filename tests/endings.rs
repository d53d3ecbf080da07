//! How orders end and holds lapse (cases C1, C2, D3 in small, D4, D5), and lost jobs.

use onehold::allocator::{self, Outcome};
use onehold::convert::{self, Applied};
use onehold::orders::{self, AfterRelease, Ending};
use onehold::sweep::{self, Requeued};
use serde_json::json;
use sqlx::types::Uuid;

use crate::scene::{SHOP, Scene};

async fn cancel(scene: &Scene, id: Uuid) -> Ending {
    orders::cancel(&scene.db, SHOP, id, "api:clerk", Some("changed their mind")).await.unwrap()
}

/// Case C1: a cancellation says who and why, and the second changes nothing.
#[tokio::test]
async fn a_cancelled_order_gives_its_machine_back_once_and_says_who_and_why() {
    let scene = Scene::with_machines(1).await;
    let id = scene.reserved("k").await;
    assert_eq!(cancel(&scene, id).await, Ending::Done);
    assert_eq!(cancel(&scene, id).await, Ending::Unchanged);
    assert_eq!(scene.history(id).await, ["placed", "reserved", "cancelled"]);
    let events = orders::events(&scene.db, SHOP, id).await.unwrap().unwrap();
    assert_eq!((events[2].actor.as_str(), &events[2].detail["reason"]), ("api:clerk", &json!("changed their mind")));
    assert_eq!(scene.number("select count(*) from onehold.reservations where state = 'cancelled'").await, 1);
    scene.reserved("next").await;
    scene.verify().await;
}

/// Case C2.
#[tokio::test]
async fn an_order_cancelled_before_its_job_ran_reserves_nothing_later() {
    let scene = Scene::with_machines(1).await;
    let id = scene.place_one("k").await;
    assert_eq!(cancel(&scene, id).await, Ending::Done);
    assert_eq!(scene.reserve(id).await, Outcome::AlreadyDecided);
    assert_eq!(scene.number("select count(*) from onehold.reservations").await, 0);
    assert_eq!(scene.history(id).await, ["placed", "cancelled"]);
}

/// Case C1: cancel and sweep at once on a hold that has lapsed: it lapsed, whoever says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cancellation_and_a_sweep_that_meet_have_one_winner() {
    let scene = Scene::with_machines(1).await;
    let id = scene.reserved("k").await;
    scene.lapse(id).await;
    let endings = scene
        .at_once(vec![true, false], |db, cancel| async move {
            if cancel {
                orders::cancel(&db, SHOP, id, "api:clerk", None).await.unwrap()
            } else {
                sweep::sweep(&db).await.unwrap();
                Ending::Unchanged
            }
        })
        .await;
    assert_eq!(endings, [Ending::Unchanged, Ending::Unchanged]);
    assert_eq!(scene.history(id).await, ["placed", "reserved", "expired"]);
    scene.verify().await;
}

/// Case C1: cancel and convert at once, twenty times over: one wins, and the loser says who won.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cancellation_and_a_payment_that_meet_have_one_winner_and_the_loser_says_who() {
    let scene = Scene::with_machines(20).await;
    for n in 0..20 {
        let id = scene.reserved(&format!("k{n}")).await;
        let event = format!("evt{n}");
        scene.keep_event(&id.to_string(), &event, "succeeded").await;
        let answers = scene
            .at_once(vec![Some(event), None], |db, event| async move {
                match event {
                    Some(event) => Err(convert::apply(&db, SHOP, "standard", &event).await.unwrap()),
                    None => Ok(orders::cancel(&db, SHOP, id, "api:clerk", None).await.unwrap()),
                }
            })
            .await;
        let order = scene.order(id).await;
        match (&answers[0], &answers[1]) {
            (Err(Applied::Converted), Ok(Ending::AlreadyConverted)) => assert_eq!(order.status.code(), "converted"),
            (Err(Applied::RefundDue), Ok(Ending::Done)) => {
                assert_eq!((order.status.code(), order.payment.state.code()), ("cancelled", "refund_due"));
            }
            other => panic!("{other:?}"),
        }
    }
    scene.verify().await;
}

#[tokio::test]
async fn a_sale_cannot_be_cancelled_but_released_and_then_its_machine_is_sold_again() {
    let scene = Scene::with_machines(1).await;
    let id = scene.reserved("k").await;
    let release = async |to| orders::release(&scene.db, SHOP, id, "api:clerk", Some("broken"), to).await.unwrap();
    assert_eq!(release(AfterRelease::Ready).await, Ending::NotConverted);
    scene.pay(id, "evt").await;
    assert_eq!(cancel(&scene, id).await, Ending::AlreadyConverted);
    assert_eq!(release(AfterRelease::Maintenance).await, Ending::Done);
    assert_eq!(release(AfterRelease::Ready).await, Ending::NotConverted);
    assert_eq!(scene.history(id).await, ["placed", "reserved", "converted", "released"]);
    let ready = "select count(*) from onehold.assets where status = 'maintenance' and owner_id is null";
    assert_eq!(scene.number(ready).await, 1);
    scene.run("update onehold.assets set status = 'ready'").await;
    scene.reserved("next").await;
    scene.verify().await;
}

#[tokio::test]
async fn an_extension_moves_the_deadline_forward_only_up_to_its_cap_and_never_revives() {
    let scene = Scene::with_machines(1).await;
    let id = scene.reserved("k").await;
    let before = scene.order(id).await.hold_expires_at.unwrap();
    let extend = async |seconds| orders::extend(&scene.db, SHOP, id, "api:clerk", seconds).await.unwrap();
    assert_eq!(extend(1).await, Ending::Done);
    assert_eq!(scene.order(id).await.hold_expires_at.unwrap(), before, "never earlier than it is");
    assert_eq!(extend(1800).await, Ending::Done);
    let longer = scene.order(id).await.hold_expires_at.unwrap();
    assert!((895..=905).contains(&(longer - before).num_seconds()));
    assert_eq!(extend(86_400).await, Ending::Done);
    let most = scene.order(id).await.hold_expires_at.unwrap();
    assert!((2_690..=2_705).contains(&(most - before).num_seconds()), "four times 900 s at the most");
    scene.lapse(id).await;
    assert_eq!(extend(600).await, Ending::NotHeld);
    assert_eq!(scene.history(id).await.iter().filter(|k| *k == "extended").count(), 3);
}

#[tokio::test]
async fn how_far_a_hold_can_be_prolonged_is_the_shops_setting() {
    let scene = Scene::with_machines(1).await;
    let id = scene.reserved("k").await;
    let before = scene.order(id).await.hold_expires_at.unwrap();
    scene.run("update onehold.shops set most_hold_factor = 2").await;
    orders::extend(&scene.db, SHOP, id, "api:clerk", 86_400).await.unwrap();
    let most = scene.order(id).await.hold_expires_at.unwrap();
    assert!((890..=905).contains(&(most - before).num_seconds()), "twice 900 s at the most");
}

/// A machine retired after its sale still ends its binding, and is counted; a binding that is missing is a fault.
#[tokio::test]
async fn a_release_counts_the_bindings_it_ends_and_stops_where_one_is_missing() {
    let scene = Scene::with_machines(2).await;
    let release = async |id| orders::release(&scene.db, SHOP, id, "api:clerk", None, AfterRelease::Ready).await;
    let id = scene.reserved("k").await;
    scene.pay(id, "evt").await;
    scene.run("set session_replication_role = replica; update onehold.assets set status = 'retired' where owner_id is not null; set session_replication_role = origin").await;
    assert_eq!(release(id).await.unwrap(), Ending::Done);
    let events = orders::events(&scene.db, SHOP, id).await.unwrap().unwrap();
    assert_eq!(events[3].detail["bindings"], 1);

    let broken = scene.reserved("broken").await;
    scene.pay(broken, "evt2").await;
    scene.run("set session_replication_role = replica; delete from onehold.bindings where ended_at is null; set session_replication_role = origin").await;
    release(broken).await.unwrap_err();
    assert_eq!(scene.order(broken).await.status.code(), "converted");
}

/// Cases D4 and D5: nobody swept for an hour, then two sweeps start at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_sweeps_at_once_after_a_long_pause_expire_each_lapse_once() {
    let scene = Scene::with_machines(30).await;
    let mut ids = Vec::new();
    for n in 0..30 {
        ids.push(scene.reserved(&format!("k{n}")).await);
    }
    scene.run("update onehold.reservations set expires_at = clock_timestamp() - interval '1 hour'").await;
    let swept = scene.at_once(vec![(); 4], |db, ()| async move { sweep::sweep(&db).await.unwrap() }).await;
    assert_eq!(swept.iter().sum::<u64>(), 30);
    for id in ids {
        assert_eq!(scene.history(id).await, ["placed", "reserved", "expired"]);
    }
    assert_eq!(sweep::sweep(&scene.db).await.unwrap(), 0, "safe to repeat");
    scene.verify().await;
}

/// More than one batch, and an order that somebody is deciding is passed over.
#[tokio::test]
async fn a_sweep_goes_on_until_none_is_left_and_waits_for_nobody() {
    let scene = Scene::with_machines(0).await;
    scene
        .run(
            "insert into onehold.assets (shop_id, key, category, location)
             select 1, 'x' || n, 'box', 'BER' from generate_series(1, 450) n;
             insert into onehold.orders (shop_id, idempotency_key, status)
             select 1, 'x' || n, 'reserved' from generate_series(1, 450) n;
             insert into onehold.reservations (shop_id, order_id, asset_id, location, expires_at)
             select 1, o.id, a.id, 'BER', clock_timestamp() - interval '1 minute'
             from onehold.orders o join onehold.assets a on a.key = o.idempotency_key;",
        )
        .await;
    #[allow(clippy::disallowed_methods, reason = "a rival, not the product")]
    let mut rival = scene.db.pool().begin().await.unwrap();
    sqlx::query("select from onehold.orders where idempotency_key = 'x7' for update")
        .execute(&mut *rival)
        .await
        .unwrap();
    assert_eq!(sweep::sweep(&scene.db).await.unwrap(), 449);
    rival.rollback().await.unwrap();
    assert_eq!(sweep::sweep(&scene.db).await.unwrap(), 1);
    assert_eq!(scene.number("select count(*) from onehold.assets where owner_id is not null").await, 0);
}

/// An extension that wins the lock is seen by the sweep that waited for nobody.
#[tokio::test]
async fn a_hold_that_was_extended_in_time_is_not_swept() {
    let scene = Scene::with_machines(1).await;
    let id = scene.reserved("k").await;
    orders::extend(&scene.db, SHOP, id, "api:clerk", 1000).await.unwrap();
    assert_eq!(sweep::sweep(&scene.db).await.unwrap(), 0);
    assert_eq!(scene.order(id).await.status.code(), "reserved");
}

/// Invariant 6: whatever lost the job, the order gets a new one, and one that has its job does not.
#[tokio::test]
async fn a_placed_order_without_a_job_gets_one_and_a_payment_too() {
    let scene = Scene::with_machines(2).await;
    let lost = scene.place_one("lost").await;
    let waiting = scene.place_one("waiting").await;
    let paid = scene.reserved("paid").await;
    scene.keep_event(&paid.to_string(), "evt", "succeeded").await;
    scene.keep_event("nobody", "orphan", "succeeded").await;
    scene
        .run(&format!(
            "delete from apalis.jobs where idempotency_key <> '{waiting}';
             update onehold.orders set placed_at = placed_at - interval '1 minute';
             update onehold.payment_events set received_at = received_at - interval '1 minute';"
        ))
        .await;
    assert_eq!(sweep::requeue(&scene.db).await.unwrap(), Requeued { orders: 1, payments: 1, ..Requeued::default() });
    assert_eq!(sweep::requeue(&scene.db).await.unwrap(), Requeued::default(), "safe to repeat");
    let job = format!("select count(*) from apalis.jobs where idempotency_key = '{lost}' and status = 'Pending'");
    assert_eq!(scene.number(&job).await, 1);
    assert_eq!(allocator::run(&scene.db, SHOP, lost).await.unwrap(), Outcome::Reserved);
    assert_eq!(scene.apply("evt").await, Applied::Converted);

    // A dead letter is not revived at once, but it is not forgotten either.
    scene.run("update apalis.jobs set status = 'Killed', done_at = clock_timestamp()").await;
    assert_eq!(sweep::requeue(&scene.db).await.unwrap(), Requeued::default());
    scene.run("update apalis.jobs set done_at = clock_timestamp() - interval '16 minutes'").await;
    assert_eq!(sweep::requeue(&scene.db).await.unwrap(), Requeued { orders: 1, ..Requeued::default() });
}

/// More than a batch of each, in one run.
#[tokio::test]
async fn a_requeue_goes_on_until_nothing_is_left() {
    let scene = Scene::with_machines(0).await;
    scene
        .run(
            "insert into onehold.orders (shop_id, idempotency_key, placed_at)
             select 1, 'x' || n, clock_timestamp() - interval '1 minute' from generate_series(1, 450) n",
        )
        .await;
    assert_eq!(sweep::requeue(&scene.db).await.unwrap().orders, 450);
}

/// A job of whatever stage serves while it waits or runs, and what is older than a week is left alone.
#[tokio::test]
async fn a_payment_whose_job_of_any_stage_waits_gets_no_other_and_an_old_one_none() {
    let scene = Scene::with_machines(1).await;
    let paid = scene.reserved("paid").await.to_string();
    scene.run("delete from apalis.jobs").await;
    for (n, stage) in ["", ":placed", ":reserved", ":refused", ":cancelled", ":requeue"].iter().enumerate() {
        scene.keep_event(&paid, &format!("e{n}"), "succeeded").await;
        let key = format!("1:standard:e{n}{stage}");
        scene.run(&format!("select onehold.enqueue_job('convert', '{key}', '{{\"v\":1}}', 20)")).await;
    }
    scene.run("update onehold.payment_events set received_at = received_at - interval '1 minute'").await;
    scene.keep_event(&paid, "old", "succeeded").await;
    scene
        .run(
            "update onehold.payment_events set received_at = received_at - interval '8 days' where event_id = 'old';
             delete from apalis.jobs where idempotency_key like '%:old%'",
        )
        .await;
    assert_eq!(sweep::requeue(&scene.db).await.unwrap(), Requeued::default());
    scene.run("delete from apalis.jobs where idempotency_key = '1:standard:e0'").await;
    assert_eq!(sweep::requeue(&scene.db).await.unwrap().payments, 1);
}

/// One shop's fault is told at the end, and the next shop is swept nevertheless.
#[tokio::test]
async fn a_shop_that_fails_does_not_keep_the_others_from_being_swept() {
    let scene = Scene::with_machines(0).await;
    scene
        .run(
            "insert into onehold.shops (name) values ('second');
             insert into onehold.assets (shop_id, key, category, location)
             select s.id, 'a', 'box', 'BER' from onehold.shops s;
             insert into onehold.orders (shop_id, idempotency_key, status)
             select s.id, 'k', 'reserved' from onehold.shops s;
             insert into onehold.orders (shop_id, idempotency_key, placed_at)
             select s.id, 'lost', clock_timestamp() - interval '1 minute' from onehold.shops s;
             insert into onehold.reservations (shop_id, order_id, asset_id, location, expires_at)
             select o.shop_id, o.id, a.id, 'BER', clock_timestamp() - interval '1 minute'
             from onehold.orders o join onehold.assets a on a.shop_id = o.shop_id where o.status = 'reserved';
             create function fail() returns trigger language plpgsql as
                 $$ begin raise exception 'injected'; end $$;
             create trigger fail before update on onehold.orders for each row when (new.shop_id = 1)
                 execute function fail();
             create function fail_job() returns trigger language plpgsql as
                 $$ begin
                     if convert_from(new.job, 'UTF8')::jsonb->>'shop' = '1' then raise exception 'injected'; end if;
                     return new;
                 end $$;
             create trigger fail before insert on apalis.jobs for each row execute function fail_job();",
        )
        .await;
    sweep::sweep(&scene.db).await.unwrap_err();
    let swept = "select shop_id::bigint from onehold.orders where status = 'expired'";
    assert_ne!(scene.number(swept).await, 1, "the second shop was swept");
    sweep::requeue(&scene.db).await.unwrap_err();
    assert_eq!(scene.number("select count(*) from apalis.jobs").await, 1, "the second shop's order got its job");
}

/// An id in capitals is that id: its event gets its job when the order is decided.
#[tokio::test]
async fn a_payment_that_names_its_order_in_capitals_gets_its_job_when_the_order_is_reserved() {
    let scene = Scene::with_machines(1).await;
    let id = scene.place_one("k").await;
    scene.keep_event(&id.to_string().to_uppercase(), "capitals", "succeeded").await;
    scene.keep_event(&id.simple().to_string(), "simple", "succeeded").await;
    scene.reserve(id).await;
    let jobs = async |event: &str| {
        let query = format!("select count(*) from apalis.jobs where idempotency_key like '1:standard:{event}:%'");
        scene.number(&query).await
    };
    assert_eq!((jobs("capitals").await, jobs("simple").await), (1, 0), "only the hyphenated form is an id");
}
