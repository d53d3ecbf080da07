//! What comes at the same moment shares a commit, and each gets the answer that it would have got alone: placing,
//! reading and converting. Reserving has `combiner.rs`.

use onehold::convert::{Applied, Converter};
use onehold::db::{Batcher, Db};
use onehold::orders::{self, Placed, Placing, Reading, Status};
use onehold::payments::event::PaymentEvent;
use onehold::payments::inbox::{Inbox, Received};
use onehold::payments::{Effect, Provider};
use serde_json::{Value, json};
use sqlx::types::Uuid;

use crate::scene::{SHOP, Scene};

async fn with_units(units: i32) -> Scene {
    let scene = Scene::with_machines(3).await;
    scene
        .run(&format!("select onehold.post_movement(1, 'PSU', 'BER', {units}, 'receipt', 'PO-1', 'test', false)"))
        .await;
    scene
}

fn one_unit(reference: Option<&str>) -> Value {
    json!({"lines": [{"sku": "PSU", "quantity": 1, "locations": null, "split": false}], "reference": reference,
           "payment": {"amount": 100, "currency": "EUR"}})
}

/// As if each had been placed alone: new, replayed, and a key that belongs to another body.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn orders_placed_at_once_share_commits_and_each_key_makes_one_order() {
    let scene = with_units(1).await;
    let placing = Placing::start(&scene.db);
    // Each key comes twice, and every fifth of them with another body the second time.
    let asked: Vec<(usize, bool)> = (0..40).flat_map(|key| [(key, false), (key, key % 5 == 0)]).collect();
    let placed = scene
        .at_once(asked.clone(), |_, (key, other)| {
            let placing = placing.clone();
            async move {
                let body = one_unit(other.then_some("other"));
                placing.place(SHOP, &format!("key-{key}"), &body, &body["lines"], "api:test").await.unwrap()
            }
        })
        .await;
    for key in 0..40 {
        let of_key: Vec<Placed> = asked.iter().zip(&placed).filter(|(a, _)| a.0 == key).map(|(_, p)| *p).collect();
        let new: Vec<Uuid> =
            of_key.iter().filter_map(|p| if let Placed::New(id) = p { Some(*id) } else { None }).collect();
        let [new] = new[..] else { panic!("{of_key:?}") };
        let expected = if key % 5 == 0 { Placed::KeyReused } else { Placed::Replayed(new) };
        assert!(of_key.contains(&expected), "{of_key:?}");
        assert_eq!(scene.history(new).await, ["placed"]);
    }
    assert_eq!(scene.number("select count(*) from onehold.orders").await, 40);
    assert_eq!(scene.number("select count(*) from onehold.order_lines").await, 40);
    let jobs = "select count(*) from apalis.jobs where job_type = 'reserve' and status = 'Pending'
                and convert_from(job, 'UTF8')::jsonb->>'order' = idempotency_key";
    assert_eq!(scene.number(jobs).await, 40);
    // The same again: nothing new.
    let body = one_unit(None);
    let again = placing.place(SHOP, "key-1", &body, &body["lines"], "api:test").await.unwrap();
    assert!(matches!(again, Placed::Replayed(_)), "{again:?}");
    assert_eq!(scene.number("select count(*) from onehold.orders").await, 40);
}

