//! Orders that race for machines (cases A3 to A7, A16, T3).

use std::collections::HashSet;

use onehold::allocator::{self, Kind, Outcome};
use onehold::orders::{self, Placed};
use serde_json::json;
use sqlx::types::Uuid;

use crate::scene::{SHOP, Scene, one_machine};

async fn placed(scene: &Scene, orders: usize) -> Vec<Uuid> {
    let mut ids = Vec::new();
    for n in 0..orders {
        ids.push(scene.place_one(&format!("order-{n}")).await);
    }
    ids
}

/// Case A3. The first attempt's refusals are honest: someone was faster, or holds it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_orders_at_once_on_three_machines_get_three_different_machines() {
    let scene = Scene::with_machines(3).await;
    let ids = placed(&scene, 8).await;
    let outcomes = scene
        .at_once(ids.clone(), |db, id| async move { allocator::run_rounds(&db, SHOP, id, 1).await.unwrap() })
        .await;
    let mut machines = HashSet::new();
    for (id, outcome) in ids.iter().zip(outcomes) {
        match outcome {
            Outcome::Reserved => machines.extend(scene.assets(*id, "held").await),
            Outcome::Refused(refusal) => assert!(matches!(refusal.kind, Kind::Contended | Kind::Held), "{refusal:?}"),
            Outcome::Waiting | Outcome::AlreadyDecided | Outcome::NoSuchOrder => panic!("{outcome:?}"),
        }
    }
    assert_eq!(machines.len(), 3);
    scene.verify().await;
}

/// Cases A3 and A6, with the retries that a job makes: no machine is left over and no loser leaves a trace.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn with_its_retries_a_race_leaves_no_machine_unsold_and_its_losers_nothing_behind() {
    let scene = Scene::with_machines(3).await;
    let ids = placed(&scene, 8).await;
    let outcomes =
        scene.at_once(ids.clone(), |db, id| async move { allocator::run(&db, SHOP, id).await.unwrap() }).await;
    assert_eq!(outcomes.iter().filter(|o| **o == Outcome::Reserved).count(), 3, "{outcomes:?}");
    let mut machines = HashSet::new();
    for (id, outcome) in ids.iter().zip(&outcomes) {
        let history = scene.history(*id).await;
        if *outcome == Outcome::Reserved {
            assert_eq!(history, ["placed", "reserved"]);
            machines.extend(scene.assets(*id, "held").await);
        } else {
            assert_eq!(history, ["placed", "refused"]);
            let left = format!("select count(*) from onehold.reservations where order_id = '{id}'");
            assert_eq!(scene.number(&left).await, 0);
        }
    }
    assert_eq!(machines.len(), 3);
    scene.verify().await;
}

/// Case A4.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_orders_for_one_machine_one_gets_it_and_one_is_told_that_it_is_held() {
    let scene = Scene::with_machines(1).await;
    let ids = placed(&scene, 2).await;
    let outcomes =
        scene.at_once(ids.clone(), |db, id| async move { allocator::run(&db, SHOP, id).await.unwrap() }).await;
    let refused: Vec<_> =
        outcomes.iter().filter_map(|o| if let Outcome::Refused(r) = o { Some(r) } else { None }).collect();
    assert_eq!((outcomes.len() - refused.len(), refused.len()), (1, 1), "{outcomes:?}");
    assert_eq!(refused[0].kind, Kind::Held);
    let wait = refused[0].retry_after_seconds.unwrap();
    assert!((1..=900).contains(&wait), "until the hold lapses, not {wait}");
    scene.verify().await;
}

/// Case A5.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_placements_with_one_key_at_once_are_one_order_with_one_reservation() {
    let scene = Scene::with_machines(4).await;
    let placed = scene
        .at_once(vec![(); 5], |db, ()| async move {
            let body = one_machine();
            orders::place(&db, SHOP, "same", &body, &body["lines"], "api:test").await.unwrap()
        })
        .await;
    let ids: HashSet<Uuid> = placed
        .iter()
        .map(|p| match p {
            Placed::New(id) | Placed::Replayed(id) => *id,
            Placed::KeyReused => panic!("the body is the same"),
        })
        .collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(placed.iter().filter(|p| matches!(p, Placed::New(_))).count(), 1);
    assert_eq!(scene.number("select count(*) from apalis.jobs where job_type = 'reserve'").await, 1);
    let id = *ids.iter().next().unwrap();
    // Its job is delivered five times at once as well.
    scene.at_once(vec![id; 5], |db, id| async move { allocator::run(&db, SHOP, id).await.unwrap() }).await;
    assert_eq!(scene.number("select count(*) from onehold.reservations").await, 1);
    assert_eq!(scene.history(id).await, ["placed", "reserved"]);
    scene.verify().await;
}

/// Cases A7 and A16: safe to repeat, at once after a crash and a day later.
#[tokio::test]
async fn a_reserve_job_that_runs_again_finds_its_own_reservation() {
    let scene = Scene::with_machines(2).await;
    let id = scene.reserved("k").await;
    let first = scene.assets(id, "held").await;
    assert_eq!(scene.reserve(id).await, Outcome::AlreadyDecided);
    assert_eq!(scene.assets(id, "held").await, first);
    assert_eq!(scene.number("select count(*) from onehold.reservations").await, 1);

    scene.lapse(id).await;
    onehold::sweep::sweep(&scene.db).await.unwrap();
    assert_eq!(scene.reserve(id).await, Outcome::AlreadyDecided);
    assert_eq!(scene.number("select count(*) from onehold.reservations").await, 1);
    assert_eq!(scene.history(id).await, ["placed", "reserved", "expired"]);
}

/// Case T3 for assets: two lines of one cart want the same kind of machine.
#[tokio::test]
async fn two_lines_of_one_cart_for_the_same_category_get_two_machines_or_none() {
    let scene = Scene::with_machines(2).await;
    let two_lines = json!({"lines": [
        {"asset": {"category": "box"}, "quantity": 1}, {"asset": {"category": "box"}, "quantity": 1}]});
    let id = scene.place("two", two_lines.clone()).await;
    assert_eq!(scene.reserve(id).await, Outcome::Reserved);
    assert_eq!(scene.assets(id, "held").await, ["m-01", "m-02"]);

    let scene = Scene::with_machines(1).await;
    let id = scene.place("two", two_lines).await;
    let Outcome::Refused(refusal) = scene.reserve(id).await else { panic!("one machine cannot fill two lines") };
    assert_eq!((refusal.kind, refusal.line), (Kind::Unavailable, 2));
    // Whole or not at all: the first line's machine is free again.
    assert_eq!(scene.number("select count(*) from onehold.reservations").await, 0);
    assert_eq!(scene.number("select count(*) from onehold.assets where owner_id is not null").await, 0);
    scene.verify().await;
}

/// Many carts of several machines at once: whatever happens, every cart is whole or empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn carts_of_several_machines_that_race_are_whole_or_empty() {
    let scene = Scene::with_machines(10).await;
    let mut ids = Vec::new();
    for n in 0..12 {
        let body = json!({"lines": [{"asset": {"category": "box"}, "quantity": 3}]});
        ids.push(scene.place(&format!("cart-{n}"), body).await);
    }
    let outcomes =
        scene.at_once(ids.clone(), |db, id| async move { allocator::run(&db, SHOP, id).await.unwrap() }).await;
    let won = outcomes.iter().filter(|o| **o == Outcome::Reserved).count();
    assert!((1..=3).contains(&won), "{outcomes:?}");
    assert_eq!(scene.number("select count(*) from onehold.reservations").await, 3 * i64::try_from(won).unwrap());
    scene.verify().await;
}
