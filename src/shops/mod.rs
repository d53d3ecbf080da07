//! Shops: the sellers on an installation, the keys of those who may ask, and the secrets of those whose
//! webhooks are believed.

mod keyring;
pub mod keys;
mod secrets;
pub mod sessions;
mod sql;

pub use keyring::Keyring;
pub use secrets::WebhookSecrets;

use crate::db::{Db, Fault};

/// The shop that every installation has.
pub const MAIN: &str = "main";
/// The most characters of a shop's name.
const MOST_NAME_CHARS: usize = 63;

/// One seller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shop {
    /// What its rows carry.
    pub id: i32,
    /// What its keys and URLs carry: lower-case ASCII letters, digits and `-`.
    pub name: String,
}

/// What a key may be used for. The codes are frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Placing, reading and ending orders.
    Orders,
    /// Describing what exists.
    Stock,
    /// Watching.
    Ops,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 3] = [Self::Orders, Self::Stock, Self::Ops];

    /// The frozen code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Orders => "orders",
            Self::Stock => "stock",
            Self::Ops => "ops",
        }
    }

    /// The scope with this code.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.code() == code)
    }
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Whose data it is about.
    pub shop: Shop,
    /// The name of the key; `bootstrap` for the installation's first one.
    pub key_name: String,
    /// What it may be used for.
    pub scopes: Vec<Scope>,
}

impl Caller {
    /// How histories name the caller: `api:KEYNAME`.
    #[must_use]
    pub fn actor(&self) -> String {
        format!("api:{}", self.key_name)
    }
}

/// What became of a wish for a new shop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// There it is.
    New(Shop),
    /// There was one of that name; nothing was changed.
    NameTaken,
    /// Not 1 to 63 lower-case ASCII letters, digits and `-`, beginning with a letter or digit.
    BadName,
}

/// The shop of that name.
///
/// # Errors
/// Faults of the database only.
pub async fn find(db: &Db, name: &str) -> Result<Option<Shop>, Fault> {
    // A name that cannot be one is not asked for: it can hold what the database does not take (U+0000).
    if !is_name(name) {
        return Ok(None);
    }
    Ok(sql::find(db.pool(), name).await?)
}

/// Every shop, by name.
///
/// # Errors
/// Faults of the database only.
pub async fn list(db: &Db) -> Result<Vec<Shop>, Fault> {
    Ok(sql::list(db.pool()).await?)
}

/// Opens a shop.
///
/// # Errors
/// Faults of the database only.
pub async fn create(db: &Db, name: &str) -> Result<Created, Fault> {
    if !is_name(name) {
        return Ok(Created::BadName);
    }
    let id = sql::create(db.pool(), name).await?;
    Ok(id.map_or(Created::NameTaken, |id| Created::New(Shop { id, name: name.to_owned() })))
}

/// The highest limit that can be set on what one buyer holds; without one, a buyer holds as much as he likes.
pub const MOST_HOLDS_PER_BUYER: i32 = 1_000_000;

/// Limits what one buyer of the shop may hold at a time: each asset and each unit of a SKU counts one. `None`: no
/// limit. What is held already stays held. Gives false where the shop is gone.
///
/// # Errors
/// A limit that is not between 1 and [`MOST_HOLDS_PER_BUYER`], and faults of the database.
pub async fn limit_buyers(db: &Db, shop: &Shop, most: Option<i32>) -> Result<bool, Fault> {
    Ok(sql::limit_buyers(db.pool(), shop.id, most).await? == 1)
}

/// How much one buyer of the shop may hold at a time; `None`: as much as he likes.
///
/// # Errors
/// Faults of the database only.
pub async fn buyer_limit(db: &Db, shop: &Shop) -> Result<Option<i32>, Fault> {
    Ok(sql::buyer_limit(db.pool(), shop.id).await?)
}

/// As the database's constraint `shop_name_is_simple` has it.
fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    name.len() <= MOST_NAME_CHARS
        && name.bytes().next().is_some_and(plain)
        && name.bytes().all(|b| plain(b) || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn a_shop_name_fits_into_keys_and_urls() {
        for good in ["main", "a", "0", "shop-2", &"x".repeat(63)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "-a", "Main", "a_b", "a/b", "ä", "a\0", &"x".repeat(64)] {
            assert!(!is_name(bad), "{bad:?}");
        }
    }
}
