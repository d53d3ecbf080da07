//! A transaction stays open elsewhere while buyers go on: no dead row that they leave can be removed.

use anyhow::ensure;

use super::{Curve, SKU, Wanted, common, point, sql};
use crate::allocator::Outcome;
use crate::bench::Bench;
use crate::bench::drive::{self, drive};
use crate::bench::hot_sku::BUYERS;

/// How many reservations of the one SKU have been made since the transaction began.
const SINCE: [usize; 4] = [0, 2_000, 10_000, 30_000];
/// How long they may take: a bound, not a measure.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(60);

pub(super) async fn curve(bench: &Bench<'_>) -> anyhow::Result<Curve> {
    let mut curve = Curve::new(
        "long-open",
        "reservations of the SKU since another transaction was begun and left open",
        "one unit",
    );
    let pool = bench.fleet.db.pool();
    let mut sessions = drive::sessions(bench.fleet.db.options(), 1).await?;
    let Some(elsewhere) = sessions.pop() else { return Ok(curve) };
    let mut elsewhere = elsewhere.lock().await;
    let mut before = 0;
    for size in SINCE {
        let since = bench.effort.size(size, 0);
        bench.say(&format!("{since} reservations beside an open transaction"));
        let orders = common::place_stock(pool, bench.shop_id, SKU, 1, since - before, 1).await?;
        if before == 0 && since == 0 {
            sql::open(&mut elsewhere).await?;
        } else if !orders.is_empty() {
            let wanted = orders.len();
            let reserved = |outcome: &Outcome| *outcome == Outcome::Reserved;
            let (party, _) = drive::combined(bench, orders, BUYERS, reserved).await?;
            let done = drive(party, LIMIT).await?.done;
            ensure!(done == wanted, "of {wanted} orders {done} were reserved in time");
        }
        curve.points.push(point(bench, since, Wanted::Unit(SKU)).await?);
        before = since;
    }
    ensure!(sql::is_open(&mut elsewhere).await?, "the other transaction did not stay open");
    Ok(curve)
}
