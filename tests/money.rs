//! The money's story: late money that holds anew (cases A8, W4, W5), sums that do not fit (W6), events in any order of
//! arrival (W3, W7), and assets withdrawn under a paid hold (M3).

use std::collections::{BTreeMap, BTreeSet};

use onehold::allocator::{self, Outcome};
use onehold::convert::{self, Applied};
use onehold::db::Db;
use onehold::orders::money::STATES;
use onehold::orders::{self, PaymentState, Placed};
use serde_json::{Value, json};
use sqlx::types::Uuid;

use crate::scene::{SHOP, Scene, constraint};

/// One event of a payment, as tests say it.
#[derive(Clone, Copy, Debug)]
struct Told {
    event: &'static str,
    effect: &'static str,
    payment: Option<&'static str>,
    amount: Option<i64>,
    currency: &'static str,
    names_order: bool,
}

const fn paid(event: &'static str, payment: &'static str, amount: i64) -> Told {
    let effect = "succeeded";
    Told { event, effect, payment: Some(payment), amount: Some(amount), currency: "EUR", names_order: true }
}

async fn keep(scene: &Scene, order: Uuid, told: Told) {
    sqlx::query(
        "insert into onehold.payment_events
             (shop_id, provider, event_id, type, effect, order_ref, payment_id, amount, currency, payload,
              state, outcome)
         values (1, 'standard', $1, $2, $2, $3, $4, $5, $6, '{}',
                 case when $3 is null then 'ignored' else 'pending' end,
                 case when $3 is null then 'names_no_order' end)",
    )
    .bind(told.event)
    .bind(told.effect)
    .bind(told.names_order.then(|| order.to_string()))
    .bind(told.payment)
    .bind(told.amount)
    .bind(told.currency)
    .execute(scene.db.pool())
    .await
    .unwrap();
}

async fn tell(scene: &Scene, order: Uuid, told: Told) -> Applied {
    keep(scene, order, told).await;
    scene.apply(told.event).await
}

async fn detail(scene: &Scene, order: Uuid, kind: &str) -> Value {
    sqlx::query_scalar("select detail from onehold.order_events where order_id = $1 and kind = $2")
        .bind(order)
        .bind(kind)
        .fetch_one(scene.db.pool())
        .await
        .unwrap()
}

async fn stands(scene: &Scene, order: Uuid) -> (String, String) {
    let order = scene.order(order).await;
    (order.status.code().to_owned(), order.payment.state.code().to_owned())
}

fn priced(amount: i64) -> Value {
    json!({"lines": [{"asset": {"category": "box"}, "quantity": 1}], "payment": {"amount": amount, "currency": "EUR"}})
}

async fn priced_and_reserved(scene: &Scene, amount: i64) -> Uuid {
    let id = scene.place("priced", priced(amount)).await;
    scene.reserve(id).await;
    id
}

fn words(status: &str, money: &str) -> (String, String) {
    (status.to_owned(), money.to_owned())
}

const ACTIVE: &str = "select count(*) from onehold.bindings where ended_at is null";

/// Case W4 with stock free: the same machine, sold at once, and the history tells it all.
#[tokio::test]
async fn late_money_gets_the_same_machine_back_where_it_stands_free() {
    let scene = Scene::with_machines(2).await;
    let id = scene.reserved("k").await;
    scene.lapse(id).await;
    assert_eq!(scene.pay(id, "late").await, Applied::Converted);
    assert_eq!(scene.apply("late").await, Applied::AlreadySettled);
    assert_eq!(scene.assets(id, "converted").await, ["m-01"]);
    assert_eq!(stands(&scene, id).await, words("converted", "paid"));
    let history = ["placed", "reserved", "expired", "payment_late", "reacquired", "converted"];
    assert_eq!(scene.history(id).await, history);
    scene.verify().await;
}

/// Case W4: the machine that it had is another's; an equivalent takes its place, and that is told.
#[tokio::test]
async fn late_money_gets_an_equivalent_where_its_machine_is_anothers() {
    let scene = Scene::with_machines(2).await;
    let id = scene.reserved("a").await;
    scene.lapse(id).await;
    // Lapsed holds are only cleared where nothing else is free, so both machines go before one comes back.
    let (b, c) = (scene.reserved("b").await, scene.reserved("c").await);
    assert_eq!(scene.assets(c, "held").await, ["m-01"]);
    orders::cancel(&scene.db, SHOP, b, "api:test", Some("x")).await.unwrap();
    assert_eq!(scene.pay(id, "late").await, Applied::Converted);
    assert_eq!(scene.assets(id, "converted").await, ["m-02"]);
    let told = detail(&scene, id, "reacquired").await.to_string();
    assert!(told.contains("m-01") && told.contains("m-02"), "{told}");
    assert_eq!(scene.assets(c, "held").await, ["m-01"], "another's hold is not touched");
    scene.verify().await;
}

