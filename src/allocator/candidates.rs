//! Which assets a line may have: the list, in the order in which they are sold, and the lock on one.

use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use super::sql;
use crate::db::Fault;
use crate::stock::requirement::Requirement;

/// The most candidates looked at for one asset wanted. Beyond it the search ends as `contended`: with 25
/// sellable assets locked by others, the next try is a better answer than a longer wait.
pub const MOST_CANDIDATES: i64 = 25;

/// One sellable asset that meets a requirement.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The asset's id.
    pub id: Uuid,
    /// Its key.
    pub key: String,
    /// Where it stands.
    pub location: String,
    /// Whose it is.
    pub vendor: Option<String>,
    /// Lower is sold first.
    pub rank: i32,
    /// Its attributes at the time of the decision.
    pub attributes: Value,
}

impl Candidate {
    /// The facts that the decision was made on.
    #[must_use]
    pub fn facts(&self) -> Value {
        json!({
            "asset": self.key, "location": self.location, "vendor": self.vendor,
            "rank": self.rank, "attributes": self.attributes,
        })
    }

    /// Why `self`, standing behind `taken`, was not taken.
    #[must_use]
    pub fn why_behind(&self, taken: &Self, wanted: &Requirement) -> &'static str {
        let place = |c: &Self| wanted.locations.iter().flatten().position(|l| *l == c.location);
        if wanted.locations.is_some() && place(self) != place(taken) {
            "less_preferred_location"
        } else if self.rank != taken.rank {
            "higher_rank"
        } else {
            "later_key"
        }
    }
}

/// The first [`MOST_CANDIDATES`] sellable assets that meet `wanted`: by preferred location, then rank,
/// then key. Takes no lock.
///
/// # Errors
/// Faults of the database only.
pub async fn list(conn: &mut PgConnection, shop_id: i32, wanted: &Requirement) -> Result<Vec<Candidate>, Fault> {
    let attributes = serde_json::to_value(&wanted.attributes).map_err(anyhow::Error::from)?;
    Ok(match &wanted.locations {
        Some(places) => {
            sql::list_by_location(conn, shop_id, &wanted.category, places, wanted.vendor.as_deref(), &attributes)
                .await?
        }
        None => sql::list_by_rank(conn, shop_id, &wanted.category, wanted.vendor.as_deref(), &attributes).await?,
    })
}

/// Locks the first of `listed` that nobody else has locked and that is still sellable, still stands where it
/// was listed and still meets `wanted`: the server looks at the row again once it has the lock. Gives its
/// place in the list. One lock, never the set.
///
/// # Errors
/// Faults of the database only.
pub async fn lock_first(
    conn: &mut PgConnection,
    shop_id: i32,
    wanted: &Requirement,
    listed: &[Candidate],
) -> Result<Option<usize>, Fault> {
    let ids: Vec<Uuid> = listed.iter().map(|c| c.id).collect();
    let locations: Vec<String> = listed.iter().map(|c| c.location.clone()).collect();
    let attributes = serde_json::to_value(&wanted.attributes).map_err(anyhow::Error::from)?;
    let locked = sql::lock_first(conn, shop_id, wanted, &attributes, &ids, &locations).await?;
    Ok(locked.and_then(|id| ids.iter().position(|i| *i == id)))
}
