//! Random sequences of everything that moves stock, some of it at once, on a real database, beside a model so
//! simple that it can be believed: what is on hand, and what each order holds.
//!
//! How many sequences are run is a setting of the tests: `ONEHOLD_TEST_CASES=5000 bin/test stock_model`.

mod steps;

use std::collections::BTreeMap;

use onehold::allocator::{self, Kind, Outcome};
use onehold::convert::{self, Applied};
use onehold::db::Db;
use onehold::orders::{self, AfterRelease, Ending, Placed};
use onehold::sweep::sweep;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;
use sqlx::types::Uuid;

use crate::scene::{SHOP, Scene};
use crate::stock_stage::{conserved_or_short, post_on};
use crate::support::{cases, waiting::race};
use steps::{Line, Step, sequence};

const SKUS: [&str; 3] = ["X", "Y", "Z"];
const LOCATIONS: [&str; 2] = ["BER", "FRA"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    Lapsed,
    Converted,
    Ended,
}

#[derive(Clone, Debug)]
struct Order {
    id: Uuid,
    state: State,
    /// (sku, location) → units.
    units: BTreeMap<(usize, usize), i64>,
}

#[derive(Debug, Default)]
struct Model {
    on_hand: [[i64; 2]; 3],
    orders: Vec<Order>,
}

/// What the product answered.
#[derive(Debug)]
enum Answer {
    Placed(Uuid, Vec<Line>, Outcome),
    Paid(Uuid, Applied),
    Cancelled(Uuid, Ending),
    Released(Uuid, Ending),
    Lapsed(Uuid),
    Moved(usize, usize, i32, String),
    Nothing,
}

impl Answer {
    fn rank(&self) -> u8 {
        match self {
            Self::Placed(..) => 0,
            Self::Lapsed(_) => 1,
            Self::Paid(..) => 2,
            Self::Cancelled(..) => 3,
            Self::Released(..) => 4,
            Self::Moved(..) | Self::Nothing => 5,
        }
    }
}

impl Model {
    /// What can be had at a location by an order that comes alone: a lapsed hold is no hold.
    fn free(&self, sku: usize, location: usize) -> i64 {
        self.on_hand[sku][location] - self.held(sku, location, &[State::Held])
    }

    fn held(&self, sku: usize, location: usize, states: &[State]) -> i64 {
        let orders = self.orders.iter().filter(|o| states.contains(&o.state));
        orders.filter_map(|o| o.units.get(&(sku, location))).sum()
    }

    /// What an order of one line that comes alone must be told.
    fn expected(&self, line: &Line) -> Option<Kind> {
        let wanted: Vec<usize> = line.location.map_or_else(|| (0..2).collect(), |l| vec![l]);
        let reaches = |each: &dyn Fn(usize) -> i64| {
            let each = wanted.iter().map(|l| each(*l).max(0));
            let most = if line.split { each.sum::<i64>() } else { each.max().unwrap() };
            most >= i64::from(line.quantity)
        };
        if reaches(&|l| self.free(line.sku, l)) {
            None
        } else if reaches(&|l| self.on_hand[line.sku][l]) {
            Some(Kind::Held)
        } else {
            Some(Kind::Unavailable)
        }
    }

    fn order(&mut self, id: Uuid) -> &mut Order {
        self.orders.iter_mut().find(|o| o.id == id).unwrap()
    }
}