/// Case W4 with units of stock, which leave the ledger once.
#[tokio::test]
async fn late_money_gets_units_back_once() {
    let scene = Scene::with_machines(0).await;
    scene.run("select onehold.post_movement(1, 'PSU', 'BER', 5, 'receipt', 'PO-1', 'test', false)").await;
    let body = json!({"lines": [{"sku": "PSU", "quantity": 3, "locations": null, "split": false}]});
    let id = scene.place("k", body).await;
    scene.reserve(id).await;
    scene.lapse(id).await;
    assert_eq!(scene.pay(id, "late").await, Applied::Converted);
    assert_eq!(scene.number("select sum(delta)::bigint from onehold.stock_movements").await, 2);
    scene.verify().await;
}

/// Case W4 with stock gone: owed back, once, whatever comes after.
#[tokio::test]
async fn late_money_for_what_is_gone_is_owed_back_once() {
    let scene = Scene::with_machines(1).await;
    let id = scene.reserved("a").await;
    scene.lapse(id).await;
    scene.reserved("b").await;
    assert_eq!(scene.pay(id, "late").await, Applied::RefundDue);
    assert_eq!(scene.pay(id, "again").await, Applied::Unchanged);
    assert_eq!(scene.history(id).await, ["placed", "reserved", "expired", "payment_late", "refund_due"]);
    assert_eq!(detail(&scene, id, "refund_due").await["because"], "gone");
    assert_eq!(stands(&scene, id).await, words("expired", "refund_due"));
    scene.verify().await;
}

#[tokio::test]
async fn a_shop_that_wants_no_late_sales_owes_late_money_back() {
    let scene = Scene::with_machines(1).await;
    scene.run("update onehold.shops set late_money = 'refund'").await;
    let id = scene.reserved("k").await;
    scene.lapse(id).await;
    assert_eq!(scene.pay(id, "late").await, Applied::RefundDue);
    assert_eq!(detail(&scene, id, "refund_due").await["because"], "policy");
    scene.verify().await;
}

/// Case W5: what a person ended is never resurrected, however free its machine is.
#[tokio::test]
async fn money_after_a_persons_cancellation_is_owed_back() {
    let scene = Scene::with_machines(1).await;
    let id = scene.reserved("k").await;
    orders::cancel(&scene.db, SHOP, id, "api:test", Some("changed his mind")).await.unwrap();
    assert_eq!(scene.pay(id, "after").await, Applied::RefundDue);
    assert_eq!(stands(&scene, id).await, words("cancelled", "refund_due"));
    assert_eq!(scene.number(ACTIVE).await, 0);
    scene.verify().await;
}

/// Case W4 as a race: late payments of many orders for few machines, all at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn late_payments_at_once_share_what_is_free_and_each_ends_sold_or_owed_back() {
    let scene = Scene::with_machines(3).await;
    let mut orders = Vec::new();
    for n in 0..8 {
        let id = scene.reserved(&format!("k{n}")).await;
        scene.lapse(id).await;
        scene.keep_event(&id.to_string(), &format!("e{n}"), "succeeded").await;
        orders.push(id);
    }
    let answers = scene
        .at_once((0..8).collect(), |db, n: usize| async move {
            convert::apply(&db, SHOP, "standard", &format!("e{n}")).await.unwrap()
        })
        .await;
    assert_eq!(answers.iter().filter(|a| **a == Applied::Converted).count(), 3, "{answers:?}");
    assert_eq!(answers.iter().filter(|a| **a == Applied::RefundDue).count(), 5, "{answers:?}");
    assert_eq!(scene.number(ACTIVE).await, 3);
    for (order, answer) in orders.iter().zip(&answers) {
        let held = scene.assets(*order, "held").await;
        assert!(held.is_empty(), "{answer:?} left {held:?}");
        let refunds = scene.history(*order).await.iter().filter(|k| *k == "refund_due").count();
        assert_eq!(refunds, usize::from(*answer == Applied::RefundDue));
    }
    scene.verify().await;
}

