//! What brings stock into a shop, and serves those who wait for it in the same transaction.

use uuid::Uuid;

use super::{Freed, enter, serve, sql, tell};
use crate::db::{Db, Fault, Verdict};
use crate::stock::assets::{self, Put};
use crate::stock::description::Description;
use crate::stock::ledger::{self, Posted};
use crate::stock::movement::NewMovement;

/// Creates the asset `key` (a checked name), or describes it anew; an order that waits for one like it gets it.
///
/// # Errors
/// A database that could not be reached or that refused.
pub async fn put_asset(db: &Db, shop_id: i32, key: &str, description: &Description) -> Result<Put, Fault> {
    let (put, served) = db
        .transaction("put an asset", |mut tx| {
            Box::pin(async move {
                // Before the asset is locked.
                let anyone_waits = enter(&mut tx, shop_id).await?;
                let put = assets::put(&mut tx, shop_id, key, description).await?;
                if matches!(put, Put::InUse(_)) {
                    return Ok(Verdict::Rollback((put, Vec::new())));
                }
                let mut served = Vec::new();
                if anyone_waits {
                    let assets = sql::asset_id(&mut tx, shop_id, key).await?.into_iter().collect();
                    served = serve(&mut tx, shop_id, &Freed { assets, ..Freed::default() }).await?;
                }
                Ok(Verdict::Commit((put, served)))
            })
        })
        .await?;
    tell(db, &served);
    Ok(put)
}

/// Posts a movement, once per reference, as `actor`; orders that wait for what it brings get it. One that takes away
/// what is held is refused; forced, it is posted, and the shortfall recorded until stock comes in or holds end.
///
/// # Errors
/// A database that could not be reached or that refused.
pub async fn post_movement(db: &Db, shop_id: i32, new: &NewMovement, actor: &str) -> Result<Posted, Fault> {
    let (posted, served): (Posted, Vec<Uuid>) = db
        .transaction("post a movement", |mut tx| {
            Box::pin(async move {
                // Before the pool is locked.
                let anyone_waits = enter(&mut tx, shop_id).await?;
                let posted = ledger::post(&mut tx, shop_id, new, actor).await?;
                if !matches!(posted, Posted::Posted(_)) {
                    return Ok(Verdict::Rollback((posted, Vec::new())));
                }
                let mut served = Vec::new();
                if anyone_waits && new.delta > 0 {
                    let (skus, locations) = (vec![new.sku.clone()], vec![new.location.clone()]);
                    served = serve(&mut tx, shop_id, &Freed { assets: Vec::new(), skus, locations }).await?;
                }
                Ok(Verdict::Commit((posted, served)))
            })
        })
        .await?;
    tell(db, &served);
    Ok(posted)
}
