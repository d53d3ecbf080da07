//! Orders of 1, 10 and 50 lines, each line one unit of another SKU: how much longer a large one takes, both one
//! after the other (what its buyer waits) and many at once (what it takes of the fleet).

use anyhow::ensure;
use uuid::Uuid;

use super::drive::{self, Contest, Party};
use super::hot_sku::BUYERS;
use super::{Bench, Ratio, Scenario, many_skus, sql};

/// How many orders are ready for a round, for each line that they have.
const ORDERS: usize = 15_000;

/// How many lines an order has, and how many buyers there are at once.
#[derive(Clone, Copy, Debug)]
struct Side {
    lines: i32,
    buyers: usize,
}

struct Cart {
    many: i32,
    orders: usize,
}

pub(super) async fn run(bench: &Bench<'_>) -> anyhow::Result<Vec<Ratio>> {
    let many = many_skus::shelve(bench).await?;
    let side = |lines, buyers| Side { lines, buyers };
    let sides = [side(1, 1), side(10, 1), side(50, 1), side(1, BUYERS), side(10, BUYERS), side(50, BUYERS)];
    let orders = ORDERS / bench.effort.divisor;
    let tallies = drive::alternate(bench, &Cart { many, orders }, &sides).await?;
    ensure!(
        sql::oversold(bench.fleet.db.pool(), bench.shop_id, many_skus::SKUS).await? == 0,
        "more was sold than there is"
    );
    let ratio = |name, at: usize, base: usize| Ratio::of_shares(Scenario::Cart, name, &tallies[at], &tallies[base]);
    Ok(vec![
        ratio("10 lines to 1", 1, 0),
        ratio("50 lines to 1", 2, 0),
        ratio("10 lines to 1, 64 at once", 4, 3),
        ratio("50 lines to 1, 64 at once", 5, 3),
    ])
}

impl Contest for Cart {
    type Side = Side;

    async fn party(&self, bench: &Bench<'_>, side: Side) -> anyhow::Result<Party> {
        let alone = if side.buyers == 1 { 10 } else { 1 };
        let orders = i32::try_from((self.orders / (alone * side.lines as usize)).max(100))?;
        // The fewer the SKUs, the sooner the carts of one party would leave nothing to the next. Orders take their
        // SKUs anywhere, so each is put out twice as often as it will be bought in the mean.
        let units = 2 * (orders * side.lines / self.many + 1);
        sql::stock(bench.fleet.db.pool(), bench.shop_id, many_skus::SKUS, self.many, units).await?;
        many_skus::party(bench, self.many, orders, side.lines, side.buyers).await
    }

    async fn check(&self, bench: &Bench<'_>, side: Side, orders: &[Uuid], done: usize) -> anyhow::Result<()> {
        many_skus::check(bench, orders, side.lines.into(), done).await
    }
}