/// Case W6: parts add up, in the order's currency only; more than the price is told.
#[tokio::test]
async fn parts_of_the_price_add_up_and_the_surplus_is_recorded() {
    let scene = Scene::with_machines(1).await;
    let id = priced_and_reserved(&scene, 250).await;
    assert_eq!(tell(&scene, id, paid("e1", "p1", 100)).await, Applied::Mismatch);
    assert_eq!(tell(&scene, id, Told { currency: "USD", ..paid("e2", "p2", 500) }).await, Applied::Mismatch);
    assert_eq!(stands(&scene, id).await, words("reserved", "mismatch"));
    assert_eq!(scene.assets(id, "held").await, ["m-01"]);
    assert_eq!(tell(&scene, id, paid("e3", "p3", 200)).await, Applied::Converted);
    assert_eq!(stands(&scene, id).await, words("converted", "paid"));
    assert_eq!(detail(&scene, id, "converted").await["surplus"], 50);
    let foreign = "select count(*) from onehold.payments where payment_id = 'p2' and state = 'refund_due'";
    assert_eq!(scene.number(foreign).await, 1, "dollars are no part of a price in euros");
    scene.verify().await;
}

/// Case W6: the hold lives on to its deadline, and then the part is owed back, once.
#[tokio::test]
async fn a_part_of_the_price_is_owed_back_when_the_order_ends_unsold() {
    let scene = Scene::with_machines(1).await;
    let id = priced_and_reserved(&scene, 250).await;
    assert_eq!(tell(&scene, id, paid("e1", "p1", 100)).await, Applied::Mismatch);
    scene.lapse(id).await;
    assert_eq!(onehold::sweep::sweep(&scene.db).await.unwrap(), 1);
    assert_eq!(stands(&scene, id).await, words("expired", "refund_due"));
    let history = ["placed", "reserved", "payment_mismatch"];
    assert_eq!(scene.history(id).await[..3], history);
    assert_eq!(scene.history(id).await.iter().filter(|k| *k == "refund_due").count(), 1);
    scene.verify().await;
}

/// Case M3: what was withdrawn under a paid hold is replaced in the transaction of the sale, or the money owed back.
#[tokio::test]
async fn a_withdrawn_machine_is_replaced_at_the_sale_or_the_money_is_owed_back() {
    let scene = Scene::with_machines(2).await;
    let (a, b) = (scene.reserved("a").await, scene.reserved("b").await);
    orders::cancel(&scene.db, SHOP, b, "api:test", Some("x")).await.unwrap();
    scene.run("update onehold.assets set status = 'maintenance' where key = 'm-01'").await;
    assert_eq!(scene.pay(a, "e1").await, Applied::Converted);
    assert_eq!(scene.assets(a, "converted").await, ["m-02"]);
    assert_eq!(scene.history(a).await, ["placed", "reserved", "substituted", "converted"]);
    scene.run("update onehold.assets set status = 'ready' where key = 'm-01'").await;
    let c = scene.reserved("c").await;
    scene.run("update onehold.assets set status = 'maintenance' where key = 'm-01'").await;
    assert_eq!(scene.pay(c, "e2").await, Applied::RefundDue);
    assert_eq!(detail(&scene, c, "refund_due").await["because"], "no_substitute");
    assert_eq!(stands(&scene, c).await, words("cancelled", "refund_due"));
    assert_eq!(scene.number(ACTIVE).await, 1);
    scene.verify().await;
}

/// Case W3: a refund that names its payment only, first of all, is not ignored for ever.
#[tokio::test]
async fn a_refund_that_names_only_its_payment_is_applied_when_somebody_names_the_order() {
    let scene = Scene::with_machines(1).await;
    let id = scene.reserved("k").await;
    let refund = Told { effect: "refunded", names_order: false, ..paid("back", "p1", 100) };
    keep(&scene, id, refund).await;
    assert_eq!(scene.apply("back").await, Applied::Unchanged);
    assert_eq!(tell(&scene, id, paid("e1", "p1", 100)).await, Applied::Converted);
    assert_eq!(stands(&scene, id).await, words("converted", "refunded"));
    scene.verify().await;
}

/// The database's table of the money's states is the code's, step by step.
#[tokio::test]
async fn the_database_allows_the_moneys_steps_of_the_one_table_and_no_other() {
    let scene = Scene::with_machines(1).await;
    let id = scene.reserved("k").await;
    for (from, after) in STATES {
        for to in PaymentState::ALL.iter().filter(|to| **to != from) {
            // The trigger is off while the row is put into its state, and on for the step.
            let step = format!(
                "alter table onehold.payments disable trigger money_moves_forward;
                 delete from onehold.payments;
                 insert into onehold.payments (shop_id, order_id, provider, payment_id, state)
                 values (1, '{id}', 'standard', 'p', '{}');
                 alter table onehold.payments enable trigger money_moves_forward",
                from.code()
            );
            scene.run(&step).await;
            let tried = scene.try_run(&format!("update onehold.payments set state = '{}'", to.code())).await;
            if after.contains(to) {
                assert!(tried.is_ok(), "{from:?} may become {to:?}");
            } else {
                assert_eq!(constraint(tried), "money_moves_forward", "{from:?} to {to:?}");
            }
        }
    }
}

