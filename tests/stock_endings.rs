//! Orders for units that end: units come back once, whoever ends the order, and however often (cases C1 to C3).

use onehold::convert::Applied;
use onehold::db::Db;
use onehold::orders::{self, AfterRelease, Ending};
use onehold::sweep::sweep;
use onehold::{allocator, convert};
use sqlx::types::Uuid;

use crate::scene::{SHOP, Scene};
use crate::stock_stage::{
    Figures, conserved, figures, held, place, place_many, pool_bound, receive, reserved, stocked, units,
};

async fn cancel(scene: &Scene, id: Uuid) -> Ending {
    orders::cancel(&scene.db, SHOP, id, "api:test", None).await.unwrap()
}

async fn release(db: &Db, id: Uuid) -> Ending {
    orders::release(db, SHOP, id, "api:test", None, AfterRelease::Ready).await.unwrap()
}

/// Case C1.
#[tokio::test]
async fn a_second_cancellation_gives_no_unit_back_a_second_time() {
    let scene = stocked(&[("X", "BER", 10)]).await;
    let id = reserved(&scene, "k", vec![units("X", 4)]).await;
    assert_eq!(figures(&scene, "X", "BER").await, Figures { on_hand: 10, held: 4, pooled: 6, rest: 0 });
    assert_eq!(cancel(&scene, id).await, Ending::Done);
    let back = Figures { on_hand: 10, held: 0, pooled: 10, rest: 0 };
    assert_eq!(figures(&scene, "X", "BER").await, back, "they are sellable rows at once");
    assert_eq!(cancel(&scene, id).await, Ending::Unchanged);
    assert_eq!(figures(&scene, "X", "BER").await, back);
    conserved(&scene).await;
}

/// Units come back to the pool up to its bound, and otherwise to the rest.
#[tokio::test]
async fn units_that_come_back_fill_the_pool_up_to_its_bound_and_no_further() {
    let scene = Scene::with_machines(0).await;
    pool_bound(&scene, 5).await;
    receive(&scene, "X", "BER", 20).await;
    let id = reserved(&scene, "k", vec![units("X", 18)]).await;
    cancel(&scene, id).await;
    assert_eq!(figures(&scene, "X", "BER").await, Figures { on_hand: 20, held: 0, pooled: 5, rest: 15 });
    conserved(&scene).await;
}

/// Who ends an order.
#[derive(Clone, Debug)]
enum End {
    Cancel(Uuid),
    Convert(String),
    Reserve(Uuid),
    Sweep,
}

impl End {
    async fn go(self, db: &Db) -> String {
        match self {
            Self::Cancel(id) => format!("{:?}", orders::cancel(db, SHOP, id, "api:test", None).await.unwrap()),
            Self::Convert(event) => format!("{:?}", convert::apply(db, SHOP, "standard", &event).await.unwrap()),
            Self::Reserve(id) => match allocator::run(db, SHOP, id).await.unwrap() {
                allocator::Outcome::Refused(_) => "Refused".to_owned(),
                other => format!("{other:?}"),
            },
            Self::Sweep => format!("{}", sweep(db).await.unwrap()),
        }
    }
}

/// Case C1. A lapse and a cancellation are different for ever: a lapsed hold expires, whoever comes first.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cancellations_and_a_sweep_at_once_end_each_order_once() {
    let scene = stocked(&[("X", "BER", 60)]).await;
    let mut ids = Vec::new();
    for id in place_many(&scene, "o", 20, &[units("X", 2)]).await {
        scene.reserve(id).await;
        ids.push(id);
    }
    scene.run("update onehold.reservations set expires_at = clock_timestamp() - interval '1 second'").await;
    let mut ends: Vec<End> = ids.iter().flat_map(|id| [End::Cancel(*id), End::Cancel(*id)]).collect();
    ends.extend([End::Sweep, End::Sweep]);
    scene.at_once(ends, |db, end| async move { end.go(&db).await }).await;
    for id in ids {
        assert_eq!(scene.history(id).await, ["placed", "reserved", "expired"]);
    }
    let now = figures(&scene, "X", "BER").await;
    assert_eq!((now.on_hand, now.held), (60, 0));
    conserved(&scene).await;
}

/// Case C1. One wins, and the loser says who won.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_cancellation_and_a_payment_at_once_one_wins_and_the_units_follow_it() {
    let scene = stocked(&[("X", "BER", 100)]).await;
    let mut ids = Vec::new();
    for id in place_many(&scene, "o", 20, &[units("X", 3)]).await {
        scene.reserve(id).await;
        scene.keep_event(&id.to_string(), &format!("paid-{id}"), "succeeded").await;
        ids.push(id);
    }
    let ends = ids.iter().flat_map(|id| [End::Cancel(*id), End::Convert(format!("paid-{id}"))]).collect();
    let answers = scene.at_once(ends, |db, end| async move { end.go(&db).await }).await;
    let mut sold = 0;
    for (id, answer) in ids.iter().zip(answers.chunks(2)) {
        let history = scene.history(*id).await;
        match (answer[0].as_str(), answer[1].as_str()) {
            ("Done", "RefundDue") => assert_eq!(history, ["placed", "reserved", "cancelled", "refund_due"]),
            ("AlreadyConverted", "Converted") => {
                assert_eq!(history, ["placed", "reserved", "converted"]);
                sold += 3;
            }
            other => panic!("{other:?}"),
        }
    }
    let now = figures(&scene, "X", "BER").await;
    assert_eq!((now.on_hand, now.held), (100 - sold, 0));
    conserved(&scene).await;
}

