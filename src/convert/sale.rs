//! The sale itself: the holds of an order whose money is there become sales, all or none.

use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};

use super::sql;
use crate::allocator::{self, Anew, Had, Refusal};
use crate::db::{Fault, is_named, violated_constraint};

/// What came of it. Only a sale that was made has written anything.
pub(super) enum Sale {
    Made,
    /// The deadline passed before the update: judged by the database's clock, at the update.
    Lapsed,
    /// An asset was withdrawn while it was held, and others have what could stand for it: worth another try.
    Contended,
    /// An asset was withdrawn while it was held, and nothing can stand for it.
    NoSubstitute(Refusal),
}

/// Sells what the order holds. Assets that were put into maintenance while they were held are replaced in the same
/// transaction, by the allocator's own ranking. The caller has locked the order.
pub(super) async fn sell(
    tx: &mut PgConnection,
    order: &sql::LockedOrder,
    actor: &str,
    last: bool,
) -> Result<Sale, Fault> {
    let (shop_id, id) = (order.shop_id, order.id);
    let mut savepoint = tx.begin().await?;
    match replace(&mut savepoint, order, actor, last).await? {
        Anew::Held(_) => {}
        Anew::Contended => {
            savepoint.rollback().await?;
            return Ok(Sale::Contended);
        }
        Anew::Short(refusal) => {
            savepoint.rollback().await?;
            return Ok(Sale::NoSubstitute(refusal));
        }
    }
    match sql::convert(&mut savepoint, shop_id, id, actor).await {
        Ok(bound) if bound.held > 0 && bound.held == bound.bound => {
            savepoint.commit().await?;
            Ok(Sale::Made)
        }
        Ok(bound) => Err(anyhow::anyhow!("{} of {} holds of order {id} were bound", bound.bound, bound.held).into()),
        Err(error) => {
            savepoint.rollback().await?;
            match violated_constraint(&error) {
                Some(name) if is_named(&name, "no_convert_after_the_deadline") => Ok(Sale::Lapsed),
                _ => Err(error.into()),
            }
        }
    }
}

/// Replaces what was withdrawn. The old hold ends as cancelled, since a person took its asset away before the
/// deadline, and the new one is the slot's next acquisition with the same deadline; both in one transaction, so
/// nobody ever sees the slot empty.
async fn replace(tx: &mut PgConnection, order: &sql::LockedOrder, actor: &str, last: bool) -> Result<Anew, Fault> {
    let (shop_id, id) = (order.shop_id, order.id);
    let withdrawn = sql::withdrawn(tx, shop_id, id).await?;
    let Some(deadline) = withdrawn.iter().map(|w| w.expires_at).min() else { return Ok(Anew::Held(Value::Null)) };
    let reservations: Vec<_> = withdrawn.iter().map(|w| w.reservation).collect();
    sql::cancel_withdrawn(tx, shop_id, &reservations).await?;
    let before: Vec<Had> = withdrawn
        .into_iter()
        .map(|w| Had { line: w.line, slot: w.slot, asset: w.asset, key: w.key, why: "not_ready" })
        .collect();
    let anew = allocator::substitute(tx, shop_id, id, &before, deadline, last).await?;
    if let Anew::Held(held) = &anew {
        sql::tell(tx, shop_id, id, "substituted", actor, &json!({ "reservations": held })).await?;
    }
    Ok(anew)
}