/// Every order in which `length` of these can come.
fn permutations(of: &[usize], length: usize) -> Vec<Vec<usize>> {
    if length == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (place, first) in of.iter().enumerate() {
        let rest: Vec<usize> = of.iter().enumerate().filter(|(n, _)| *n != place).map(|(_, o)| *o).collect();
        all.extend(permutations(&rest, length - 1).into_iter().map(|mut p| {
            p.insert(0, *first);
            p
        }));
    }
    all
}

/// Tells the events of `arrival` about one order of its own, and gives what it came to.
async fn story(db: Db, n: usize, arrival: Vec<usize>) -> Result<String, sqlx::Error> {
    let body = json!({"lines": [{"sku": "PSU", "quantity": 1, "locations": null, "split": false}],
                      "payment": {"amount": 100, "currency": "EUR"}});
    let Ok(Placed::New(id)) = orders::place(&db, SHOP, &format!("k{n}"), &body, &body["lines"], "api:test").await
    else {
        panic!("each story has an order of its own")
    };
    assert_eq!(allocator::run(&db, SHOP, id).await.unwrap(), Outcome::Reserved);
    for (place, kind) in arrival.into_iter().enumerate() {
        let (effect, amount) = TOLD[kind];
        let event = format!("{n}-{place}");
        sqlx::query(
            "insert into onehold.payment_events
                 (shop_id, provider, event_id, type, effect, order_ref, payment_id, amount, currency, payload)
             values (1, 'standard', $1, $2, $2, $3::text, 'pay-' || $3::text, $4, 'EUR', '{}')",
        )
        .bind(&event)
        .bind(effect)
        .bind(id.to_string())
        .bind(amount)
        .execute(db.pool())
        .await?;
        convert::apply(&db, SHOP, "standard", &event).await.unwrap();
    }
    sqlx::query_scalar(
        "select concat_ws(' ', o.status, o.payment_state, p.state, p.paid, p.refunded, p.disputed)
         from onehold.orders o left join onehold.payments p on p.shop_id = o.shop_id and p.order_id = o.id
         where o.shop_id = 1 and o.id = $1",
    )
    .bind(id)
    .fetch_one(db.pool())
    .await
}

/// What can be said of one payment: created, failed, succeeded, session completed, refunded partly, wholly, disputed.
const TOLD: [(&str, i64); 7] = [
    ("none", 100),
    ("failed", 100),
    ("succeeded", 100),
    ("succeeded", 100),
    ("refunded", 40),
    ("refunded", 100),
    ("disputed", 100),
];
const LONGEST: usize = 5;

/// Case W3: whatever is said of a payment, in whatever order, said once or several times: the same final state.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_payments_events_come_to_the_same_in_every_order_of_arrival() {
    let scene = Scene::with_machines(0).await;
    scene.run("select onehold.post_movement(1, 'PSU', 'BER', 9000, 'receipt', 'PO-1', 'test', false)").await;
    let mut arrivals: Vec<Vec<usize>> = (1..=LONGEST).flat_map(|n| permutations(&[0, 1, 2, 3, 4, 5, 6], n)).collect();
    // Each said twice over, in the same order and backwards.
    for arrival in permutations(&[0, 1, 2, 3, 4, 5, 6], 3) {
        arrivals.push(arrival.iter().chain(&arrival).copied().collect());
        arrivals.push(arrival.iter().chain(arrival.iter().rev()).copied().collect());
    }
    let mut ends: BTreeMap<BTreeSet<(&str, i64)>, String> = BTreeMap::new();
    for (chunk, together) in arrivals.chunks(8).enumerate() {
        let stories = together.iter().enumerate().map(|(n, arrival)| (chunk * 8 + n, arrival.clone())).collect();
        let came_to =
            scene.at_once(stories, |db, (n, arrival)| async move { story(db, n, arrival).await.unwrap() }).await;
        for (arrival, end) in together.iter().zip(came_to) {
            // What was said, whoever said it and how often.
            let said: BTreeSet<_> = arrival.iter().map(|kind| TOLD[*kind]).collect();
            let first = ends.entry(said).or_insert_with(|| end.clone());
            assert_eq!(*first, end, "{arrival:?}");
        }
    }
    let whole = BTreeSet::from([TOLD[2], TOLD[4], TOLD[5]]);
    assert_eq!(ends[&whole], "converted refunded refunded 100 100 f");
    scene.verify().await;
}
