//! Buyers at once among many SKUs while 100,000 lapsed holds are swept beside them: how much longer the slow
//! reservations take than without.

mod sql;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::drive::{self, Act, Contest, Party};
use super::sql as common;
use super::{Bench, Effort, Ratio, Scenario, many_skus};
use crate::db::Db;
use crate::sweep;

const LAPSED: usize = 100_000;
const SKUS: &str = "bench-lapsed-";
const MANY: i32 = 100;
/// A thousand are put out, and a thousand are held by those who lapse.
const UNITS: i32 = 3_000;
const ORDERS: usize = 30_000;
/// Fewer than keep the machine busy with nothing but waiting for itself: the tail is to show the sweep.
const BUYERS: usize = 16;
/// A sweep takes longer than a round, and is waited for.
const MOST_ROUNDS: usize = 3;
const SWEEP_LIMIT: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug)]
enum Side {
    Beside,
    Without,
}

/// Gives how many orders were expired.
type Sweeping = AbortOnDropHandle<Result<u64, crate::db::Fault>>;

struct Sweep {
    many: i32,
    orders: i32,
    lapsed: i32,
    /// The sweep that began with the round's first order.
    sweeping: Arc<Mutex<Option<Sweeping>>>,
}

pub(super) async fn run(bench: &Bench<'_>) -> anyhow::Result<Vec<Ratio>> {
    let effort = Effort { rounds: bench.effort.rounds.min(MOST_ROUNDS), ..bench.effort };
    let bench = &Bench { effort, ..*bench };
    let many = many_skus::shelve(bench).await?;
    let lapsed = effort.size(LAPSED, 2_000);
    bench.say(&format!("{UNITS} units of {MANY} SKUs, of which {lapsed} lapse in each round"));
    common::stock(bench.fleet.db.pool(), bench.shop_id, SKUS, MANY, UNITS).await?;
    let contest = Sweep { many, orders: effort.size(ORDERS, 2_000), lapsed, sweeping: Arc::default() };
    let tallies = drive::alternate(bench, &contest, &[Side::Beside, Side::Without]).await?;
    ensure!(common::oversold(bench.fleet.db.pool(), bench.shop_id, SKUS).await? == 0, "units were not conserved");
    Ok(vec![
        Ratio::of_tails(Scenario::Sweep, "reserve p99 beside it to without", &tallies[0], &tallies[1]),
        Ratio::of_rates(Scenario::Sweep, "reservations beside it to without", &tallies[0], &tallies[1]),
    ])
}

impl Contest for Sweep {
    type Side = Side;
    /// The sweep's own statements would be counted among the buyers'.
    const METERED: bool = false;

    async fn party(&self, bench: &Bench<'_>, side: Side) -> anyhow::Result<Party> {
        let mut party = many_skus::party(bench, self.many, self.orders, 1, BUYERS).await?;
        match side {
            Side::Without => Ok(party),
            Side::Beside => {
                sql::lapsed(bench.fleet.db.pool(), bench.shop_id, SKUS, MANY, self.lapsed).await?;
                let db = Db::connect_with(bench.fleet.db.options().clone(), 2).await?;
                party.clients =
                    party.clients.into_iter().map(|client| self.sweeping_first(db.clone(), client)).collect();
                Ok(party)
            }
        }
    }

    async fn check(&self, bench: &Bench<'_>, side: Side, orders: &[Uuid], done: usize) -> anyhow::Result<()> {
        many_skus::check(bench, orders, 1, done).await?;
        match side {
            Side::Without => Ok(()),
            Side::Beside => {
                let sweeping = self.sweeping.lock().unwrap_or_else(PoisonError::into_inner).take();
                let sweeping = sweeping.context("nothing was swept")?;
                let swept =
                    tokio::time::timeout(SWEEP_LIMIT, sweeping).await.context("the sweep does not end")???;
                let left = sql::still_lapsed(bench.fleet.db.pool(), bench.shop_id, SKUS).await?;
                ensure!(left == 0 && swept >= u64::try_from(self.lapsed)?, "{swept} were swept, {left} are left");
                Ok(())
            }
        }
    }
}

impl Sweep {
    /// A client whose round begins with the sweep, if its order is the first.
    fn sweeping_first(&self, db: Db, mut client: Act) -> Act {
        let sweeping = Arc::clone(&self.sweeping);
        Box::new(move |n| {
            if n == 0 {
                let db = db.clone();
                let begun = tokio::spawn(async move { sweep::sweep(&db).await });
                *sweeping.lock().unwrap_or_else(PoisonError::into_inner) = Some(AbortOnDropHandle::new(begun));
            }
            client(n)
        })
    }
}
