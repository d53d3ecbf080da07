//! Orders that wait, and stock that comes free, at once: nobody is forgotten, nobody overtakes, nothing is lost.

use std::collections::HashMap;

use onehold::allocator::{self, Outcome, waiting};
use onehold::db::Db;
use onehold::orders::{self, Status};
use onehold::stock::movement;
use onehold::sweep::sweep;
use serde_json::json;
use sqlx::types::Uuid;
use tokio::task::JoinSet;

use crate::scene::{SHOP, Scene};
use crate::stock_stage::{held, stocked};
use crate::waiting::{machine, receive, units, waits};

/// Who begins to wait at the very moment at which the machine comes free is not forgotten: no wake-up is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn beginning_to_wait_and_freeing_at_once_never_miss_each_other() {
    let scene = Scene::with_machines(1).await;
    let mut holder = scene.reserved("first").await;
    for round in 0..40 {
        let next = scene.place(&format!("next-{round}"), machine()).await;
        let work: Vec<(bool, Uuid)> = vec![(true, holder), (false, next)];
        scene
            .at_once(work, |db, (frees, id)| async move {
                if frees {
                    orders::cancel(&db, SHOP, id, "api:t", None).await.unwrap();
                } else {
                    let outcome = allocator::run(&db, SHOP, id).await.unwrap();
                    assert!(matches!(outcome, Outcome::Reserved | Outcome::Waiting | Outcome::AlreadyDecided));
                }
            })
            .await;
        assert_eq!(scene.order(next).await.status, Status::Reserved, "round {round}");
        holder = next;
    }
    scene.verify().await;
}

/// A newcomer never gets what comes free while somebody waits for it, however close he stands.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn newcomers_at_the_instant_of_freeing_snatch_nothing() {
    for round in 0..15 {
        let scene = stocked(&[("PSU", "BER", 1)]).await;
        scene.add_machines(1).await;
        let mut both = json!({"lines": [{"sku": "PSU", "quantity": 1}]});
        let cart = scene.place("cart", both.clone()).await;
        assert_eq!(scene.reserve(cart).await, Outcome::Reserved);
        let first = scene.reserved("first").await;
        let (for_unit, for_machine) = (waits(&scene, "w-1", units(1)).await, waits(&scene, "w-2", machine()).await);
        both["hold_seconds"] = 60.into();
        let mut work = vec![(true, cart), (true, first)];
        for n in 0..4 {
            work.push((false, scene.place(&format!("unit-{n}"), both.clone()).await));
            work.push((false, scene.place_one(&format!("machine-{n}")).await));
        }
        let combiner = allocator::Combiner::start(&scene.db);
        scene
            .at_once(work, |db, (frees, id)| {
                let combiner = combiner.clone();
                async move {
                    if frees && round % 2 == 0 {
                        orders::cancel(&db, SHOP, id, "api:t", None).await.unwrap();
                    } else if frees {
                        lapse(&db, id).await;
                        sweep(&db).await.unwrap();
                    } else {
                        combiner.run(SHOP, id).await.unwrap();
                    }
                }
            })
            .await;
        // A lapse that a newcomer's sight came before is swept now. Whoever was passed over, because a newcomer had him
        // locked at that instant, was woken.
        sweep(&scene.db).await.unwrap();
        run_jobs(&scene).await;
        assert_eq!(scene.order(for_unit).await.status, Status::Reserved, "round {round}");
        assert_eq!(scene.order(for_machine).await.status, Status::Reserved, "round {round}");
        scene.verify().await;
    }
}

async fn lapse(db: &Db, id: Uuid) {
    sqlx::query(
        "update onehold.reservations set expires_at = clock_timestamp() where order_id = $1 and state = 'held'",
    )
    .bind(id)
    .execute(db.pool())
    .await
    .unwrap();
}

/// Two free at once, and two wait: each gets one, nobody two, and no deadlock reaches anyone.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_who_free_at_once_serve_as_many_who_wait() {
    let scene = Scene::with_machines(8).await;
    let mut holders = Vec::new();
    for n in 0..8 {
        holders.push(scene.reserved(&format!("holder-{n}")).await);
    }
    let mut waiters = Vec::new();
    for n in 0..12 {
        waiters.push(waits(&scene, &format!("waiter-{n}"), machine()).await);
    }
    scene.at_once(holders, |db, id| async move { orders::cancel(&db, SHOP, id, "api:t", None).await.unwrap() }).await;
    let mut reserved = Vec::new();
    for id in &waiters {
        reserved.push(scene.order(*id).await.status == Status::Reserved);
    }
    assert_eq!(reserved, [[true; 8].as_slice(), [false; 4].as_slice()].concat(), "the eight oldest");
    scene.verify().await;
}

