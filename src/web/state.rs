//! What every handler can reach.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::config::ShopSecrets;
use crate::db::{Db, Notices};
use crate::ops::Watch;
use crate::ops::metrics::Metrics;
use crate::orders::{Placing, Reading};
use crate::payments::inbox::Inbox;
use crate::shops::{Keyring, WebhookSecrets};

/// What every handler can reach. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AppState {
    pub(crate) db: Db,
    pub(crate) notices: Notices,
    pub(crate) placing: Placing,
    pub(crate) reading: Reading,
    pub(crate) inbox: Inbox,
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) watch: Watch,
    pub(crate) metrics: Metrics,
    pub(crate) webhook_secrets: Arc<WebhookSecrets>,
    /// Cancelled when the process is to end: whoever waits for something answers at once.
    pub(crate) shutdown: CancellationToken,
}

impl AppState {
    /// `notices` are those of `db`; `secrets` are the settings' own key and webhook secrets of the shop
    /// `main`; `shutdown` is the token that is given to [`super::serve`] too.
    #[must_use]
    pub fn new(db: Db, notices: Notices, secrets: &ShopSecrets, shutdown: CancellationToken) -> Self {
        let bootstrap = secrets.bootstrap_key.as_ref().map(|key| key.expose());
        let exposed = |secrets: &[crate::config::Secret]| secrets.iter().map(|s| s.expose().to_owned()).collect();
        let watch = Watch::of(&db);
        Self {
            metrics: Metrics::start(&db, &watch),
            watch,
            placing: Placing::start(&db),
            reading: Reading::start(&db),
            inbox: Inbox::start(&db),
            db,
            notices,
            keyring: Arc::new(Keyring::new(bootstrap)),
            webhook_secrets: Arc::new(WebhookSecrets::new(
                exposed(&secrets.stripe_webhook_secrets),
                exposed(&secrets.standard_webhook_secrets),
            )),
            shutdown,
        }
    }
}
