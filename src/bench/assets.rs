//! One reservation after the other in two categories of one database, in turn: a small one, and a large one
//! that is almost sold out.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::{Fleet, Ratio, Scenario, sql};
use crate::allocator::{self, Outcome};
use crate::orders::{self, Placed};
use crate::shops::{self, MAIN};

const RUNS: usize = 300;
const SMALL: (&str, i32) = ("bench-small", 1_000);
/// 200,000 assets, of which 95 % are sold and 2,000 held.
const LARGE: (&str, i32, i32, i32) = ("bench-large", 200_000, 190_000, 2_000);

pub(super) async fn run(fleet: &Fleet, progress: &impl Fn(&str)) -> anyhow::Result<Vec<Ratio>> {
    progress("assets: 1,000 assets, all sellable");
    sql::fill(fleet.db.pool(), SMALL.0, SMALL.1, 0, 0).await?;
    progress("assets: 200,000 assets, 190,000 sold and 2,000 held");
    sql::fill(fleet.db.pool(), LARGE.0, LARGE.1, LARGE.2, LARGE.3).await?;
    progress(&format!("assets: {RUNS} reservations in each, in turn"));
    let shop = shops::find(&fleet.db, MAIN).await?.context("there is no shop main")?;
    let (mut small, mut large) = (Vec::new(), Vec::new());
    for n in 0..RUNS {
        small.push(reserve(fleet, shop.id, SMALL.0, n).await?);
        large.push(reserve(fleet, shop.id, LARGE.0, n).await?);
    }
    Ok(vec![Ratio::of(Scenario::Assets, "time at 200,000 assets to time at 1,000", large, small)])
}

/// The time of one reservation, which is given back afterwards.
async fn reserve(fleet: &Fleet, shop_id: i32, category: &str, n: usize) -> anyhow::Result<Duration> {
    let db = &fleet.db;
    let body = json!({"lines": [{"asset": {"category": category}, "quantity": 1}]});
    // The fleet has no worker in this scenario: the job is run here.
    let key = format!("{category}-{n}");
    let Placed::New(id) = orders::place(db, shop_id, &key, &body, &body["lines"], "bench").await? else {
        anyhow::bail!("{key} was placed before");
    };
    let began = Instant::now();
    let outcome = allocator::run(db, shop_id, id).await?;
    let took = began.elapsed();
    ensure!(outcome == Outcome::Reserved, "{key}: {outcome:?}");
    orders::cancel(db, shop_id, id, "bench", None).await?;
    Ok(took)
}
