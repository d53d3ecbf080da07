//! Whose webhooks a shop believes. Those of `main` stand in the settings, those of other shops in the
//! database. Several are valid at once, so that a secret can be rotated.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::{MAIN, Shop, sql};
use crate::db::{Db, Fault};

/// The most secrets of one shop and provider that are tried on a webhook, newest first.
const MOST_TRIED: i64 = 10;

/// The secrets of the shop `main`, and the way to those of other shops.
#[derive(Clone, Default)]
pub struct WebhookSecrets {
    stripe: Vec<String>,
    standard: Vec<String>,
    /// The shops that were asked for, so that a webhook costs no look: a shop keeps its name and its number for ever.
    known: Arc<RwLock<HashMap<String, Shop>>>,
}

impl std::fmt::Debug for WebhookSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookSecrets(…)")
    }
}

impl WebhookSecrets {
    /// The secrets of `main` by provider. Empty ones are dropped: they would let anyone sign.
    #[must_use]
    pub fn new(stripe: Vec<String>, standard: Vec<String>) -> Self {
        let kept = |secrets: Vec<String>| secrets.into_iter().filter(|secret| !secret.is_empty()).collect();
        Self { stripe: kept(stripe), standard: kept(standard), known: Arc::default() }
    }

    /// The shop of this name; none where there is none (yet).
    ///
    /// # Errors
    /// Faults of the database only.
    pub async fn shop(&self, db: &Db, name: &str) -> Result<Option<Shop>, Fault> {
        if let Some(shop) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Ok(Some(shop.clone()));
        }
        let found = super::find(db, name).await?;
        if let Some(shop) = &found {
            self.known.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), shop.clone());
        }
        Ok(found)
    }

    /// The secrets of `shop` that are valid now (by the database's clock) for a provider, `stripe` or
    /// `standard`; any of them will do. None: no webhook of that provider can be believed.
    ///
    /// # Errors
    /// Faults of the database only.
    pub async fn of(&self, db: &Db, shop: &Shop, provider: &str) -> Result<Vec<String>, Fault> {
        if shop.name == MAIN {
            let secrets = match provider {
                "stripe" => &self.stripe,
                "standard" => &self.standard,
                _ => return Ok(Vec::new()),
            };
            return Ok(secrets.clone());
        }
        Ok(sql::webhook_secrets(db.pool(), shop.id, provider, MOST_TRIED).await?)
    }
}
