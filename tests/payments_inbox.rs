//! The inbox of payment events: kept once, with one job or none (cases W2, W7).

use std::sync::Arc;
use std::time::Duration;

use onehold::db::{Db, Notice, Notices};
use onehold::payments::event::PaymentEvent;
use onehold::payments::inbox::{self, EventState, Received, Settled};
use onehold::payments::{Effect, Provider};
use sqlx::types::Uuid;
use tokio::sync::Barrier;

use crate::support::database;

const SHOP: i32 = 1;

fn event(id: &str, effect: Effect) -> PaymentEvent {
    PaymentEvent {
        event_id: id.to_owned(),
        kind: "charge.refunded".to_owned(),
        effect,
        order_ref: Some("R-1".to_owned()),
        payment_id: Some("pi_1".to_owned()),
        amount: Some(19900),
        currency: Some("EUR".to_owned()),
    }
}

async fn number(db: &Db, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(db.pool()).await.unwrap()
}

async fn jobs(db: &Db) -> i64 {
    number(db, "select count(*) from apalis.jobs where job_type = 'convert'").await
}

async fn load(db: &Db, id: &str) -> inbox::StoredEvent {
    let mut conn = db.pool().acquire().await.unwrap();
    inbox::load(&mut conn, SHOP, "stripe", id).await.unwrap().unwrap()
}

#[tokio::test]
async fn one_event_that_arrives_five_times_at_once_is_kept_once_with_one_job() {
    let db = database().await.db;
    let barrier = Arc::new(Barrier::new(5));
    let tasks: Vec<_> = (0..5)
        .map(|_| {
            let (db, barrier) = (db.clone(), barrier.clone());
            tokio::spawn(async move {
                barrier.wait().await;
                inbox::receive(&db, SHOP, Provider::Stripe, &event("evt_1", Effect::Succeeded), b"{}").await.unwrap()
            })
        })
        .collect();
    let mut stored = 0;
    for task in tasks {
        stored += i32::from(task.await.unwrap() == Received::Stored);
    }
    assert_eq!(stored, 1);
    assert_eq!(number(&db, "select count(*) from onehold.payment_events").await, 1);
    let (payload, attempts): (serde_json::Value, i32) = sqlx::query_as(
        "select convert_from(job, 'UTF8')::jsonb, max_attempts from apalis.jobs where job_type = 'convert'",
    )
    .fetch_one(db.pool())
    .await
    .unwrap();
    assert_eq!(payload, serde_json::json!({"v": 1, "shop": 1, "provider": "stripe", "event": "evt_1"}));
    assert_eq!(attempts, i32::from(onehold::queue::catalogue::CONVERT.max_attempts));
}

#[tokio::test]
async fn one_event_id_in_two_shops_or_from_two_providers_is_as_many_events_and_jobs() {
    let db = database().await.db;
    sqlx::query("insert into onehold.shops (name) values ('other')").execute(db.pool()).await.unwrap();
    let other: i32 =
        sqlx::query_scalar("select id from onehold.shops where name = 'other'").fetch_one(db.pool()).await.unwrap();
    let same = event("evt_1", Effect::Succeeded);
    for (shop, provider) in [(SHOP, Provider::Stripe), (other, Provider::Stripe), (SHOP, Provider::Standard)] {
        assert_eq!(inbox::receive(&db, shop, provider, &same, b"{}").await.unwrap(), Received::Stored);
    }
    assert_eq!(number(&db, "select count(*) from onehold.payment_events").await, 3);
    assert_eq!(jobs(&db).await, 3);
}

#[tokio::test]
async fn what_can_have_no_effect_is_kept_without_a_job() {
    let db = database().await.db;
    let mut nothing = event("evt_1", Effect::None);
    nothing.order_ref = None;
    let mut nobody = event("evt_2", Effect::Succeeded);
    (nobody.order_ref, nobody.payment_id) = (None, None);
    for event in [&nothing, &nobody] {
        assert_eq!(inbox::receive(&db, SHOP, Provider::Stripe, event, b"{}").await.unwrap(), Received::Stored);
    }
    let kept = load(&db, "evt_1").await;
    assert_eq!((kept.state, kept.outcome.as_deref()), (EventState::Ignored, Some("no_effect")));
    let kept = load(&db, "evt_2").await;
    assert_eq!((kept.state, kept.outcome.as_deref()), (EventState::Ignored, Some("names_no_order")));
    assert_eq!(jobs(&db).await, 0);
}