/// A cancellation of the waiting order itself meets the freeing that would serve it: one of the two, and nothing stuck.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_waiting_order_that_is_cancelled_as_it_is_served_leaves_the_machine_to_the_next() {
    for round in 0..15 {
        let scene = Scene::with_machines(1).await;
        let first = scene.reserved("first").await;
        let second = waits(&scene, "second", machine()).await;
        let third = waits(&scene, "third", machine()).await;
        scene
            .at_once(vec![first, second], |db, id| async move {
                orders::cancel(&db, SHOP, id, "api:t", None).await.unwrap();
            })
            .await;
        assert_eq!(scene.order(second).await.status, Status::Cancelled, "round {round}");
        assert_eq!(scene.order(third).await.status, Status::Reserved, "round {round}");
        scene.verify().await;
    }
}

/// A number that looks random and is the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Random orders and random frees, one after the other, beside a model: the oldest that fits is served, always.
#[tokio::test]
async fn whatever_happens_one_after_the_other_the_oldest_that_fits_is_served() {
    for seed in 1..=6 {
        let mut dice = Dice(seed);
        let scene = stocked(&[]).await;
        let (mut free, mut queue, mut holding) = (0_i64, Vec::<(Uuid, i64)>::new(), HashMap::<Uuid, i64>::new());
        for step in 0..40 {
            match dice.roll(4) {
                0 | 1 => {
                    let wanted = i64::try_from(dice.roll(4)).unwrap() + 1;
                    let id = scene.place(&format!("{seed}-{step}"), units(i32::try_from(wanted).unwrap())).await;
                    let got = scene.reserve(id).await;
                    assert_eq!(got, if wanted <= free { Outcome::Reserved } else { Outcome::Waiting }, "{seed}/{step}");
                    queue.push((id, wanted));
                }
                2 => {
                    let some = i32::try_from(dice.roll(4)).unwrap() + 1;
                    receive(&scene, some).await;
                    free += i64::from(some);
                }
                _ => {
                    if let Some(id) = holding.keys().min().copied() {
                        orders::cancel(&scene.db, SHOP, id, "api:t", None).await.unwrap();
                        free += holding.remove(&id).unwrap();
                    }
                }
            }
            queue.retain(|(id, wanted)| {
                let fits = *wanted <= free;
                if fits {
                    free -= wanted;
                    holding.insert(*id, *wanted);
                }
                !fits
            });
            for (id, _) in &queue {
                assert!(scene.order(*id).await.waiting, "{seed}/{step}: waits on");
            }
            for id in holding.keys() {
                assert_eq!(scene.order(*id).await.status, Status::Reserved, "{seed}/{step}: was served");
            }
        }
        scene.verify().await;
    }
}

/// Everything at once: orders that wait, receipts, cancellations, lapses and sweeps. Nothing is sold twice, nothing
/// lies free that somebody waits for, and nobody is without an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whatever_happens_at_once_nothing_lies_free_that_somebody_waits_for() {
    let scene = stocked(&[("PSU", "BER", 4)]).await;
    let mut all = Vec::new();
    for n in 0..24 {
        all.push(scene.place(&format!("order-{n}"), units(1 + n % 3)).await);
    }
    let mut tasks = JoinSet::new();
    for (n, id) in all.iter().copied().enumerate() {
        let db = scene.db.clone();
        tasks.spawn(async move {
            allocator::run(&db, SHOP, id).await.unwrap();
            match n % 4 {
                0 => drop(orders::cancel(&db, SHOP, id, "api:t", None).await.unwrap()),
                1 => {
                    lapse(&db, id).await;
                    sweep(&db).await.unwrap();
                }
                2 => {
                    let body = json!({"sku": "PSU", "location": "BER", "delta": 1, "kind": "receipt",
                                      "reference": Uuid::now_v7().to_string()});
                    waiting::post_movement(&db, SHOP, &movement::check(&body).unwrap(), "api:t").await.unwrap();
                }
                _ => {}
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    run_jobs(&scene).await;
    sweep(&scene.db).await.unwrap();
    let free = scene.number("select sum(on_hand - held)::bigint from onehold.pool_figures(1, 'PSU', 'BER')").await;
    assert_eq!(free + held(&scene, "PSU").await, 10, "four and six receipts");
    for id in all {
        let order = scene.order(id).await;
        assert!(order.status != Status::Placed || order.waiting, "{order:?}");
        if order.waiting {
            assert!(i64::from(order.lines[0].quantity) > free, "{free} lie free, and {order:?} waits");
        }
    }
    scene.verify().await;
}

/// Runs the jobs of orders that were woken, as a worker would.
async fn run_jobs(scene: &Scene) {
    let woken: Vec<String> = sqlx::query_scalar(
        "select split_part(idempotency_key, ':', 1) from apalis.jobs
         where job_type = 'reserve' and idempotency_key like '%:wake:%' order by 1",
    )
    .fetch_all(scene.db.pool())
    .await
    .unwrap();
    for id in woken {
        scene.reserve(id.parse().unwrap()).await;
    }
}
