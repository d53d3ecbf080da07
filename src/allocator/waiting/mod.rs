//! The waiting list: whoever frees stock hands it to the oldest order that waits for it, in the transaction that
//! frees it, so that it is free at no moment in between.
//!
//! Who frees: locks his order, [`enter`]s the list (before he locks assets or pools), ends what he ends, and serves
//! ([`serve_ended`]). Where nobody waits that is one lock that all of them share and a look at an empty index.
//! Who begins to wait has the list alone while he looks once more and writes himself down: everyone who frees has
//! either committed before, and is seen, or sees him.
//!
//! Served are only orders that want of what was freed, oldest first, until it is gone. Their rows are locked with
//! `skip locked` and their buyers by a try, as the one who serves holds locks on assets and pools already, which come
//! after orders and buyers in the order of locks: who waits for nobody cannot be part of a deadlock. An order that
//! is passed over because somebody has it locked gets a job: he may have looked before this freed anything.
//!
//! A newcomer for whose wants others wait has the list alone as well, and serves them first: nobody frees anything
//! then that would be his before it was theirs.

mod sql;
mod supply;

use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use super::line::{Filled, fill};
use super::sql::{Clearing, LockedOrder};
use super::{Refusal, candidates, units};
use crate::db::{Db, Fault};
use crate::queue::catalogue::{CONVERT, RESERVE};
pub use supply::{post_movement, put_asset};

/// The most orders that one transaction serves, and the most that it tries in vain: a cart that wants more than what
/// was freed costs a look and gets nothing. Whoever is left is woken.
const MOST_SERVED: usize = 100;
const MOST_IN_VAIN: usize = 10;
/// The most assets, and the most pools, that are looked at as freed by one transaction.
const MOST_FREED: i64 = 500;
/// How many orders are woken where one transaction could not serve them all.
const MOST_WOKEN: i32 = 100;

/// What came free, or stands free. Of the pools one SKU and one location each.
#[derive(Clone, Debug, Default)]
struct Freed {
    assets: Vec<Uuid>,
    skus: Vec<String>,
    locations: Vec<String>,
}

impl Freed {
    fn is_too_much(&self) -> bool {
        let most = usize::try_from(MOST_FREED).unwrap_or(usize::MAX);
        self.assets.len() >= most || self.skus.len() >= most
    }
}

/// Called before anything is freed, after the order's row is locked and before assets and pools are. Gives whether
/// anyone waits; that stays true until the transaction ends.
///
/// # Errors
/// Faults of the database only.
pub async fn enter(conn: &mut PgConnection, shop_id: i32) -> Result<bool, Fault> {
    Ok(sql::enter(conn, shop_id).await?)
}

/// Serves those who wait for what the ended reservations of `orders` kept, as far as it stands free now. The caller
/// has entered the list and was told that somebody waits. Gives the orders that are reserved now, for [`tell`].
///
/// # Errors
/// Faults of the database only.
pub async fn serve_ended(conn: &mut PgConnection, shop_id: i32, orders: &[Uuid]) -> Result<Vec<Uuid>, Fault> {
    let freed = sql::freed_by(conn, shop_id, orders, MOST_FREED).await?;
    serve(conn, shop_id, &freed).await
}

/// Tells, after the commit, whom it concerns: who asked to be answered, who came with money, and workers whose orders
/// were woken.
pub fn tell(db: &Db, served: &[Uuid]) {
    for order in served {
        db.notifier().decided(*order);
    }
    if !served.is_empty() {
        db.notifier().job(CONVERT.name);
        db.notifier().job(RESERVE.name);
    }
}

/// Whether anyone who waits was before `order` and wants of the same.
pub(super) async fn anyone_before(conn: &mut PgConnection, order: &LockedOrder) -> Result<bool, Fault> {
    Ok(sql::anyone_before(conn, order.shop_id, order.id).await?)
}

/// Those who were before a newcomer.
pub(super) enum Before {
    /// These are reserved now. The caller commits that before he goes on, as the locks on pools taken here are in no
    /// order.
    Served(Vec<Uuid>),
    /// None of them can have anything that stands free.
    Nobody,
    /// Some want what stands free, and are locked.
    Locked,
}

