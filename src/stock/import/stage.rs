//! From the temporary table into the shop's: what does not fit to what is there is named, and the rest is taken
//! over by statements over all rows at once.

use sqlx::PgConnection;
use uuid::Uuid;

use super::bad::{BadRow, BadRows};
use super::{Counts, sql};
use crate::db::{Db, Fault};

/// How often it looks again when others write the same rows beside it.
const MOST_LOOKS: u32 = 5;
/// How many pools are refilled by one statement, which stays well within its time limit.
const REFILLS_AT_ONCE: usize = 20;

/// A SKU at a location.
pub(super) struct Pool {
    pub(super) sku: String,
    pub(super) location: String,
}

/// A movement that does not fit: its reference was used before, in the file or in the ledger.
pub(super) struct ReferenceUsed {
    pub(super) line: i64,
    pub(super) reference: String,
    /// On this earlier line.
    pub(super) first_line: Option<i64>,
    /// For this movement, in words.
    pub(super) before: Option<String>,
}

/// An asset that does not fit.
pub(super) struct KeyUsed {
    pub(super) line: i64,
    pub(super) key: String,
    /// Its key stands on this earlier line.
    pub(super) first_line: Option<i64>,
    /// This order holds it or has bought it, and would not get what it was promised.
    pub(super) order: Option<Uuid>,
}

impl From<ReferenceUsed> for BadRow {
    fn from(used: ReferenceUsed) -> Self {
        let reference = used.reference;
        let reason = match (used.first_line, used.before) {
            (Some(line), _) => format!("reference {reference:?} stands on line {line} already"),
            (None, before) => {
                format!("reference {reference:?} has been used for another movement: {}", before.unwrap_or_default())
            }
        };
        Self::new(used.line.unsigned_abs(), [reason])
    }
}

impl From<KeyUsed> for BadRow {
    fn from(used: KeyUsed) -> Self {
        let key = used.key;
        let reason = match (used.first_line, used.order) {
            (Some(line), _) => format!("key {key:?} stands on line {line} already"),
            (None, order) => format!(
                "order {} holds or has bought asset {key:?}, and keeps what it was promised: \
                 category, location and not being retired",
                order.unwrap_or_default()
            ),
        };
        Self::new(used.line.unsigned_abs(), [reason])
    }
}

fn counted<T>(rows: Vec<(T, i64)>) -> BadRows
where
    BadRow: From<T>,
{
    let count = rows.first().map_or(0, |(_, total)| total.unsigned_abs());
    BadRows { named: rows.into_iter().map(|(row, _)| row.into()).collect(), count }
}

/// Takes the movements over. `bad` are the rows that could not even be read; then nothing is written.
pub(super) async fn stock(tx: &mut PgConnection, shop_id: i32, bad: BadRows) -> Result<(Counts, BadRows), Fault> {
    sql::analyze(tx).await?;
    let bad = bad.and(counted(sql::references_used(tx, shop_id).await?));
    if bad.count > 0 {
        return Ok((Counts::default(), bad));
    }
    // No pool is locked meanwhile, as what only adds takes nothing from anyone: buyers need those locks, and this
    // can last.
    let new = sql::post(tx, shop_id).await?;
    // Somebody may have posted one of the references since; then it is there, and may be another movement.
    let bad = counted(sql::references_used(tx, shop_id).await?);
    Ok((Counts { new, ..Counts::default() }, bad))
}

/// Takes the assets over. `bad` are the rows that could not even be read; then nothing is written.
pub(super) async fn assets(tx: &mut PgConnection, shop_id: i32, bad: BadRows) -> Result<(Counts, BadRows), Fault> {
    sql::analyze(tx).await?;
    let mut counts = Counts::default();
    for look in 0..MOST_LOOKS {
        sql::lock_changing(tx, shop_id).await?;
        // A statement of its own, after the locks are held: nobody can take those assets, or let go of them, until
        // this transaction ends.
        let in_use = counted(sql::keys_used(tx, shop_id).await?);
        if look == 0 && bad.count + in_use.count > 0 {
            return Ok((counts, bad.and(in_use)));
        } else if in_use.count > 0 {
            return Ok((counts, in_use));
        }
        // New ones first: whoever puts an asset writes it before its location, too.
        counts.new += sql::insert(tx, shop_id).await?;
        counts.replaced += sql::replace(tx, shop_id).await?;
        if sql::all_as_described(tx, shop_id).await? {
            return Ok((counts, in_use));
        }
    }
    Err(anyhow::anyhow!("others keep putting and deleting the same assets; nothing was written").into())
}

/// Refills these pools, as far as nobody else is at it. What does not work here is done by the next order or by
/// the background refill: the stock itself is there.
pub(super) async fn refill(db: &Db, shop_id: i32, pools: &[Pool]) {
    for some in pools.chunks(REFILLS_AT_ONCE) {
        if let Err(error) = sql::refill(db.pool(), shop_id, some).await {
            tracing::warn!(%error, "pools are left to the background refill");
            return;
        }
    }
}
