//! Why assets and units can or cannot be had, asset by asset and place by place: for a question that promises nothing.

mod sql;
mod stock;

use serde_json::{Value, json};

use crate::db::{Db, Fault};
use crate::stock::requirement::Requirement;

/// The most candidates shown for one line at a time.
pub const MOST_SHOWN: i64 = 100;

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
