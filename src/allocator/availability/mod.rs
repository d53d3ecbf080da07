//! Why assets can or cannot be had: for a refusal, counted over the whole category; for a question that
//! promises nothing, asset by asset.

mod sql;
mod stock;

use serde_json::{Value, json};
use sqlx::PgConnection;

use super::refusal::{CONTENDED_RETRY_SECONDS, Count, Kind, Reason, Refusal};
use super::sql::LockedOrder;
use crate::db::{Db, Fault};
use crate::stock::requirement::Requirement;

/// The most candidates shown for one line at a time.
pub const MOST_SHOWN: i64 = 100;

/// The refusal of a line that lacks `missing` assets, counted over all the assets of its category.
pub(super) async fn explain(
    conn: &mut PgConnection,
    order: &LockedOrder,
    line: i16,
    wanted: &Requirement,
    missing: i64,
    contended: bool,
) -> Result<Refusal, Fault> {
    let attributes = serde_json::to_value(&wanted.attributes).map_err(anyhow::Error::from)?;
    let counts = sql::count_reasons(conn, order.shop_id, order.id, wanted, &attributes).await?;
    let reasons = Reason::ALL
        .into_iter()
        .map(|reason| Count { reason, count: counts.of(reason) })
        .filter(|c| c.count > 0)
        .collect();
    // Something that fits came free between the list and this count, or the rivals hold it by now.
    let (kind, retry_after_seconds) = if contended || counts.free > 0 {
        (Kind::Contended, Some(CONTENDED_RETRY_SECONDS))
    } else if counts.fitting_held >= missing {
        (Kind::Held, Some(counts.first_lapse_seconds.unwrap_or(1).max(1)))
    } else {
        (Kind::Unavailable, None)
    };
    Ok(Refusal { kind, line, retry_after_seconds, reasons })
}

/// One line of the question: the normalised form that `orders::request` gives.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum AskedLine {
    Asset {
        asset: Requirement,
        #[serde(default = "one")]
        quantity: i64,
    },
    Stock(stock::Asked),
}

fn one() -> i64 {
    1
}

/// Whether `lines` (normalised, as `orders::request::check` gives them) would be reserved now, and why
/// not. Shows the candidates from `offset` on, at most [`MOST_SHOWN`] a line. Takes no locks and
/// promises nothing.
///
/// A line would be reserved where its `available` reaches its `quantity`. Of a stock line the candidates are the
/// SKU's locations. `available` is what they have together where the line may be split; otherwise one location
/// must fill it, and `available` is the most that one of them has. What the lines before it take,
/// an asset or units of the same SKU, is no longer there for a line. Of asset lines the pickiest comes first, as when they are reserved.
///
/// # Errors
/// Lines that are not normalised, and faults of the database.
pub async fn availability(db: &Db, shop_id: i32, lines: &Value, offset: i64) -> Result<Value, Fault> {
    let lines: Vec<AskedLine> = serde_json::from_value(lines.clone()).map_err(anyhow::Error::from)?;
    let skus = lines.iter().filter_map(|line| match line {
        AskedLine::Asset { .. } => None,
        AskedLine::Stock(asked) => Some(asked.sku.clone()),
    });
    let mut shelves = stock::Shelves::of(db, shop_id, skus.collect()).await?;
    let page = sql::Page { offset, limit: MOST_SHOWN };
    let mut taken: Vec<String> = Vec::new();
    let mut answers = vec![Value::Null; lines.len()];
    for n in turns(&lines) {
        let (quantity, seen) = match &lines[n] {
            AskedLine::Asset { asset, quantity } => {
                let attributes = serde_json::to_value(&asset.attributes).map_err(anyhow::Error::from)?;
                (*quantity, sql::inspect(db.pool(), shop_id, asset, &attributes, *quantity, &taken, page).await?)
            }
            AskedLine::Stock(asked) => (asked.quantity, shelves.take(asked, offset, MOST_SHOWN)),
        };
        taken.extend(seen.takes);
        let more = seen.total > offset + i64::try_from(seen.candidates.len()).unwrap_or(i64::MAX);
        answers[n] = json!({
            "line": n + 1,
            "quantity": quantity,
            "available": seen.available,
            "candidates": seen.candidates,
            "next_cursor": more.then(|| (offset + MOST_SHOWN).to_string()),
        });
    }
    Ok(json!({ "lines": answers }))
}

/// The places of the lines, in the order in which the allocator fills them: the pickiest asset line first.
fn turns(lines: &[AskedLine]) -> Vec<usize> {
    let mut turns: Vec<usize> = (0..lines.len()).collect();
    turns.sort_by_key(|n| match &lines[*n] {
        AskedLine::Asset { asset, .. } => std::cmp::Reverse(asset.conditions()),
        // Stock lines take from other shelves: only their own order matters.
        AskedLine::Stock(_) => std::cmp::Reverse(0),
    });
    turns
}
