//! A web app and a payment provider, as far as the scenes need them.

use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use standardwebhooks::Webhook;

use super::Stage;

/// How long to wait for what must come.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What an order of the scenes costs, in cents.
pub(super) const PRICE: i64 = 19_900;

pub(super) struct Client {
    http: reqwest::Client,
    base: String,
    key: String,
    webhook: Webhook,
}

impl Client {
    pub(super) fn new(stage: &Stage) -> anyhow::Result<Self> {
        Ok(Self {
            http: reqwest::Client::builder().timeout(PATIENCE + Duration::from_secs(5)).build()?,
            base: stage.base.clone(),
            key: stage.key.clone(),
            webhook: Webhook::new(&stage.webhook_secret)?,
        })
    }

    /// Puts `count` ready machines of a category into the shop.
    pub(super) async fn stock(&self, category: &str, count: usize) -> anyhow::Result<()> {
        for n in 1..=count {
            let asset = json!({"category": category, "location": "BER", "vendor": "Dell", "attributes": {"ram_gb": 128},
                               "status": "ready", "rank": n});
            self.send(self.http.put(format!("{}/v1/assets/{category}-{n}", self.base)).json(&asset)).await?;
        }
        Ok(())
    }

    /// Places an order for one machine of a category; waits until it is decided, or does not.
    pub(super) async fn order(&self, key: &str, body: Value, wait: bool) -> anyhow::Result<Value> {
        let mut request = self.http.post(format!("{}/v1/orders", self.base)).header("Idempotency-Key", key).json(&body);
        if wait {
            request = request.header("Prefer", format!("wait={}", PATIENCE.as_secs()));
        }
        self.send(request).await
    }

    pub(super) async fn read(&self, id: &str) -> anyhow::Result<Value> {
        self.send(self.http.get(format!("{}/v1/orders/{id}", self.base))).await
    }

    pub(super) async fn history(&self, id: &str) -> anyhow::Result<String> {
        let events = self.send(self.http.get(format!("{}/v1/orders/{id}/events", self.base))).await?;
        let kinds: Vec<_> =
            events["data"].as_array().into_iter().flatten().filter_map(|e| e["kind"].as_str()).collect();
        Ok(kinds.join(" → "))
    }

    pub(super) async fn cancel(&self, id: &str) -> anyhow::Result<Value> {
        let request = self.http.post(format!("{}/v1/orders/{id}/cancel", self.base));
        self.send(request.json(&json!({"reason": "changed their mind"}))).await
    }

    /// Tells, as the payment provider does, that an order was paid.
    pub(super) async fn pay(&self, id: &str) -> anyhow::Result<()> {
        self.pay_part(id, 1, PRICE).await
    }

    /// Tells that the n-th payment for an order brought `amount`.
    pub(super) async fn pay_part(&self, id: &str, n: u8, amount: i64) -> anyhow::Result<()> {
        let event = format!("evt-{id}-{n}");
        let body = json!({"type": "payment.succeeded", "timestamp": chrono::Utc::now(), "data":
            {"order_id": id, "payment_id": format!("pay-{id}-{n}"), "amount": amount, "currency": "EUR"}})
        .to_string();
        let at = chrono::Utc::now().timestamp();
        let signature = self.webhook.sign(&event, at, body.as_bytes())?;
        let request = self
            .http
            .post(format!("{}/webhooks/main/standard", self.base))
            .header("content-type", "application/json")
            .header("webhook-id", event)
            .header("webhook-timestamp", at.to_string())
            .header("webhook-signature", signature)
            .body(body);
        self.send(request).await.map(|_| ())
    }

    /// Waits until the order is as `so` wants it.
    pub(super) async fn until(&self, id: &str, so: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let began = tokio::time::Instant::now();
        loop {
            let order = self.read(id).await?;
            if so(&order) {
                return Ok(order);
            }
            if began.elapsed() > PATIENCE {
                bail!("order {id} is still {}", order["status"]);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> anyhow::Result<Value> {
        let answer = request.bearer_auth(&self.key).send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        if !status.is_success() {
            bail!("{status}: {text}");
        }
        serde_json::from_str(&text).with_context(|| format!("{status} with a body that is not JSON"))
    }
}

/// The body of an order for one machine of a category.
pub(super) fn one(category: &str) -> Value {
    json!({"lines": [{"asset": {"category": category}, "quantity": 1}],
           "payment": {"amount": PRICE, "currency": "EUR"}})
}

/// A text field of an answer.
pub(super) fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or("?").to_owned()
}

/// The key of the asset that an order's first reservation keeps.
pub(super) fn asset(order: &Value) -> Option<String> {
    order["lines"][0]["reservations"][0]["asset"].as_str().map(str::to_owned)
}
