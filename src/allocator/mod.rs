//! The allocator: one transaction reserves an order whole or says honestly why not.
//!
//! For each asset wanted: ask the key, list at most 25 candidates, lock one at a time passing over what
//! others have locked, insert the hold under a savepoint, ask the key once more before refusing.

pub mod attempt;
pub mod availability;
pub mod candidates;
mod combiner;
mod line;
pub mod refusal;
mod sql;
mod units;
pub mod waiting;

use std::time::Duration;

use rand::Rng as _;
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use crate::db::{Db, Fault, Verdict};
use crate::queue::catalogue::{CONVERT, REFILL};
use crate::reservations::{self, Units};
pub use availability::availability;
pub use combiner::Combiner;
use line::{Filled, fill};
pub use refusal::{Kind, Reason, Refusal};
use sql::Clearing;
use waiting::Before;

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
    /// It waits for stock to come free, and is served by whoever frees it.
    Waiting,
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
    /// Nothing was found, and the order may wait, or others wait for the same: it is looked for once more, with the
    /// waiting list locked.
    Wait,
    /// Older orders that waited for the same were served first.
    Served(Vec<Uuid>),
    /// Lapsed holds that stood in the way were expired, if any could be, and stay so; who waited for what they kept
    /// was served.
    Cleared {
        any: bool,
        served: Vec<Uuid>,
    },
}

/// How one transaction goes about it.
#[derive(Clone, Copy)]
struct Way {
    /// What is contended now is refused.
    last: bool,
    /// The waiting list is locked: what is not found now is waited for.
    alone: bool,
    /// Lapsed holds in the way could not be expired, and are left to whoever is at them.
    past_lapsed: bool,
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
    let mut way = Way { last: rounds <= 1, alone: false, past_lapsed: false };
    loop {
        let step = db
            .transaction("reserve", |mut tx| Box::pin(async move { reserve(&mut tx, shop_id, order, way).await }))
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
            Step::Wait => way.alone = true,
            Step::Served(_) | Step::Cleared { .. } if cleared >= MOST_CLEARINGS => {
                return Err(
                    anyhow::anyhow!("order {order} stands behind too many lapsed holds or waiting orders").into()
                );
            }
            Step::Served(served) => {
                waiting::tell(db, &served);
                cleared += 1;
            }
            Step::Cleared { any, served } => {
                waiting::tell(db, &served);
                way.past_lapsed = !any;
                cleared += 1;
            }
            Step::TryAgain => {
                let pause = rand::rng().random_range(2..=10_u64 << round);
                tokio::time::sleep(Duration::from_millis(pause)).await;
                round += 1;
                way = Way { last: round >= rounds, past_lapsed: false, ..way };
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
        Outcome::Waiting | Outcome::NoSuchOrder => {}
    }
}

async fn reserve(tx: &mut PgConnection, shop_id: i32, order: Uuid, way: Way) -> Result<Verdict<Step>, Fault> {
    let Some(mut locked) = sql::lock_order(tx, shop_id, order, way.alone).await? else {
        return Ok(Verdict::Rollback(Step::Ended(Outcome::NoSuchOrder)));
    };
    if locked.status != "placed" {
        return Ok(Verdict::Rollback(Step::Ended(Outcome::AlreadyDecided)));
    }
    if way.past_lapsed {
        locked.clearing = Clearing::Never;
    }
    if locked.over_limit {
        return short(tx, &locked, Refusal::limit(), way).await;
    }
    let mut lines = sql::lines(tx, shop_id, order).await?;
    if locked.anyone_waits && waiting::anyone_before(tx, &locked).await? {
        // Whatever came free from now on would be theirs before it was his: so nobody frees anything meanwhile.
        if !way.alone {
            return Ok(Verdict::Rollback(Step::Wait));
        }
        match waiting::serve_before(tx, &locked, &lines).await? {
            Before::Served(served) => return Ok(Verdict::Commit(Step::Served(served))),
            Before::Locked if !way.last => return Ok(Verdict::Rollback(Step::TryAgain)),
            Before::Locked | Before::Nobody => {}
        }
    }
    // The pickier line first: one that takes anything would take from it what only it can use.
    lines.sort_by_key(|line| std::cmp::Reverse(line.wanted.conditions()));
    let mut trial = tx.begin().await?;
    let (mut filled, mut woke) = (Filled::Whole, false);
    for line in &lines {
        filled = fill(&mut trial, &locked, line, way.last).await?;
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
            return clear(tx, &locked).await;
        }
        Filled::Short(refusal) => {
            // Whole or not at all: what the lines before got goes back.
            trial.rollback().await?;
            return short(tx, &locked, refusal, way).await;
        }
    }
    trial.commit().await?;
    sql::mark_reserved(tx, shop_id, order).await?;
    if locked.waiting {
        waiting::end(tx, &locked).await?;
    }
    Ok(Verdict::Commit(Step::Reserved { woke }))
}

/// Expires lapsed holds for good, and serves those who wait for what they kept.
async fn clear(tx: &mut PgConnection, order: &sql::LockedOrder) -> Result<Verdict<Step>, Fault> {
    let lapsed = reservations::lapsed(tx, order.shop_id, MOST_CLEARED).await?;
    // With someone waiting the units become rows again at once, for him. The locks of pools that are taken for that
    // are taken by a try, and this transaction ends here.
    let units = if order.anyone_waits { Units::GiveBack } else { Units::Leave };
    let ended = reservations::expire(tx, order.shop_id, &lapsed, "worker", units).await?;
    let served = match (order.anyone_waits, ended.is_empty()) {
        (true, false) => waiting::serve_ended(tx, order.shop_id, &ended).await?,
        (false, _) | (true, true) => Vec::new(),
    };
    Ok(Verdict::Commit(Step::Cleared { any: !ended.is_empty(), served }))
}

/// What becomes of an order that cannot be had whole now: it is tried again, waits, or is refused.
async fn short(
    tx: &mut PgConnection,
    order: &sql::LockedOrder,
    refusal: Refusal,
    way: Way,
) -> Result<Verdict<Step>, Fault> {
    let waits = match refusal.kind {
        Kind::Contended if !way.last => return Ok(Verdict::Rollback(Step::TryAgain)),
        Kind::Contended | Kind::Held | Kind::Unavailable => order.may_wait,
        // Stock that comes free does not help; only one that waits already is not sent away for it.
        Kind::Limit => order.may_wait && order.waiting,
    };
    if !waits {
        sql::refuse(tx, order.shop_id, order.id, &refusal.to_json()).await?;
        return Ok(Verdict::Commit(Step::Ended(Outcome::Refused(refusal))));
    }
    if !order.waiting {
        if !way.alone {
            return Ok(Verdict::Rollback(Step::Wait));
        }
        waiting::begin(tx, order, &refusal).await?;
    }
    if refusal.kind == Kind::Contended {
        // What it wants is there, and comes free without anyone freeing it: when who has it locked gives up.
        waiting::wake_in(tx, order, refusal::CONTENDED_RETRY_SECONDS).await?;
    }
    Ok(Verdict::Commit(Step::Ended(Outcome::Waiting)))
}
