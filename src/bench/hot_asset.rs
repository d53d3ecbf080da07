//! Sixty-four buyers at once on ten machines: ten orders get one each, and all others an honest refusal, which
//! should cost no more than a reservation does among many SKUs.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::ensure;
use uuid::Uuid;

use super::drive::{self, Contest, Party};
use super::hot_sku::BUYERS;
use super::{Bench, Ratio, Scenario, many_skus, sql};
use crate::allocator::Outcome;

const MACHINES: i32 = 10;
const ORDERS: usize = 30_000;

#[derive(Clone, Copy, Debug)]
enum Side {
    Ours,
    ManySkus,
}

struct HotAsset {
    many: i32,
    orders: i32,
    /// Each round sells ten machines of its own.
    categories: AtomicUsize,
}

pub(super) async fn run(bench: &Bench<'_>) -> anyhow::Result<Vec<Ratio>> {
    let many = many_skus::shelve(bench).await?;
    let contest = HotAsset { many, orders: bench.effort.size(ORDERS, 2_000), categories: AtomicUsize::new(0) };
    let tallies = drive::alternate(bench, &contest, &[Side::Ours, Side::ManySkus]).await?;
    let name = "refusals to many-skus reservations";
    Ok(vec![Ratio::of_rates(Scenario::HotAsset, name, &tallies[0], &tallies[1])])
}

impl Contest for HotAsset {
    type Side = Side;

    async fn party(&self, bench: &Bench<'_>, side: Side) -> anyhow::Result<Party> {
        let pool = bench.fleet.db.pool();
        match side {
            Side::Ours => {
                let category = format!("bench-hot-{}", self.categories.fetch_add(1, Ordering::Relaxed));
                sql::assets(pool, bench.shop_id, &category, MACHINES).await?;
                let placed = sql::place_assets(pool, bench.shop_id, &category, self.orders).await?;
                let decided = |outcome: &Outcome| matches!(outcome, Outcome::Reserved | Outcome::Refused(_));
                Ok(drive::combined(bench, placed, BUYERS, decided).await?.0)
            }
            Side::ManySkus => many_skus::party(bench, self.many, self.orders, 1, BUYERS).await,
        }
    }

    async fn check(&self, bench: &Bench<'_>, side: Side, orders: &[Uuid], done: usize) -> anyhow::Result<()> {
        match side {
            Side::Ours => {
                let found = sql::standing(bench.fleet.db.pool(), bench.shop_id, orders).await?;
                let machines = i64::from(MACHINES);
                let wanted = sql::Standing {
                    reserved: machines,
                    refused: i64::try_from(done)? - machines,
                    holds: machines,
                    assets: machines,
                };
                ensure!(found == wanted, "there are {found:?}, and {wanted:?} should be");
                Ok(())
            }
            Side::ManySkus => many_skus::check(bench, orders, 1, done).await,
        }
    }
}
