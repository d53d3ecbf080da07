//! The stage of a scene: a shop with machines, orders placed on it, and what became of them.

use std::sync::Arc;

use onehold::allocator::{self, Outcome};
use onehold::convert::{self, Applied};
use onehold::db::Db;
use onehold::orders::{self, Order, Placed};
use serde_json::{Value, json};
use sqlx::types::Uuid;
use tokio::sync::Barrier;

use crate::support::{Database, database};

/// The shop that every installation has.
pub(crate) const SHOP: i32 = 1;

/// A database of its own with some machines in it.
pub(crate) struct Scene {
    pub(crate) test: Database,
    pub(crate) db: Db,
}

impl Scene {
    /// `machines` assets `m-01`, `m-02`, … of category `box` in BER, all ready.
    pub(crate) async fn with_machines(machines: i32) -> Self {
        let test = database().await;
        let db = test.db.clone();
        let scene = Self { test, db };
        scene.add_machines(machines).await;
        scene
    }

    /// Adds machines to a database that has none.
    pub(crate) async fn add_machines(&self, machines: i32) {
        sqlx::query(
            "insert into onehold.assets (shop_id, key, category, location, vendor)
             select 1, 'm-' || lpad(n::text, 2, '0'), 'box', 'BER', 'Dell' from generate_series(1, $1) n",
        )
        .bind(machines)
        .execute(self.db.pool())
        .await
        .unwrap();
    }

    /// Places an order for `lines` (normalised) and gives its id; its job is not run.
    pub(crate) async fn place(&self, key: &str, body: Value) -> Uuid {
        match orders::place(&self.db, SHOP, key, &body, &body["lines"], "api:test").await.unwrap() {
            Placed::New(id) | Placed::Replayed(id) => id,
            Placed::KeyReused => panic!("the key {key} was used before"),
        }
    }

    /// Places an order for one machine.
    pub(crate) async fn place_one(&self, key: &str) -> Uuid {
        self.place(key, one_machine()).await
    }

    /// Runs the reserve job's work to its end.
    pub(crate) async fn reserve(&self, id: Uuid) -> Outcome {
        allocator::run(&self.db, SHOP, id).await.unwrap()
    }

    /// Places an order for one machine and reserves it.
    pub(crate) async fn reserved(&self, key: &str) -> Uuid {
        let id = self.place_one(key).await;
        assert_eq!(self.reserve(id).await, Outcome::Reserved);
        id
    }

    /// Keeps an event as the webhook does, and applies it as the convert job does.
    pub(crate) async fn pay(&self, order: Uuid, event: &str) -> Applied {
        self.keep_event(&order.to_string(), event, "succeeded").await;
        self.apply(event).await
    }

    /// Keeps a verified event for the order with this id or reference; does not apply it.
    pub(crate) async fn keep_event(&self, order_ref: &str, event: &str, effect: &str) {
        sqlx::query(
            "insert into onehold.payment_events
                 (shop_id, provider, event_id, type, effect, order_ref, payment_id, amount, currency, payload)
             values (1, 'standard', $1, 'payment.' || $2, $2, $3, 'pay-' || $3, 100, 'EUR', '{}')",
        )
        .bind(event)
        .bind(effect)
        .bind(order_ref)
        .execute(self.db.pool())
        .await
        .unwrap();
    }

    /// Runs the convert job's work for an event that was kept.
    pub(crate) async fn apply(&self, event: &str) -> Applied {
        convert::apply(&self.db, SHOP, "standard", event).await.unwrap()
    }

    /// The order as the API shows it.
    pub(crate) async fn order(&self, id: Uuid) -> Order {
        orders::read(&self.db, SHOP, id).await.unwrap().unwrap()
    }

    /// The kinds of the order's history, oldest first.
    pub(crate) async fn history(&self, id: Uuid) -> Vec<String> {
        orders::events(&self.db, SHOP, id).await.unwrap().unwrap().into_iter().map(|e| e.kind).collect()
    }

    /// The keys of the assets that the order's reservations in `state` keep.
    pub(crate) async fn assets(&self, id: Uuid, state: &str) -> Vec<String> {
        let order = self.order(id).await;
        let reservations = order.lines.into_iter().flat_map(|l| l.reservations);
        reservations.filter(|r| r.state == state).filter_map(|r| r.asset).collect()
    }

    /// Puts the deadline of an order's holds into the past, as time would.
    pub(crate) async fn lapse(&self, id: Uuid) {
        self.run(&format!(
            "update onehold.reservations set expires_at = clock_timestamp() - interval '1 second' where order_id = '{id}'"
        ))
        .await;
    }

    /// Runs statements typed by hand.
    pub(crate) async fn run(&self, statements: &str) {
        self.try_run(statements).await.unwrap();
    }

    /// Runs statements typed by hand, which may be refused.
    pub(crate) async fn try_run(&self, statements: &str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(sqlx::AssertSqlSafe(statements.to_owned())).execute(self.db.pool()).await.map(|_| ())
    }

    /// The one number that a query gives.
    pub(crate) async fn number(&self, query: &str) -> i64 {
        sqlx::query_scalar(sqlx::AssertSqlSafe(query.to_owned())).fetch_one(self.db.pool()).await.unwrap()
    }

    /// Every invariant holds.
    pub(crate) async fn verify(&self) {
        for check in onehold::ops::verify::verify(&self.db, |_| {}).await.unwrap() {
            assert_eq!(check.broken, 0, "{}", check.invariant);
        }
    }

    /// Runs `work` for each of `items` at once: all start on one barrier.
    pub(crate) async fn at_once<I, T, F>(&self, items: Vec<I>, work: impl Fn(Db, I) -> F) -> Vec<T>
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let barrier = Arc::new(Barrier::new(items.len()));
        let tasks: Vec<_> = items
            .into_iter()
            .map(|item| {
                let (barrier, work) = (barrier.clone(), work(self.db.clone(), item));
                tokio::spawn(async move {
                    barrier.wait().await;
                    work.await
                })
            })
            .collect();
        let mut answers = Vec::new();
        for task in tasks {
            answers.push(task.await.unwrap());
        }
        answers
    }
}

/// The body of an order for one machine.
pub(crate) fn one_machine() -> Value {
    json!({"lines": [{"asset": {"category": "box"}, "quantity": 1}]})
}

/// The constraint that a refused statement names.
pub(crate) fn constraint(result: Result<(), sqlx::Error>) -> String {
    onehold::db::violated_constraint(&result.expect_err("the database must refuse this")).expect("a named constraint")
}