/// Who stores the same key in a transaction that stays open holds up that key and not its neighbours for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_order_whose_key_is_being_stored_elsewhere_does_not_hold_up_its_batch() {
    let scene = with_units(1).await;
    let placing = Placing::start(&scene.db);
    #[allow(clippy::disallowed_methods, reason = "a rival, not the product")]
    let mut rival = scene.db.pool().begin().await.unwrap();
    sqlx::query("insert into onehold.orders (shop_id, idempotency_key) values (1, 'busy')")
        .execute(&mut *rival)
        .await
        .unwrap();
    let place = |key: &'static str| {
        let placing = placing.clone();
        async move {
            let body = one_unit(None);
            placing.place(SHOP, key, &body, &body["lines"], "api:test").await.unwrap()
        }
    };
    let waiting = tokio::spawn(place("busy"));
    let neighbours = (tokio::spawn(place("one")), tokio::spawn(place("two")));
    assert!(matches!(neighbours.0.await.unwrap(), Placed::New(_)));
    assert!(matches!(neighbours.1.await.unwrap(), Placed::New(_)));
    assert!(!waiting.is_finished());
    rival.rollback().await.unwrap();
    assert!(matches!(waiting.await.unwrap(), Placed::New(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn orders_read_at_once_are_those_that_were_asked_for() {
    let scene = with_units(20).await;
    let mut ids = vec![Uuid::nil()];
    for n in 0..20 {
        ids.push(scene.place(&format!("k{n}"), one_unit(Some(&format!("r{n}")))).await);
    }
    let reading = Reading::start(&scene.db);
    let read = scene
        .at_once(ids.clone(), |_, id| {
            let reading = reading.clone();
            async move { reading.read(SHOP, id).await.unwrap() }
        })
        .await;
    assert!(read[0].is_none());
    for (n, (id, order)) in ids.iter().zip(&read).skip(1).enumerate() {
        let order = order.as_ref().unwrap();
        assert_eq!((order.id, order.lines.len()), (*id, 1));
        assert_eq!(order.reference.as_deref(), Some(&*format!("r{n}")));
    }
}

/// Money that pays in full is applied in company; wrong money, a hold that has lapsed, a second payment, an order
/// that is not reserved yet and an asset that is in maintenance get their own answers beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn payments_that_come_at_once_share_commits_and_each_gets_its_own_answer() {
    let scene = with_units(40).await;
    let mut expected = Vec::new();
    let mut paid = Vec::new();
    for n in 0..30 {
        let reference = format!("ref-{n}");
        let id = scene.place(&format!("unit-{n}"), one_unit(Some(&reference))).await;
        scene.reserve(id).await;
        // Every third by its reference.
        let named = if n % 3 == 0 { reference } else { id.to_string() };
        scene.keep_event(&named, &format!("unit-{n}"), "succeeded").await;
        expected.push((format!("unit-{n}"), Applied::Converted));
        paid.push(id);
    }
    for n in 0..2 {
        let id = scene.reserved(&format!("machine-{n}")).await;
        scene.keep_event(&id.to_string(), &format!("machine-{n}"), "succeeded").await;
        expected.push((format!("machine-{n}"), Applied::Converted));
        paid.push(id);
    }
    let wrong = scene
        .place("wrong", json!({"lines": one_unit(None)["lines"], "payment": {"amount": 700, "currency": "EUR"}}))
        .await;
    scene.reserve(wrong).await;
    scene.keep_event(&wrong.to_string(), "wrong", "succeeded").await;
    expected.push(("wrong".to_owned(), Applied::Mismatch));
    let early = scene.place("early", one_unit(None)).await;
    scene.keep_event(&early.to_string(), "early", "succeeded").await;
    expected.push(("early".to_owned(), Applied::Waits));
    scene.keep_event("nobody", "nobody", "succeeded").await;
    expected.push(("nobody".to_owned(), Applied::Waits));

    let converter = Converter::start(&scene.db);
    let apply = |event: String| {
        let converter = converter.clone();
        async move { converter.apply(SHOP, "standard", &event).await.unwrap() }
    };
    let events: Vec<String> = expected.iter().map(|(event, _)| event.clone()).collect();
    let applied = scene.at_once(events.clone(), |_, event| apply(event)).await;
    for ((event, expected), applied) in expected.iter().zip(&applied) {
        assert_eq!(applied, expected, "{event}");
    }
    assert_eq!(scene.number("select count(*) from onehold.stock_movements where kind = 'sale'").await, 30);
    assert_eq!(scene.number("select count(*) from onehold.bindings").await, 2);
    for id in &paid {
        assert_eq!(scene.history(*id).await, ["placed", "reserved", "converted"]);
        assert_eq!(scene.order(*id).await.status, Status::Converted);
    }
    assert_eq!(scene.order(wrong).await.status, Status::Reserved);
    // Again, as a queue may: nothing more is sold.
    let again = scene.at_once(events, |_, event| apply(event)).await;
    for ((event, first), again) in expected.iter().zip(&again) {
        let expected = if *first == Applied::Waits { Applied::Waits } else { Applied::AlreadySettled };
        assert_eq!(*again, expected, "{event}");
    }
    assert_eq!(scene.number("select count(*) from onehold.stock_movements where kind = 'sale'").await, 30);
    scene.verify().await;
}

/// Each is kept once and has one job, also where it comes twice in one batch, and where it names its payment only.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn events_that_come_at_once_are_kept_once_each_with_one_job() {
    let scene = with_units(1).await;
    let inbox = Inbox::start(&scene.db);
    let event = |n: usize, kind: &str, order_ref: Option<&str>, effect| PaymentEvent {
        event_id: format!("evt-{n}"),
        kind: kind.to_owned(),
        effect,
        order_ref: order_ref.map(str::to_owned),
        payment_id: Some(format!("pay-{n}")),
        amount: n.is_multiple_of(2).then_some(100),
        currency: Some("EUR".to_owned()),
    };
    let mut events = Vec::new();
    for n in 0..30 {
        let one = event(n, "payment.succeeded", Some("R-1"), Effect::Succeeded);
        events.extend([one.clone(), one]);
    }
    events.push(event(30, "payment.created", Some("R-1"), Effect::None));
    events.push(event(31, "payment.refunded", None, Effect::Refunded));
    let received = scene
        .at_once(events, |_, event| {
            let inbox = inbox.clone();
            async move { inbox.receive(SHOP, Provider::Standard, event, b"{}").await.unwrap() }
        })
        .await;
    assert_eq!(received.iter().filter(|r| **r == Received::Stored).count(), 32);
    assert_eq!(received.iter().filter(|r| **r == Received::Duplicate).count(), 30);
    assert_eq!(scene.number("select count(*) from onehold.payment_events").await, 32);
    assert_eq!(scene.number("select count(*) from onehold.payment_events where state = 'pending'").await, 30);
    assert_eq!(scene.number("select count(amount) from onehold.payment_events where effect = 'succeeded'").await, 15);
    let jobs = "select count(*) from onehold.payment_events e
                join apalis.jobs j on j.job_type = 'convert' and j.status = 'Pending'
                 and j.idempotency_key = '1:standard:' || e.event_id
                 and convert_from(j.job, 'UTF8')::jsonb->>'event' = e.event_id
                where e.state = 'pending'";
    assert_eq!(scene.number(jobs).await, 30);
}

/// The quick way leaves to the careful one what it must not decide; each alone and by its name.
#[tokio::test]
async fn the_quick_way_converts_nothing_that_needs_judging() {
    let scene = with_units(10).await;
    let quick = async |event: &str| {
        let places: Vec<i32> = sqlx::query_scalar("select onehold.convert_together(1, '{standard}', array[$1])")
            .bind(event)
            .fetch_all(scene.db.pool())
            .await
            .unwrap();
        places.len()
    };
    let reserved = async |key: &str| {
        let id = scene.place(key, one_unit(None)).await;
        scene.reserve(id).await;
        scene.keep_event(&id.to_string(), key, "succeeded").await;
        id
    };
    let lapsed = reserved("lapsed").await;
    scene.lapse(lapsed).await;
    assert_eq!(quick("lapsed").await, 0);

    reserved("currency").await;
    scene.run("update onehold.payment_events set currency = 'USD' where event_id = 'currency'").await;
    assert_eq!(quick("currency").await, 0);

    let failed = reserved("failed-before").await;
    scene.keep_event(&failed.to_string(), "failure", "failed").await;
    scene.apply("failure").await;
    assert_eq!(quick("failed-before").await, 0);

    let machine = scene.reserved("machine").await;
    scene.keep_event(&machine.to_string(), "machine", "succeeded").await;
    scene.run("update onehold.assets set status = 'maintenance' where owner_id is not null").await;
    assert_eq!(quick("machine").await, 0);

    let cancelled = reserved("cancelled").await;
    orders::cancel(&scene.db, SHOP, cancelled, "api:test", None).await.unwrap();
    assert_eq!(quick("cancelled").await, 0);

    reserved("plain").await;
    assert_eq!(quick("plain").await, 1);
    assert_eq!(quick("plain").await, 0);
    scene.verify().await;
}

/// Whoever asks gets an answer, also where the batch as a whole fails.
#[tokio::test]
async fn a_batch_of_payments_or_orders_that_fails_is_split() {
    let scene = with_units(1).await;
    let id = scene.place("unit", one_unit(None)).await;
    scene.reserve(id).await;
    scene.keep_event(&id.to_string(), "unit", "succeeded").await;
    scene.run("drop function onehold.convert_together(int, text[], text[])").await;
    assert_eq!(Converter::start(&scene.db).apply(SHOP, "standard", "unit").await.unwrap(), Applied::Converted);
}

/// The rooms' own tests see right answers; this one, that they came together.
#[tokio::test]
async fn what_is_asked_while_a_batch_is_on_its_way_is_the_next_batch() {
    let scene = with_units(1).await;
    let db: Db = scene.db.clone();
    let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let opened = gate.clone();
    let work: onehold::db::Work<i32, i32> = std::sync::Arc::new(move |_, shop, questions| {
        let (begun, opened) = (begun.clone(), opened.clone());
        Box::pin(async move {
            begun.send((shop, questions.clone())).unwrap();
            opened.acquire().await.unwrap().forget();
            Ok(questions.iter().map(|q| (*q != 13).then_some(q * 2)).collect())
        })
    });
    let batcher = Batcher::start(&db, "test", onehold::db::LOCK_TIMEOUT, work);
    let ask = |shop, question| {
        let batcher = batcher.clone();
        tokio::spawn(async move { batcher.ask(shop, question).await })
    };
    // Two lanes, each with one question on its way.
    let first = ask(1, 1);
    assert_eq!(begins.recv().await.unwrap(), (1, vec![1]));
    let second = ask(1, 2);
    assert_eq!(begins.recv().await.unwrap(), (1, vec![2]));
    let rest: Vec<_> = [(1, 3), (1, 13), (2, 4), (1, 5)].into_iter().map(|(shop, q)| ask(shop, q)).collect();
    // All of them are in before the lanes go on.
    tokio::task::yield_now().await;
    gate.add_permits(6);
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Some(2), Some(4)));
    let mut answers = Vec::new();
    for asked in rest {
        answers.push(asked.await.unwrap());
    }
    assert_eq!(answers, [Some(6), None, Some(8), Some(10)]);
    assert_eq!(begins.recv().await.unwrap(), (1, vec![3, 13, 5]));
    assert_eq!(begins.recv().await.unwrap(), (2, vec![4]));
    assert!((batcher.mean_batch() - 1.5).abs() < 0.01, "{}", batcher.mean_batch());
}
