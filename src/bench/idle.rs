//! One order after the other on a fleet that has nothing else to do.

use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::{Value, json};

use super::{Fleet, Ratio, Scenario, sql};

const ORDERS: usize = 200;

pub(super) async fn run(fleet: &Fleet, progress: &impl Fn(&str)) -> anyhow::Result<Vec<Ratio>> {
    progress("idle: 1,000 machines");
    sql::fill(fleet.db.pool(), "bench-idle", 1_000, 0, 0).await?;
    sql::prepare_commits(fleet.db.pool()).await?;
    let http = reqwest::Client::new();
    let (mut ours, mut commits) = (Vec::new(), Vec::new());
    progress(&format!("idle: {ORDERS} orders, each beside one bare commit"));
    for n in 0..ORDERS {
        let began = Instant::now();
        sql::bare_commit(fleet.db.pool()).await?;
        commits.push(began.elapsed());
        let order = json!({"lines": [{"asset": {"category": "bench-idle"}}]});
        let began = Instant::now();
        let answer: Value = http
            .post(format!("{}/v1/orders", fleet.base))
            .bearer_auth(&fleet.key)
            .header("Idempotency-Key", format!("bench-idle-{n}"))
            .header("Prefer", "wait=10")
            .timeout(Duration::from_secs(15))
            .json(&order)
            .send()
            .await?
            .json()
            .await?;
        ours.push(began.elapsed());
        ensure!(answer["status"] == "reserved", "order {n} was answered {answer}");
    }
    Ok(vec![Ratio::of(Scenario::Idle, "POST to reserved, in bare commits", ours, commits)])
}
