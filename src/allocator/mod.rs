//! The allocator: one transaction reserves an order whole or says honestly why not.
//!
//! For each asset wanted: ask the key, list at most 25 candidates, lock one at a time passing over what
//! others have locked, insert the hold under a savepoint, ask the key once more before refusing.

mod anew;
pub mod attempt;
pub mod availability;
pub mod candidates;
mod combiner;
mod line;
pub mod refusal;
mod sql;
mod units;

use std::time::Duration;

use rand::Rng as _;
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use crate::db::{Db, Fault, Verdict};
use crate::queue::catalogue::{CONVERT, REFILL};
use crate::reservations::{self, Units};
pub use anew::{Anew, Before, reacquire, substitute};
pub use availability::availability;
pub use combiner::Combiner;
use line::{Filled, fill};
pub use refusal::{Kind, Reason, Refusal};

/// How often a contended order is tried before its refusal is final.
pub const MOST_ROUNDS: u32 = 5;

/// How many lapsed orders are cleared apart at a time, and how often one run does so.
const MOST_CLEARED: i64 = 1_000;
const MOST_CLEARINGS: u32 = 200;

/// What became of an order.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Everything is held.
    Reserved,
    /// An honest no, written into the order.
    Refused(Refusal),
    /// It was decided before, or cancelled: nothing was done.
    AlreadyDecided,
    /// There is no such order.
    NoSuchOrder,
}

enum Step {
    Ended(Outcome),
    /// Everything is held; and whether a refill was enqueued.
    Reserved {
        woke: bool,
    },
    TryAgain,
    /// Lapsed holds that stood in the way were expired, and stay so.
    Cleared,
}

/// Reserves a placed order, or refuses it. The reserve job's work.
///
/// Safe to repeat: only an order that is still `placed` is worked on, and a line that already has its
/// reservation keeps it.
///
/// # Errors
/// Faults of the database; an honest no is an [`Outcome`].
pub async fn run(db: &Db, shop_id: i32, order: Uuid) -> Result<Outcome, Fault> {
    run_rounds(db, shop_id, order, MOST_ROUNDS).await
}

/// As [`run`], trying a contended order at most `rounds` times.
///
/// # Errors
/// Faults of the database.
pub async fn run_rounds(db: &Db, shop_id: i32, order: Uuid, rounds: u32) -> Result<Outcome, Fault> {
    let (mut round, mut cleared) = (1, 0);
    loop {
        let last = round >= rounds;
        let step = db
            .transaction("reserve", |mut tx| Box::pin(async move { reserve(&mut tx, shop_id, order, last).await }))
            .await?;
        match step {
            Step::Ended(outcome) => {
                announce(db, order, &outcome);
                return Ok(outcome);
            }
            Step::Reserved { woke } => {
                announce(db, order, &Outcome::Reserved);
                if woke {
                    db.notifier().job(REFILL.name);
                }
                return Ok(Outcome::Reserved);
            }
            Step::Cleared if cleared < MOST_CLEARINGS => cleared += 1,
            Step::Cleared => return Err(anyhow::anyhow!("order {order} stands behind too many lapsed holds").into()),
            Step::TryAgain => {
                let pause = rand::rng().random_range(2..=10_u64 << round);
                tokio::time::sleep(Duration::from_millis(pause)).await;
                round += 1;
            }
        }
    }
}

fn announce(db: &Db, order: Uuid, outcome: &Outcome) {
    match outcome {
        Outcome::Reserved | Outcome::Refused(_) => {
            db.notifier().decided(order);
            // A payment may have been waiting for this decision.
            db.notifier().job(CONVERT.name);
        }
        // The run before may have died between its commit and its notice.
        Outcome::AlreadyDecided => db.notifier().decided(order),
        Outcome::NoSuchOrder => {}
    }
}

async fn reserve(tx: &mut PgConnection, shop_id: i32, order: Uuid, last: bool) -> Result<Verdict<Step>, Fault> {
    let Some(locked) = sql::lock_order(tx, shop_id, order).await? else {
        return Ok(Verdict::Rollback(Step::Ended(Outcome::NoSuchOrder)));
    };
    if locked.status != "placed" {
        return Ok(Verdict::Rollback(Step::Ended(Outcome::AlreadyDecided)));
    }
    let mut lines = sql::lines(tx, shop_id, order).await?;
    // The pickier line first: one that takes anything would take from it what only it can use.
    lines.sort_by_key(|line| std::cmp::Reverse(line.wanted.conditions()));
    let mut trial = tx.begin().await?;
    let (mut filled, mut woke) = (Filled::Whole, false);
    for line in &lines {
        filled = fill(&mut trial, &locked, line, &[], last).await?;
        if !matches!(filled, Filled::Whole) {
            break;
        }
    }
    if locked.has_stock_lines && matches!(filled, Filled::Whole) {
        (filled, woke) = units::fill(&mut trial, &locked).await?;
    }
    match filled {
        Filled::Whole => {}
        Filled::BehindLapsed => {
            trial.rollback().await?;
            let lapsed = reservations::lapsed(tx, shop_id, MOST_CLEARED).await?;
            reservations::expire(tx, shop_id, &lapsed, "worker", Units::Leave).await?;
            return Ok(Verdict::Commit(Step::Cleared));
        }
        Filled::Short(refusal) if refusal.kind == Kind::Contended && !last => {
            trial.rollback().await?;
            return Ok(Verdict::Rollback(Step::TryAgain));
        }
        Filled::Short(refusal) => {
            // Whole or not at all: what the lines before got goes back.
            trial.rollback().await?;
            sql::refuse(tx, shop_id, order, &refusal.to_json()).await?;
            return Ok(Verdict::Commit(Step::Ended(Outcome::Refused(refusal))));
        }
    }
    trial.commit().await?;
    sql::mark_reserved(tx, shop_id, order).await?;
    Ok(Verdict::Commit(Step::Reserved { woke }))
}
