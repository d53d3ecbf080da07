//! Browsers of operators: a session is opened with a key, lasts twelve hours at most, and is worth at each request
//! what its key is worth then. The browser keeps 256 random bits; the database keeps their hash.

mod sql;

use std::time::Duration;

use rand::Rng as _;
use sha2::{Digest as _, Sha256};

use super::keys::{BOOTSTRAP, hash};
use super::{Caller, Keyring, Scope};
use crate::db::{Db, Fault};

/// How long a session lasts, by the database's clock.
pub const LASTS: Duration = Duration::from_secs(12 * 3_600);

/// A live session.
#[derive(Clone)]
pub struct Session {
    /// Who signed in, with the scopes of the key as they are now.
    pub caller: Caller,
    /// What a form of this session must carry: a page of another site cannot know it.
    pub form_token: String,
    token: String,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("caller", &self.caller).finish_non_exhaustive()
    }
}

/// Opens a session with `key`, whose `caller` was told by the keyring. Gives what the browser shall keep:
/// `SHOP.` and 64 hexadecimal digits.
///
/// # Errors
/// Faults of the database only.
pub async fn open(db: &Db, key: &str, caller: &Caller) -> Result<String, Fault> {
    let secret: [u8; 32] = rand::rng().random();
    let token = format!("{}.{}", caller.shop.name, hex::encode(secret));
    let seconds = LASTS.as_secs_f64();
    sql::open(db.pool(), caller.shop.id, &hash(&token), &hash(key), &caller.key_name, seconds).await?;
    Ok(token)
}

/// Whose session this is; none where it is over, was ended, or its key is no longer live.
///
/// # Errors
/// Faults of the database only.
pub async fn find(db: &Db, keyring: &Keyring, token: &str) -> Result<Option<Session>, Fault> {
    let Some(name) = shop_name(token) else { return Ok(None) };
    let Some(shop) = super::find(db, name).await? else { return Ok(None) };
    let Some(live) = sql::live(db.pool(), shop.id, &hash(token)).await? else { return Ok(None) };
    let scopes = match live.scopes {
        Some(scopes) => scopes.iter().filter_map(|code| Scope::from_code(code)).collect(),
        None if live.key_name == BOOTSTRAP && keyring.has_bootstrap(&live.key_hash) => Scope::ALL.to_vec(),
        None => return Ok(None),
    };
    let caller = Caller { shop, key_name: live.key_name, scopes };
    Ok(Some(Session { caller, form_token: form_token(token), token: token.to_owned() }))
}

/// Ends this session.
///
/// # Errors
/// Faults of the database only.
pub async fn end(db: &Db, session: &Session) -> Result<(), Fault> {
    Ok(sql::end(db.pool(), session.caller.shop.id, &hash(&session.token)).await?)
}

/// Ends every session that was opened with the key of this one, on whatever machine. Gives how many those were.
///
/// # Errors
/// Faults of the database only.
pub async fn end_all(db: &Db, session: &Session) -> Result<u64, Fault> {
    let shop_id = session.caller.shop.id;
    let Some(live) = sql::live(db.pool(), shop_id, &hash(&session.token)).await? else { return Ok(0) };
    Ok(sql::end_all(db.pool(), shop_id, &live.key_hash).await?)
}

/// Whether this caller looks after the whole installation, and not one shop of several: with the installation's
/// first key, or with any key where there is one shop.
///
/// # Errors
/// Faults of the database only.
pub async fn is_of_the_installation(db: &Db, caller: &Caller) -> Result<bool, Fault> {
    Ok(caller.key_name == BOOTSTRAP || !sql::several_shops(db.pool()).await?)
}

/// Follows from the session's own secret, and does not tell it.
fn form_token(token: &str) -> String {
    hex::encode(Sha256::digest(format!("form:{token}")))
}

/// The shop's name within a token: it stands there so that the look-up leads with the shop.
fn shop_name(token: &str) -> Option<&str> {
    let (shop, secret) = token.rsplit_once('.')?;
    (secret.len() == 64 && secret.bytes().all(|b| b.is_ascii_hexdigit())).then_some(shop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_shop_and_a_form_token_does_not_tell_it() {
        let hex = "0123456789abcdef".repeat(4);
        let token = format!("main.{hex}");
        assert_eq!(shop_name(&token), Some("main"));
        for bad in ["", "main.", "main", &hex, &format!("main.{hex}0"), &format!("main.{}", "x".repeat(64))] {
            assert_eq!(shop_name(bad), None, "{bad}");
        }
        assert!(!form_token(&token).contains(&hex[..16]));
        assert_ne!(form_token(&token), form_token(&format!("other.{hex}")));
    }
}
