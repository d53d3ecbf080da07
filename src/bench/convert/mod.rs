//! Payments that are applied: held orders for one unit become sales, sixty-four at once, beside the floor: a bare
//! insert of the ledger's movement.

mod sql;

use std::sync::Arc;

use anyhow::ensure;
use uuid::Uuid;

use super::drive::{self, Act, Contest, Did, Party, Session};
use super::hot_sku::BUYERS;
use super::sql as common;
use super::{Bench, Ratio, Scenario};
use crate::convert::{self, Applied};

const SKUS: &str = "bench-paid-";
pub(super) const MANY: i32 = 100;
/// A thousand are put out; what is held comes from the others.
const UNITS: i32 = 10_000;
const ORDERS: usize = 15_000;
const PROVIDER: &str = "standard";

#[derive(Clone, Copy, Debug)]
enum Side {
    Ours,
    Floor,
}

struct Convert {
    orders: i32,
}

pub(super) async fn run(bench: &Bench<'_>) -> anyhow::Result<Vec<Ratio>> {
    bench.say(&format!("{UNITS} units of {MANY} SKUs"));
    common::stock(bench.fleet.db.pool(), bench.shop_id, SKUS, MANY, UNITS).await?;
    let contest = Convert { orders: bench.effort.size(ORDERS, 1_000) };
    let tallies = drive::alternate(bench, &contest, &[Side::Ours, Side::Floor]).await?;
    ensure!(common::oversold(bench.fleet.db.pool(), bench.shop_id, SKUS).await? == 0, "more was sold than there is");
    Ok(vec![Ratio::of_rates(Scenario::Convert, "to floor", &tallies[0], &tallies[1])])
}

impl Contest for Convert {
    type Side = Side;

    async fn party(&self, bench: &Bench<'_>, side: Side) -> anyhow::Result<Party> {
        let shop_id = bench.shop_id;
        let held = sql::held_and_paid(bench.fleet.db.pool(), shop_id, SKUS, MANY, self.orders).await?;
        let orders = Arc::new(held);
        match side {
            Side::Ours => {
                let db = drive::connected(bench, BUYERS).await?;
                let client = |_| -> Act {
                    let (db, orders) = (db.clone(), Arc::clone(&orders));
                    Box::new(move |n| {
                        let (db, event) = (db.clone(), sql::event_of(orders[n]));
                        Box::pin(async move {
                            let applied = convert::apply(&db, shop_id, PROVIDER, &event).await?;
                            ensure!(applied == Applied::Converted, "a payment came to {applied:?}");
                            Ok(Did::Done(1))
                        })
                    })
                };
                let clients = (0..BUYERS).map(client).collect();
                Ok(Party { clients, operations: orders.len(), orders, db: Some(db) })
            }
            Side::Floor => {
                let client = |session: Session| -> Act {
                    let orders = Arc::clone(&orders);
                    Box::new(move |n| {
                        let (session, order) = (Arc::clone(&session), orders[n]);
                        Box::pin(async move {
                            common::bare_sale(&mut *session.lock().await, shop_id, order).await?;
                            Ok(Did::Done(1))
                        })
                    })
                };
                let sessions = drive::sessions(bench.fleet.db.options(), BUYERS).await?;
                let clients = sessions.into_iter().map(client).collect();
                Ok(Party { clients, operations: orders.len(), orders, db: None })
            }
        }
    }

    async fn check(&self, bench: &Bench<'_>, side: Side, orders: &[Uuid], done: usize) -> anyhow::Result<()> {
        let sold = common::sold(bench.fleet.db.pool(), bench.shop_id, orders).await?;
        let done = match side {
            Side::Ours => i64::try_from(done)?,
            Side::Floor => 0,
        };
        ensure!((sold.orders, sold.movements) == (done, done), "{done} were converted, and there are {sold:?}");
        Ok(())
    }
}
