//! What a stock line would find at the locations of its SKU, without taking or locking anything.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::sql::{self, Seen};
use crate::allocator::refusal::Reason;
use crate::db::{Db, Fault};

/// A stock line of the question, normalised.
#[derive(Deserialize)]
pub(super) struct Asked {
    pub(super) sku: String,
    pub(super) quantity: i64,
    locations: Option<Vec<String>>,
    split: bool,
}

/// What one location has of a SKU.
#[derive(Clone)]
pub(super) struct Shelf {
    pub(super) sku: String,
    pub(super) location: String,
    pub(super) on_hand: i64,
    /// By holds that have not lapsed: a lapsed one is in nobody's way.
    pub(super) held: i64,
    pub(super) pooled: i64,
}

/// The shelves of every SKU of a question, from which its lines take one after another.
pub(super) struct Shelves(HashMap<String, Vec<Shelf>>);

impl Shelves {
    pub(super) async fn of(db: &Db, shop_id: i32, skus: Vec<String>) -> Result<Self, Fault> {
        let mut shelves: HashMap<String, Vec<Shelf>> = HashMap::new();
        if !skus.is_empty() {
            for shelf in sql::shelves(db.pool(), shop_id, &skus).await? {
                shelves.entry(shelf.sku.clone()).or_default().push(shelf);
            }
        }
        Ok(Self(shelves))
    }

    /// What a line would find, in the order in which it would be tried; and takes it off the shelves for the lines
    /// after it, if it would be filled.
    pub(super) fn take(&mut self, asked: &Asked, offset: i64, limit: i64) -> Seen {
        let Some(shelves) = self.0.get_mut(&asked.sku) else {
            return Seen { total: 0, available: 0, candidates: Vec::new(), takes: Vec::new() };
        };
        // As preferred; where all are equal, the fullest first; and those that the line does not want last.
        shelves.sort_by_key(|shelf| {
            let fullest = if asked.locations.is_none() { -shelf.pooled } else { 0 };
            (asked.place(shelf).is_none(), asked.place(shelf), fullest, shelf.location.clone())
        });
        let wanted = || shelves.iter().filter(|shelf| asked.place(shelf).is_some()).map(Shelf::available);
        let available = if asked.split { wanted().sum() } else { wanted().max().unwrap_or(0) };
        let seen = |n: i64| usize::try_from(n).unwrap_or(usize::MAX);
        let shown = shelves.iter().skip(seen(offset)).take(seen(limit));
        let candidates = shown.map(|shelf| asked.judge(shelf)).collect();
        let total = i64::try_from(shelves.len()).unwrap_or(i64::MAX);
        if available >= asked.quantity {
            asked.take(shelves);
        }
        Seen { total, available, candidates, takes: Vec::new() }
    }
}

impl Asked {
    /// Where the location stands in the line's preference; none where the line does not want it.
    fn place(&self, shelf: &Shelf) -> Option<usize> {
        match &self.locations {
            None => Some(0),
            Some(wanted) => wanted.iter().position(|location| *location == shelf.location),
        }
    }

    /// How many units a location must have to be of use.
    fn least(&self) -> i64 {
        if self.split { 1 } else { self.quantity }
    }

    fn judge(&self, shelf: &Shelf) -> Value {
        let short = shelf.available() < self.least();
        let reasons: Vec<&str> = [
            (Reason::WrongLocation, self.place(shelf).is_none()),
            (Reason::Held, short && shelf.held > 0),
            (Reason::InsufficientStock, shelf.on_hand < self.least()),
        ]
        .into_iter()
        .filter_map(|(reason, applies)| applies.then_some(reason.code()))
        .collect();
        json!({
            "location": shelf.location,
            "available": shelf.available(),
            "eligible": reasons.is_empty(),
            "reasons": reasons,
        })
    }

    fn take(&self, shelves: &mut [Shelf]) {
        let mut left = self.quantity;
        for shelf in shelves.iter_mut().filter(|shelf| self.place(shelf).is_some()) {
            let units = shelf.available().min(left);
            if units >= self.least().min(left) {
                shelf.on_hand -= units;
                left -= units;
            }
        }
    }
}

impl Shelf {
    /// How many units could be had.
    fn available(&self) -> i64 {
        (self.on_hand - self.held).max(0)
    }
}