/// Serves the waiting orders older than `order` that want of what it would take and stands free: who comes later does
/// not overtake.
pub(super) async fn serve_before(
    conn: &mut PgConnection,
    order: &LockedOrder,
    lines: &[super::sql::Line],
) -> Result<Before, Fault> {
    let (skus, locations) = sql::pools_of(conn, order.shop_id, order.id, MOST_FREED).await?;
    let mut free = Freed { assets: Vec::new(), skus, locations };
    for line in lines {
        free.assets.extend(candidates::list(conn, order.shop_id, &line.wanted).await?.into_iter().map(|c| c.id));
    }
    let (served, in_vain) = serve_all(conn, order.shop_id, &free, Some(order.id)).await?;
    Ok(if !served.is_empty() {
        Before::Served(served)
    } else if sql::anyone_fits(conn, order.shop_id, &free, order.id, &in_vain).await? {
        Before::Locked
    } else {
        Before::Nobody
    })
}

/// Serves those who want of `freed`, oldest first.
async fn serve(conn: &mut PgConnection, shop_id: i32, freed: &Freed) -> Result<Vec<Uuid>, Fault> {
    let (served, in_vain) = serve_all(conn, shop_id, freed, None).await?;
    if freed.is_too_much() || served.len() >= MOST_SERVED || in_vain.len() >= MOST_IN_VAIN {
        sql::wake_waiting(conn, shop_id, MOST_WOKEN).await?;
    } else {
        sql::wake_passed_over(conn, shop_id, freed, &in_vain).await?;
    }
    Ok(served)
}

/// Serves those who want of `freed`, oldest first, or those of them who came before `before`. Gives who was served,
/// and who was tried in vain.
async fn serve_all(
    conn: &mut PgConnection,
    shop_id: i32,
    freed: &Freed,
    before: Option<Uuid>,
) -> Result<(Vec<Uuid>, Vec<Uuid>), Fault> {
    let (mut served, mut in_vain) = (Vec::new(), Vec::new());
    while served.len() < MOST_SERVED && in_vain.len() < MOST_IN_VAIN {
        // Who is tried in vain is let go of at once: whoever frees something meanwhile would pass over him.
        let mut trial = conn.begin().await?;
        let Some((order, limited)) = sql::next(&mut trial, shop_id, freed, before, &in_vain).await? else {
            trial.rollback().await?;
            break;
        };
        // His turn passes while he holds too much; he goes on waiting.
        if limited == Some(false) && reserve(&mut trial, &order).await? {
            trial.commit().await?;
            served.push(order.id);
            continue;
        }
        trial.rollback().await?;
        match limited {
            // Another order of this buyer is being decided, and may leave room for this one or not.
            None => sql::wake(conn, shop_id, order.id, 0.0).await?,
            // Units that are there, but not as rows, or in pools that others have: his own job gets them, with patience.
            Some(false) if order.has_stock_lines => sql::wake_if_fillable(conn, shop_id, order.id).await?,
            Some(_) => {}
        }
        in_vain.push(order.id);
    }
    Ok((served, in_vain))
}

/// Reserves a waiting order whole, without waiting for anyone; where it cannot, the caller rolls back.
async fn reserve(conn: &mut PgConnection, order: &LockedOrder) -> Result<bool, Fault> {
    let mut lines = super::sql::lines(conn, order.shop_id, order.id).await?;
    lines.sort_by_key(|line| std::cmp::Reverse(line.wanted.conditions()));
    for line in &lines {
        if !matches!(fill(conn, order, line, false).await?, Filled::Whole) {
            return Ok(false);
        }
    }
    if order.has_stock_lines
        && units::fill_quickly(conn, order).await?.is_none()
        && !(units::refill_for(conn, order).await? && units::fill_quickly(conn, order).await?.is_some())
    {
        return Ok(false);
    }
    super::sql::mark_reserved(conn, order.shop_id, order.id).await?;
    sql::end(conn, order.shop_id, order.id).await?;
    Ok(true)
}

/// Lets an order wait that found nothing, and has the list alone.
pub(super) async fn begin(conn: &mut PgConnection, order: &LockedOrder, refusal: &Refusal) -> Result<(), Fault> {
    Ok(sql::begin(conn, order.shop_id, order.id, &refusal.to_json()).await?)
}

/// An order that waited has got what it wanted by its own job.
pub(super) async fn end(conn: &mut PgConnection, order: &LockedOrder) -> Result<(), Fault> {
    Ok(sql::end(conn, order.shop_id, order.id).await?)
}

/// Has a waiting order tried again in `seconds`: what it wants is there, and others had it locked.
pub(super) async fn wake_in(conn: &mut PgConnection, order: &LockedOrder, seconds: i64) -> Result<(), Fault> {
    #[allow(clippy::cast_precision_loss, reason = "a few seconds")]
    let seconds = seconds as f64;
    Ok(sql::wake(conn, order.shop_id, order.id, seconds).await?)
}
