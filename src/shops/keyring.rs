//! Telling callers by their keys, request after request, without asking the database each time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use subtle::ConstantTimeEq as _;

use super::keys::{self, BOOTSTRAP};
use super::{Caller, MAIN, Scope};
use crate::db::{Db, Fault};

/// How long a key that was live is taken for live: so long may a revoked one still work.
const FRESH: Duration = Duration::from_secs(5);
/// The most callers that are remembered. Only live keys are, so that nobody can fill this with guesses.
const MOST_REMEMBERED: usize = 1_024;

/// The keys of an installation: those in the database, and the one of its settings.
pub struct Keyring {
    bootstrap: Option<[u8; 32]>,
    remembered: Mutex<HashMap<[u8; 32], (Instant, Caller)>>,
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keyring(…)")
    }
}

impl Keyring {
    /// `bootstrap` is a key of the shop `main` with every scope, if there is one and it is not empty.
    #[must_use]
    pub fn new(bootstrap: Option<&str>) -> Self {
        let bootstrap = bootstrap.filter(|key| !key.is_empty()).map(keys::hash);
        Self { bootstrap, remembered: Mutex::default() }
    }

    /// Whose key this is; none where it is no live key. What was found is remembered for 5 s.
    ///
    /// # Errors
    /// Faults of the database only.
    pub async fn authenticate(&self, db: &Db, key: &str) -> Result<Option<Caller>, Fault> {
        let hash = keys::hash(key);
        if let Some(caller) = self.recall(&hash) {
            return Ok(Some(caller));
        }
        let caller = if self.is_bootstrap(&hash) { bootstrap(db).await? } else { keys::authenticate(db, key).await? };
        if let Some(caller) = &caller {
            self.remember(hash, caller.clone());
        }
        Ok(caller)
    }

    /// Hashes are compared, so that neither the time nor the length tells how much of a guess was right.
    fn is_bootstrap(&self, hash: &[u8; 32]) -> bool {
        self.bootstrap.is_some_and(|bootstrap| bool::from(bootstrap.ct_eq(hash)))
    }

    /// Whether this is the hash of the settings' key.
    pub(super) fn has_bootstrap(&self, hash: &[u8]) -> bool {
        <&[u8; 32]>::try_from(hash).is_ok_and(|hash| self.is_bootstrap(hash))
    }

    fn recall(&self, hash: &[u8; 32]) -> Option<Caller> {
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.get(hash).filter(|(at, _)| at.elapsed() < FRESH).map(|(_, caller)| caller.clone())
    }

    fn remember(&self, hash: [u8; 32], caller: Caller) {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= MOST_REMEMBERED {
            remembered.retain(|_, (at, _)| at.elapsed() < FRESH);
        }
        if remembered.len() < MOST_REMEMBERED {
            remembered.insert(hash, (Instant::now(), caller));
        }
    }
}

async fn bootstrap(db: &Db) -> Result<Option<Caller>, Fault> {
    let shop = super::find(db, MAIN).await?;
    Ok(shop.map(|shop| Caller { shop, key_name: BOOTSTRAP.to_owned(), scopes: Scope::ALL.to_vec() }))
}

#[cfg(test)]
mod tests {
    use super::super::Shop;
    use super::*;

    #[test]
    fn an_empty_bootstrap_key_is_none() {
        assert!(!Keyring::new(Some("")).is_bootstrap(&keys::hash("")));
        assert!(!Keyring::new(None).is_bootstrap(&keys::hash("")));
        assert!(Keyring::new(Some("k")).is_bootstrap(&keys::hash("k")));
        assert!(!Keyring::new(Some("k")).is_bootstrap(&keys::hash("K")));
    }

    #[test]
    fn the_memory_is_bounded() {
        let ring = Keyring::new(None);
        let caller = Caller { shop: Shop { id: 1, name: "main".into() }, key_name: "k".into(), scopes: vec![] };
        for n in 0..=MOST_REMEMBERED {
            ring.remember(keys::hash(&n.to_string()), caller.clone());
        }
        assert_eq!(ring.remembered.lock().unwrap().len(), MOST_REMEMBERED);
        assert_eq!(ring.recall(&keys::hash("0")), Some(caller));
        assert_eq!(ring.recall(&keys::hash("never seen")), None);
    }
}