#[test]
fn whatever_happens_in_whatever_order_and_at_once_the_model_and_the_database_agree() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let scene = runtime.block_on(Scene::with_machines(0));
    let config = Config { cases: cases(), failure_persistence: None, max_shrink_iters: 300, ..Config::default() };
    let outcome = TestRunner::new(config).run(&sequence(), |(bound, groups)| {
        runtime.block_on(play(&scene, bound, groups));
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

async fn play(scene: &Scene, bound: i32, groups: Vec<Vec<Step>>) {
    clean(scene, bound).await;
    let mut model = Model::default();
    for (sku, on_hand) in SKUS.iter().zip(&mut model.on_hand) {
        let posted = post_on(scene.db.pool(), SHOP, sku, "BER", 6, "receipt", sku, false).await;
        assert_eq!(posted.outcome, "posted");
        on_hand[0] = 6;
    }
    for group in groups {
        let alone = group.len() == 1;
        let ids: Vec<Uuid> = model.orders.iter().map(|o| o.id).collect();
        if alone {
            let expected = expectation(&model, &group[0], &ids);
            let answer = go(group[0].clone(), scene.db.clone(), ids).await;
            check(&expected, &answer);
            apply(scene, &mut model, answer).await;
        } else {
            let mut answers = race(group.into_iter().map(|step| go(step, scene.db.clone(), ids.clone()))).await;
            // In an order in which they can have happened: what was released had been paid before.
            answers.sort_by_key(Answer::rank);
            for answer in answers {
                apply(scene, &mut model, answer).await;
            }
        }
        agree(scene, &mut model).await;
    }
    conserved_or_short(scene).await;
}

/// What a step that comes alone must be answered, where the model is sure.
#[derive(Debug)]
enum Expected {
    Outcome(Option<Kind>),
    Converts(bool),
    Anything,
}

fn expectation(model: &Model, step: &Step, ids: &[Uuid]) -> Expected {
    match step {
        Step::Place(lines) if lines.len() == 1 => Expected::Outcome(model.expected(&lines[0])),
        Step::Place(lines) => {
            // A cart for which every location has enough for all of it is reserved, whatever goes first.
            let sum = |sku| lines.iter().filter(|l| l.sku == sku).map(|l| i64::from(l.quantity)).sum::<i64>();
            let plenty = lines.iter().all(|l| (0..2).all(|place| model.free(l.sku, place) >= sum(l.sku)));
            if plenty { Expected::Outcome(None) } else { Expected::Anything }
        }
        Step::Pay(n) if !ids.is_empty() => Expected::Converts(model.orders[n % ids.len()].state == State::Held),
        _ => Expected::Anything,
    }
}

fn check(expected: &Expected, answer: &Answer) {
    match (expected, answer) {
        (Expected::Outcome(None), Answer::Placed(_, _, outcome)) => assert_eq!(*outcome, Outcome::Reserved),
        (Expected::Outcome(Some(kind)), Answer::Placed(_, _, Outcome::Refused(refusal))) => {
            assert_eq!(refusal.kind, *kind);
        }
        (Expected::Outcome(_), answer) => panic!("{answer:?} instead of {expected:?}"),
        (Expected::Converts(converts), Answer::Paid(_, applied)) => {
            assert_eq!(*applied == Applied::Converted, *converts, "{applied:?}");
        }
        _ => {}
    }
}

async fn go(step: Step, db: Db, ids: Vec<Uuid>) -> Answer {
    let pick = |n: usize| if ids.is_empty() { None } else { Some(ids[n % ids.len()]) };
    match step {
        Step::Place(lines) => {
            let body = json!({"lines": lines.iter().map(|l| json!({
                "sku": SKUS[l.sku], "quantity": l.quantity, "split": l.split,
                "locations": l.location.map(|place| [LOCATIONS[place]])})).collect::<Vec<_>>()});
            let key = Uuid::now_v7().to_string();
            let Placed::New(id) = orders::place(&db, SHOP, &key, &body, &body["lines"], "api:test").await.unwrap()
            else {
                panic!("the key is new")
            };
            let outcome = allocator::run(&db, SHOP, id).await.unwrap();
            Answer::Placed(id, lines, outcome)
        }
        Step::Pay(n) => {
            let Some(id) = pick(n) else { return Answer::Nothing };
            let event = Uuid::now_v7().to_string();
            sqlx::query(
                "insert into onehold.payment_events (shop_id, provider, event_id, type, effect, order_ref, payload)
                 values (1, 'standard', $1, 'payment.succeeded', 'succeeded', $2, '{}')",
            )
            .bind(&event)
            .bind(id.to_string())
            .execute(db.pool())
            .await
            .unwrap();
            Answer::Paid(id, convert::apply(&db, SHOP, "standard", &event).await.unwrap())
        }
        Step::Cancel(n) => {
            let Some(id) = pick(n) else { return Answer::Nothing };
            Answer::Cancelled(id, orders::cancel(&db, SHOP, id, "api:test", None).await.unwrap())
        }
        Step::Release(n) => {
            let Some(id) = pick(n) else { return Answer::Nothing };
            Answer::Released(id, orders::release(&db, SHOP, id, "api:test", None, AfterRelease::Ready).await.unwrap())
        }
        Step::Lapse(n) => {
            let Some(id) = pick(n) else { return Answer::Nothing };
            // A deadline that has passed stays where it is.
            sqlx::query(
                "update onehold.reservations set expires_at = least(expires_at, clock_timestamp() - interval '1 second')
                 where shop_id = 1 and order_id = $1 and state = 'held'",
            )
            .bind(id)
            .execute(db.pool())
            .await
            .unwrap();
            Answer::Lapsed(id)
        }
        Step::Sweep => {
            sweep(&db).await.unwrap();
            Answer::Nothing
        }
        Step::Receive(sku, place, delta) => moved(&db, sku, place, delta, "receipt", false).await,
        Step::Adjust(sku, place, delta, force) => moved(&db, sku, place, delta, "adjustment", force).await,
        Step::Refill(sku, place) => {
            sqlx::query("select onehold.refill_if_free(1, $1, $2)")
                .bind(SKUS[sku])
                .bind(LOCATIONS[place])
                .execute(db.pool())
                .await
                .unwrap();
            Answer::Nothing
        }
        Step::RollUp => roll_up(&db).await,
    }
}

async fn roll_up(db: &Db) -> Answer {
    sqlx::query("select onehold.roll_up(1, 100)").execute(db.pool()).await.unwrap();
    Answer::Nothing
}

async fn moved(db: &Db, sku: usize, place: usize, delta: i32, kind: &str, force: bool) -> Answer {
    let reference = Uuid::now_v7().to_string();
    let posted = post_on(db.pool(), SHOP, SKUS[sku], LOCATIONS[place], delta, kind, &reference, force).await;
    assert!(posted.outcome == "posted" || (posted.outcome == "would_oversell" && !force && delta < 0), "{posted:?}");
    Answer::Moved(sku, place, delta, posted.outcome)
}

/// Moves the model by what was answered.
async fn apply(scene: &Scene, model: &mut Model, answer: Answer) {
    match answer {
        Answer::Placed(id, lines, outcome) => {
            let mut units = BTreeMap::new();
            let state = match outcome {
                Outcome::Reserved => {
                    for (line, (sku, place, quantity)) in reservations(scene, id).await {
                        let wanted = &lines[line - 1];
                        assert_eq!(sku, wanted.sku);
                        assert!(wanted.location.is_none_or(|location| location == place));
                        *units.entry((sku, place)).or_insert(0) += quantity;
                    }
                    let asked: i64 = lines.iter().map(|l| i64::from(l.quantity)).sum();
                    assert_eq!(units.values().sum::<i64>(), asked, "whole or not at all");
                    State::Held
                }
                Outcome::Refused(_) => State::Ended,
                Outcome::Waiting | Outcome::AlreadyDecided | Outcome::NoSuchOrder => panic!("{outcome:?}"),
            };
            model.orders.push(Order { id, state, units });
        }
        Answer::Paid(id, Applied::Converted) => {
            let order = model.order(id);
            order.state = State::Converted;
            for ((sku, place), units) in order.units.clone() {
                model.on_hand[sku][place] -= units;
            }
        }
        Answer::Cancelled(id, Ending::Done) => model.order(id).state = State::Ended,
        Answer::Released(id, Ending::Done) => {
            let order = model.order(id);
            order.state = State::Ended;
            for ((sku, place), units) in order.units.clone() {
                model.on_hand[sku][place] += units;
            }
        }
        Answer::Lapsed(id) => {
            let order = model.order(id);
            if order.state == State::Held {
                order.state = State::Lapsed;
            }
        }
        Answer::Moved(sku, place, delta, outcome) => {
            if outcome == "posted" {
                model.on_hand[sku][place] += i64::from(delta);
            }
        }
        Answer::Paid(..) | Answer::Cancelled(..) | Answer::Released(..) | Answer::Nothing => {}
    }
}

async fn reservations(scene: &Scene, id: Uuid) -> Vec<(usize, (usize, usize, i64))> {
    let rows: Vec<(i16, String, String, i32)> = sqlx::query_as(
        "select line, sku, location, quantity from onehold.reservations where shop_id = 1 and order_id = $1",
    )
    .bind(id)
    .fetch_all(scene.db.pool())
    .await
    .unwrap();
    let at = |names: &[&str], name: &str| names.iter().position(|n| *n == name).unwrap();
    let row = |(line, sku, location, quantity): (i16, String, String, i32)| {
        (usize::try_from(line).unwrap(), (at(&SKUS, &sku), at(&LOCATIONS, &location), i64::from(quantity)))
    };
    rows.into_iter().map(row).collect()
}

/// The model and the database say the same of every order and of every pool.
async fn agree(scene: &Scene, model: &mut Model) {
    let statuses: Vec<(Uuid, String)> = sqlx::query_as("select id, status from onehold.orders where shop_id = 1")
        .fetch_all(scene.db.pool())
        .await
        .unwrap();
    assert_eq!(statuses.len(), model.orders.len());
    for (id, status) in statuses {
        let order = model.order(id);
        match (order.state, status.as_str()) {
            // Whoever finds a lapsed hold expires it: the sweep, an order that needs it, its payment, a person.
            (State::Lapsed, "expired") => order.state = State::Ended,
            (State::Held | State::Lapsed, "reserved") | (State::Converted, "converted") => {}
            (State::Ended, "refused" | "expired" | "cancelled" | "released") => {}
            (state, status) => panic!("{id} is {status}, and the model says {state:?}"),
        }
    }
    for (s, sku) in SKUS.iter().enumerate() {
        for (l, location) in LOCATIONS.iter().enumerate() {
            let now = crate::stock_stage::figures(scene, sku, location).await;
            assert_eq!(now.on_hand, model.on_hand[s][l], "{sku} {location}");
            assert_eq!(now.held, model.held(s, l, &[State::Held, State::Lapsed]), "{sku} {location}");
        }
    }
}

/// An empty shop, without making a database: past the triggers, which allow no such thing.
/// The model speaks of stock: late money is owed back in it. What holds anew has tests of its own (`money.rs`).
async fn clean(scene: &Scene, bound: i32) {
    scene
        .run(&format!(
            "begin;
             set local session_replication_role = replica;
             delete from onehold.stock_movements; delete from onehold.stock_deltas;
             delete from onehold.stock_levels; delete from onehold.pool_units; delete from onehold.stock_shortfalls;
             delete from onehold.payment_events; delete from onehold.payments; delete from onehold.order_events;
             delete from onehold.reservations; delete from onehold.order_lines; delete from onehold.orders;
             delete from apalis.jobs;
             update onehold.shops set pool_bound = {bound}, late_money = 'refund' where id = 1;
             commit;"
        ))
        .await;
}
