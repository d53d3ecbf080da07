//! The main job through the whole fleet, sixty-four buyers at once: an order over HTTP is reserved by a worker, paid
//! by a signed webhook and converted by a worker. Beside it the least that this can be: four bare commits an order.

mod sql;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use uuid::Uuid;

use super::dashboard::Operator;
use super::drive::{self, Act, Contest, Did, Party, Session};
use super::hot_sku::BUYERS;
use super::sql as common;
use super::{Bench, Ratio, Scenario, many_skus};
use watch::Watch;

const ORDERS: usize = 30_000;
/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    Ours,
    /// Ours, with operators at the dashboard.
    Watched,
    /// The order's row, the hold's, the payment event's and the movement's, and a commit after each.
    FourCommits,
}

pub(super) struct EndToEnd {
    many: i32,
    orders: usize,
    /// Keys of one round are not those of another.
    rounds: AtomicUsize,
    /// What ours has placed in the round that runs.
    watch: std::sync::Mutex<Option<Watch>>,
    /// Who looks at the dashboard in the round that runs.
    operator: std::sync::Mutex<Option<Operator>>,
}

/// The contest, with what it sells in stock.
pub(super) async fn contest(bench: &Bench<'_>) -> anyhow::Result<EndToEnd> {
    let orders = ORDERS / bench.effort.divisor;
    let many = many_skus::shelve(bench).await?;
    Ok(EndToEnd { many, orders, rounds: AtomicUsize::new(0), watch: None.into(), operator: None.into() })
}

pub(super) async fn run(bench: &Bench<'_>) -> anyhow::Result<Vec<Ratio>> {
    let contest = contest(bench).await?;
    let tallies = drive::alternate(bench, &contest, &[Side::Ours, Side::FourCommits]).await?;
    let pool = bench.fleet.db.pool();
    ensure!(common::oversold(pool, bench.shop_id, many_skus::SKUS).await? == 0, "more was sold than there is");
    Ok(vec![Ratio::of_rates(Scenario::EndToEnd, "to four bare commits", &tallies[0], &tallies[1])])
}

impl Contest for EndToEnd {
    type Side = Side;
    /// The fleet's sessions stay, and an idle one tells what it counted after 10 s.
    const LINGER: Duration = Duration::from_secs(11);

    async fn party(&self, bench: &Bench<'_>, side: Side) -> anyhow::Result<Party> {
        let round = self.rounds.fetch_add(1, Ordering::Relaxed);
        match side {
            Side::Ours | Side::Watched => {
                if matches!(side, Side::Watched) {
                    *locked(&self.operator) = Some(Operator::sit_down(bench).await?);
                }
                let watch = Watch::start(&bench.fleet.db, bench.shop_id);
                *locked(&self.watch) = Some(watch.clone());
                let buyer = Buyer::new(bench, round, self.many, watch)?;
                let client = |_| -> Act {
                    let buyer = Arc::clone(&buyer);
                    Box::new(move |n| {
                        let buyer = Arc::clone(&buyer);
                        Box::pin(async move { buyer.buy(n).await.map(|()| Did::Done(1)) })
                    })
                };
                let clients = (0..BUYERS).map(client).collect();
                Ok(Party { clients, operations: self.orders, orders: Arc::default(), db: None })
            }
            Side::FourCommits => {
                let shop_id = bench.shop_id;
                let client = |session: Session| -> Act {
                    Box::new(move |_| {
                        let session = Arc::clone(&session);
                        Box::pin(async move {
                            sql::four_commits(&mut *session.lock().await, shop_id).await?;
                            Ok(Did::Done(1))
                        })
                    })
                };
                let sessions = drive::sessions(bench.fleet.db.options(), BUYERS).await?;
                let clients = sessions.into_iter().map(client).collect();
                Ok(Party { clients, operations: self.orders, orders: Arc::default(), db: None })
            }
        }
    }

    async fn check(&self, bench: &Bench<'_>, side: Side, _: &[Uuid], done: usize) -> anyhow::Result<()> {
        match side {
            Side::Ours | Side::Watched => {
                let operator = locked(&self.operator).take();
                if let Some(operator) = operator {
                    operator.leave().await?;
                }
                let watch = locked(&self.watch).take();
                let placed = watch.context("nobody bought")?.placed();
                let sold = common::sold(bench.fleet.db.pool(), bench.shop_id, &placed).await?;
                let done = i64::try_from(done)?;
                ensure!((sold.orders, sold.movements) == (done, done), "{done} were sold, and there are {sold:?}");
                Ok(())
            }
            Side::FourCommits => Ok(()),
        }
    }
}

fn locked<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What buyers and their payment provider do.
struct Buyer {
    http: reqwest::Client,
    base: String,
    key: String,
    webhook: Webhook,
    scenario: &'static str,
    round: usize,
    many: i32,
    watch: Watch,
}

impl Buyer {
    fn new(bench: &Bench<'_>, round: usize, many: i32, watch: Watch) -> anyhow::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            http: reqwest::Client::builder().timeout(PATIENCE).build()?,
            base: bench.fleet.base.clone(),
            key: bench.fleet.key.clone(),
            webhook: Webhook::new(&bench.fleet.webhook_secret)?,
            scenario: bench.scenario.name(),
            round,
            many,
            watch,
        }))
    }

    /// Places an order, waits until it is reserved, pays it, and waits until it is sold.
    async fn buy(&self, n: usize) -> anyhow::Result<()> {
        // 7919 is prime, so that orders that follow one another want different SKUs.
        let sku = format!("{}{}", many_skus::SKUS, 1 + (n * 7_919) % usize::try_from(self.many)?);
        let order = json!({"lines": [{"sku": sku}], "payment": {"amount": 19_900, "currency": "EUR"}});
        let answer: Value = self
            .http
            .post(format!("{}/v1/orders", self.base))
            .bearer_auth(&self.key)
            .header("Idempotency-Key", format!("bench-{}-{}-{n}", self.scenario, self.round))
            .header("Prefer", "wait=15")
            .json(&order)
            .send()
            .await?
            .json()
            .await?;
        ensure!(answer["status"] == "reserved", "order {n} was answered {answer}");
        let id: Uuid = answer["id"].as_str().context("an order without an id")?.parse()?;
        let sold = self.watch.until_sold(id);
        self.pay(id).await?;
        tokio::time::timeout(PATIENCE, sold).await.context("a paid order was not converted in time")??;
        Ok(())
    }

    async fn pay(&self, order: Uuid) -> anyhow::Result<()> {
        let event = format!("evt-{order}");
        let body =
            json!({"type": "payment.succeeded", "data": {"order_id": order, "payment_id": format!("pay-{order}"),
            "amount": 19_900, "currency": "EUR"}})
            .to_string();
        let at = chrono::Utc::now().timestamp();
        let signature = self.webhook.sign(&event, at, body.as_bytes())?;
        let answer = self
            .http
            .post(format!("{}/webhooks/main/standard", self.base))
            .header("content-type", "application/json")
            .header("webhook-id", event)
            .header("webhook-timestamp", at.to_string())
            .header("webhook-signature", signature)
            .body(body)
            .send()
            .await?;
        ensure!(answer.status().is_success(), "a payment was answered {}", answer.status());
        Ok(())
    }
}