#[tokio::test]
async fn a_refund_that_names_its_payment_only_finds_the_order_of_an_earlier_event() {
    let db = database().await.db;
    inbox::receive(&db, SHOP, Provider::Stripe, &event("evt_1", Effect::Succeeded), b"{}").await.unwrap();
    let mut refund = event("evt_2", Effect::Refunded);
    refund.order_ref = None;
    inbox::receive(&db, SHOP, Provider::Stripe, &refund, b"{}").await.unwrap();
    let kept = load(&db, "evt_2").await;
    assert_eq!((kept.state, kept.order_ref.as_deref()), (EventState::Pending, Some("R-1")));
    assert_eq!(jobs(&db).await, 2);

    // Another provider's payment of the same name is another payment.
    inbox::receive(&db, SHOP, Provider::Standard, &refund, b"{}").await.unwrap();
    // Its job looks once more whose it is, after its own commit.
    assert_eq!(jobs(&db).await, 3);
}

#[tokio::test]
async fn an_event_is_kept_as_it_came() {
    let db = database().await.db;
    let body = b"{\"id\": \"evt_1\", \"nul\": \"\\u0000\"}";
    inbox::receive(&db, SHOP, Provider::Stripe, &event("evt_1", Effect::Refunded), body).await.unwrap();
    let kept = load(&db, "evt_1").await;
    assert_eq!(kept.kind, "charge.refunded");
    assert_eq!(kept.effect, Effect::Refunded);
    assert_eq!(kept.order_ref.as_deref(), Some("R-1"));
    assert_eq!(kept.payment_id.as_deref(), Some("pi_1"));
    assert_eq!((kept.amount, kept.currency.as_deref()), (Some(19900), Some("EUR")));
    assert_eq!((kept.state, kept.order_id, kept.outcome), (EventState::Pending, None, None));
    let payload: Vec<u8> =
        sqlx::query_scalar("select payload from onehold.payment_events").fetch_one(db.pool()).await.unwrap();
    assert_eq!(payload, body);
    let mut conn = db.pool().acquire().await.unwrap();
    assert_eq!(inbox::load(&mut conn, SHOP, "stripe", "evt_2").await.unwrap(), None);
    assert_eq!(inbox::load(&mut conn, SHOP + 1, "stripe", "evt_1").await.unwrap(), None);
}

#[tokio::test]
async fn where_the_job_cannot_be_enqueued_the_event_is_not_kept_either() {
    let db = database().await.db;
    sqlx::raw_sql(
        "create function refuse() returns trigger language plpgsql as $$ begin raise 'no jobs today'; end $$;
         create trigger refuse before insert on apalis.jobs for each row execute function refuse();",
    )
    .execute(db.pool())
    .await
    .unwrap();
    inbox::receive(&db, SHOP, Provider::Stripe, &event("evt_1", Effect::Succeeded), b"{}").await.unwrap_err();
    assert_eq!(number(&db, "select count(*) from onehold.payment_events").await, 0);
}

#[tokio::test]
async fn a_pending_event_is_settled_once() {
    let db = database().await.db;
    inbox::receive(&db, SHOP, Provider::Stripe, &event("evt_1", Effect::Succeeded), b"{}").await.unwrap();
    let (first, second) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let mut conn = db.pool().acquire().await.unwrap();
    let mut settle =
        async |end, outcome| inbox::settle(&mut conn, SHOP, "stripe", "evt_1", end, outcome).await.unwrap();
    assert!(settle(Settled::Applied(first), "converted").await);
    assert!(!settle(Settled::Applied(second), "refund_due").await);
    assert!(!settle(Settled::Ignored(None), "no_effect").await);
    let kept = load(&db, "evt_1").await;
    assert_eq!((kept.state, kept.order_id), (EventState::Applied, Some(first)));
    assert_eq!(kept.outcome.as_deref(), Some("converted"));
}

#[tokio::test]
async fn the_convert_queue_is_woken_once_the_event_is_kept() {
    let db = database().await.db;
    let mut notices = Notices::start(&db).subscribe();
    let mut next = async || tokio::time::timeout(Duration::from_secs(10), notices.recv()).await.unwrap().unwrap();
    // It listens from here on.
    assert_eq!(next().await, Notice::Missed);
    inbox::receive(&db, SHOP, Provider::Stripe, &event("evt_1", Effect::Succeeded), b"{}").await.unwrap();
    assert_eq!(next().await, Notice::Job("convert".to_owned()));
}
