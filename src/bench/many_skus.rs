//! Sixty-four buyers at once on ten thousand SKUs, beside the floor: a bare insert of the reservation's row.

use anyhow::ensure;
use uuid::Uuid;

use super::drive::{self, Contest, Party};
use super::hot_sku::BUYERS;
use super::{Bench, Ratio, Scenario, sql};
use crate::allocator::Outcome;

/// The SKUs' names begin so.
pub(super) const SKUS: &str = "bench-many-";
const MANY: usize = 10_000;
/// So few that all of them are put out, and so many that no round buys them up.
const UNITS: i32 = 60;
const ORDERS: usize = 30_000;

/// Puts the SKUs on the shelf anew; gives how many there are. Units that are left from before add to it.
pub(super) async fn shelve(bench: &Bench<'_>) -> anyhow::Result<i32> {
    let many = bench.effort.size(MANY, 200);
    bench.say(&format!("{UNITS} units of {many} SKUs"));
    sql::stock(bench.fleet.db.pool(), bench.shop_id, SKUS, many, UNITS).await?;
    Ok(many)
}

#[derive(Clone, Copy, Debug)]
enum Side {
    Ours,
    Floor,
}

struct ManySkus {
    many: i32,
    orders: i32,
}

pub(super) async fn run(bench: &Bench<'_>) -> anyhow::Result<Vec<Ratio>> {
    let contest = ManySkus { many: shelve(bench).await?, orders: bench.effort.size(ORDERS, 2_000) };
    let tallies = drive::alternate(bench, &contest, &[Side::Ours, Side::Floor]).await?;
    ensure!(sql::oversold(bench.fleet.db.pool(), bench.shop_id, SKUS).await? == 0, "more was sold than there is");
    Ok(vec![Ratio::of_rates(Scenario::ManySkus, "to floor", &tallies[0], &tallies[1])])
}

impl Contest for ManySkus {
    type Side = Side;

    async fn party(&self, bench: &Bench<'_>, side: Side) -> anyhow::Result<Party> {
        match side {
            Side::Ours => party(bench, self.many, self.orders, 1, BUYERS).await,
            Side::Floor => {
                let placed =
                    sql::place_stock(bench.fleet.db.pool(), bench.shop_id, SKUS, self.many, self.orders, 1).await?;
                drive::floor(bench, placed).await
            }
        }
    }

    async fn check(&self, bench: &Bench<'_>, side: Side, orders: &[Uuid], done: usize) -> anyhow::Result<()> {
        match side {
            Side::Ours => check(bench, orders, 1, done).await,
            Side::Floor => Ok(()),
        }
    }
}

/// A party of ours on orders of `lines` lines.
pub(super) async fn party(
    bench: &Bench<'_>,
    many: i32,
    orders: i32,
    lines: i32,
    buyers: usize,
) -> anyhow::Result<Party> {
    let placed = sql::place_stock(bench.fleet.db.pool(), bench.shop_id, SKUS, many, orders, lines).await?;
    let reserved = |outcome: &Outcome| *outcome == Outcome::Reserved;
    Ok(drive::combined(bench, placed, buyers, reserved).await?.0)
}

/// Each order that was done is reserved, and each of its lines has its hold.
pub(super) async fn check(bench: &Bench<'_>, orders: &[Uuid], lines: i64, done: usize) -> anyhow::Result<()> {
    let found = sql::standing(bench.fleet.db.pool(), bench.shop_id, orders).await?;
    let done = i64::try_from(done)?;
    ensure!((found.reserved, found.holds) == (done, done * lines), "{done} were done, and there are {found:?}");
    Ok(())
}
