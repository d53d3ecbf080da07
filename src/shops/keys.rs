//! API keys: made once, shown once, and kept as a hash only. A key is 256 random bits, so a plain SHA-256
//! of it cannot be turned back, and a look-up by hash tells nothing by its time.

use chrono::{DateTime, Utc};
use rand::Rng as _;
use sha2::{Digest as _, Sha256};

use super::{Caller, Scope, Shop, sql};
use crate::db::{Db, Fault};

/// The most characters of a key's name.
pub const MOST_NAME_CHARS: usize = 64;
/// The name under which the installation's first key acts; no other key may have it.
pub const BOOTSTRAP: &str = "bootstrap";

/// What became of a wish for a new key.
#[derive(Clone, PartialEq, Eq)]
pub enum Created {
    /// The key: `oh_SHOP_` and 64 hexadecimal digits. It is shown this once.
    New(String),
    /// A live key has that name; nothing was changed.
    NameTaken,
    /// Not 1 to [`MOST_NAME_CHARS`] ASCII letters, digits, `.`, `_` and `-`; or [`BOOTSTRAP`].
    BadName,
    /// A key must be good for something.
    NoScope,
}

impl std::fmt::Debug for Created {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::New(_) => "New(…)",
            Self::NameTaken => "NameTaken",
            Self::BadName => "BadName",
            Self::NoScope => "NoScope",
        })
    }
}

/// What became of a wish to revoke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revoked {
    /// It is no longer accepted (within 5 s by processes that have just seen it).
    Done,
    /// It was revoked before.
    Before,
    /// The shop never had a key of that name.
    NoSuchKey,
}

/// A key as it is listed: without what would let anyone use it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// The codes of its scopes.
    pub scopes: Vec<String>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it was revoked; none: it is live.
    pub revoked_at: Option<DateTime<Utc>>,
}

/// Makes a key for `shop`. Scopes that stand there twice count once.
///
/// # Errors
/// Faults of the database only.
pub async fn create(db: &Db, shop: &Shop, name: &str, scopes: &[Scope]) -> Result<Created, Fault> {
    if !is_name(name) {
        return Ok(Created::BadName);
    }
    let codes: Vec<String> =
        Scope::ALL.into_iter().filter(|scope| scopes.contains(scope)).map(|scope| scope.code().to_owned()).collect();
    if codes.is_empty() {
        return Ok(Created::NoScope);
    }
    let secret: [u8; 32] = rand::rng().random();
    let key = format!("oh_{}_{}", shop.name, hex::encode(secret));
    let rows = sql::add_key(db.pool(), shop.id, name, &hash(&key), &codes).await?;
    Ok(if rows == 1 { Created::New(key) } else { Created::NameTaken })
}

/// The shop's keys, oldest first, revoked ones included.
///
/// # Errors
/// Faults of the database only.
pub async fn list(db: &Db, shop_id: i32) -> Result<Vec<Listed>, Fault> {
    Ok(sql::list_keys(db.pool(), shop_id).await?)
}

/// Revokes the shop's live key of that name.
///
/// Safe to repeat: the second time changes nothing.
///
/// # Errors
/// Faults of the database only.
pub async fn revoke(db: &Db, shop_id: i32, name: &str) -> Result<Revoked, Fault> {
    if sql::revoke_key(db.pool(), shop_id, name).await? == 1 {
        return Ok(Revoked::Done);
    }
    Ok(if sql::had_key(db.pool(), shop_id, name).await? { Revoked::Before } else { Revoked::NoSuchKey })
}

/// Whose key this is; none where it is no live key.
///
/// # Errors
/// Faults of the database only.
pub async fn authenticate(db: &Db, key: &str) -> Result<Option<Caller>, Fault> {
    let Some(name) = shop_name(key) else { return Ok(None) };
    let Some(shop) = super::find(db, name).await? else { return Ok(None) };
    let Some(live) = sql::live_key(db.pool(), shop.id, &hash(key)).await? else { return Ok(None) };
    // A scope that a later release knows is of no use to this one.
    let scopes = live.scopes.iter().filter_map(|code| Scope::from_code(code)).collect();
    Ok(Some(Caller { shop, key_name: live.name, scopes }))
}

pub(super) fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// The shop's name within a key: it stands there so that the look-up leads with the shop.
fn shop_name(key: &str) -> Option<&str> {
    let (shop, secret) = key.strip_prefix("oh_")?.rsplit_once('_')?;
    (secret.len() == 64 && secret.bytes().all(|b| b.is_ascii_hexdigit())).then_some(shop)
}

fn is_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b".-_".contains(&b);
    (1..=MOST_NAME_CHARS).contains(&name.len()) && name.bytes().all(allowed) && name != BOOTSTRAP
}

#[cfg(test)]
mod tests {
    use super::{Created, is_name, shop_name};

    #[test]
    fn a_key_names_its_shop() {
        let hex = "0123456789abcdef".repeat(4);
        assert_eq!(shop_name(&format!("oh_main_{hex}")), Some("main"));
        assert_eq!(shop_name(&format!("oh_shop-2_{hex}")), Some("shop-2"));
        for bad in ["", "oh_main_", "oh_main", "main", &format!("main_{hex}"), &format!("oh_main_{hex}0")] {
            assert_eq!(shop_name(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_key_name_is_simple_and_not_the_bootstrap_key_s() {
        assert!(is_name("web-app_2.prod"));
        for bad in ["", "a b", "a\n", "ä", "bootstrap", &"x".repeat(65)] {
            assert!(!is_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_key_is_not_shown_by_debug() {
        assert_eq!(format!("{:?}", Created::New("oh_main_secret".to_owned())), "New(…)");
    }
}