/// Case C2.
#[tokio::test]
async fn an_order_that_is_cancelled_before_its_job_runs_reserves_nothing_later() {
    let scene = stocked(&[("X", "BER", 5)]).await;
    let id = place(&scene, "k", vec![units("X", 5)]).await;
    assert_eq!(cancel(&scene, id).await, Ending::Done);
    assert_eq!(scene.reserve(id).await, allocator::Outcome::AlreadyDecided);
    assert_eq!(scene.number("select count(*) from onehold.reservations").await, 0);
    assert_eq!(figures(&scene, "X", "BER").await, Figures { on_hand: 5, held: 0, pooled: 5, rest: 0 });
    conserved(&scene).await;
}

/// Case C2 with both at once: a hold that was made is given back, or never made.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_order_that_is_cancelled_while_its_job_runs_holds_nothing_afterwards() {
    let scene = stocked(&[("X", "BER", 40)]).await;
    let ids = place_many(&scene, "o", 20, &[units("X", 2)]).await;
    let ends = ids.iter().flat_map(|id| [End::Reserve(*id), End::Cancel(*id)]).collect();
    let answers = scene.at_once(ends, |db, end| async move { end.go(&db).await }).await;
    assert!(answers.iter().skip(1).step_by(2).all(|cancelled| cancelled == "Done"), "{answers:?}");
    assert_eq!(held(&scene, "X").await, 0);
    let now = figures(&scene, "X", "BER").await;
    assert_eq!((now.on_hand, now.pooled + now.rest), (40, 40));
    conserved(&scene).await;
}

/// Case C3.
#[tokio::test]
async fn five_units_that_are_sold_then_released_then_refunded_come_back_once() {
    let scene = stocked(&[("X", "BER", 8)]).await;
    let id = reserved(&scene, "k", vec![units("X", 5)]).await;
    assert_eq!(scene.pay(id, "paid").await, Applied::Converted);
    assert_eq!(figures(&scene, "X", "BER").await, Figures { on_hand: 3, held: 0, pooled: 3, rest: 0 });
    assert_eq!(release(&scene.db, id).await, Ending::Done);
    let back = Figures { on_hand: 8, held: 0, pooled: 8, rest: 0 };
    assert_eq!(figures(&scene, "X", "BER").await, back);
    scene.keep_event(&id.to_string(), "refund", "refunded").await;
    assert_eq!(scene.apply("refund").await, Applied::Refunded);
    assert_eq!(scene.apply("refund").await, Applied::AlreadySettled);
    assert_eq!(release(&scene.db, id).await, Ending::NotConverted);
    assert_eq!(figures(&scene, "X", "BER").await, back);
    let ledger: Vec<(String, i32)> = sqlx::query_as("select kind, delta from onehold.stock_movements order by id")
        .fetch_all(scene.db.pool())
        .await
        .unwrap();
    let moved = [("receipt", 8), ("sale", -5), ("release", 5)];
    assert_eq!(ledger, moved.map(|(kind, delta)| (kind.to_owned(), delta)));
    conserved(&scene).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn releases_of_one_order_at_once_book_its_units_back_once() {
    let scene = stocked(&[("X", "BER", 3), ("X", "FRA", 3)]).await;
    let split = crate::stock_stage::units_from("X", 5, &["BER", "FRA"], true);
    let id = reserved(&scene, "k", vec![split, units("X", 1)]).await;
    assert_eq!(scene.pay(id, "paid").await, Applied::Converted);
    assert_eq!((figures(&scene, "X", "BER").await.on_hand, figures(&scene, "X", "FRA").await.on_hand), (0, 0));
    let answers = scene.at_once(vec![id; 5], |db, id| async move { release(&db, id).await }).await;
    assert_eq!(answers.iter().filter(|a| **a == Ending::Done).count(), 1, "{answers:?}");
    assert_eq!((figures(&scene, "X", "BER").await.on_hand, figures(&scene, "X", "FRA").await.on_hand), (3, 3));
    assert_eq!(scene.number("select count(*) from onehold.stock_movements where kind = 'release'").await, 3);
    conserved(&scene).await;
}

/// Two events of one payment, each delivered twice, all at once: one sale.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn payments_of_one_order_at_once_sell_its_units_once() {
    let scene = stocked(&[("X", "BER", 9)]).await;
    let id = reserved(&scene, "k", vec![units("X", 4)]).await;
    let mut ends = Vec::new();
    for event in ["session", "intent"] {
        scene.keep_event(&id.to_string(), event, "succeeded").await;
        ends.extend([End::Convert(event.to_owned()), End::Convert(event.to_owned())]);
    }
    let answers = scene.at_once(ends, |db, end| async move { end.go(&db).await }).await;
    assert_eq!(answers.iter().filter(|a| *a == "Converted").count(), 1, "{answers:?}");
    assert_eq!(scene.number("select count(*) from onehold.stock_movements where kind = 'sale'").await, 1);
    assert_eq!(figures(&scene, "X", "BER").await.on_hand, 5);
    conserved(&scene).await;
}

/// Nobody swept: a lapsed hold of units does not convert, and its units can be had.
#[tokio::test]
async fn money_for_a_lapsed_hold_of_units_is_owed_back_and_the_units_are_free() {
    let scene = stocked(&[("X", "BER", 4)]).await;
    scene.run("update onehold.shops set late_money = 'refund'").await;
    let id = reserved(&scene, "k", vec![units("X", 4)]).await;
    scene.lapse(id).await;
    assert_eq!(scene.pay(id, "late").await, Applied::RefundDue);
    assert_eq!(figures(&scene, "X", "BER").await, Figures { on_hand: 4, held: 0, pooled: 4, rest: 0 });
    reserved(&scene, "next", vec![units("X", 4)]).await;
    conserved(&scene).await;
}
