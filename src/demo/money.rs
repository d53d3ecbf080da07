//! Scenes of money that does not come as it should: too late, or not all of it.

use std::time::Duration;

use serde_json::Value;

use super::client::{Client, PRICE, asset, one, text};

/// Has an order for one machine of a category reserved, and lets its hold lapse.
async fn lapsed(client: &Client, category: &str) -> anyhow::Result<Value> {
    let mut short = one(category);
    short["hold_seconds"] = 1.into();
    let order = client.order(&format!("{category}-1"), short, true).await?;
    let deadline: chrono::DateTime<chrono::Utc> = text(&order, "hold_expires_at").parse()?;
    let left = (deadline - chrono::Utc::now()).to_std().unwrap_or_default();
    // This is the scene: a second in which nobody pays.
    tokio::time::sleep(left + Duration::from_millis(50)).await;
    Ok(order)
}

/// What the money of an order has come to, and the whole story.
async fn story(client: &Client, order: &Value) -> anyhow::Result<String> {
    let (status, money) = (text(order, "status"), text(&order["payment"], "state"));
    Ok(format!("{status}, {money}: {}", client.history(&text(order, "id")).await?))
}

pub(super) async fn late_and_reacquired(client: &Client) -> anyhow::Result<String> {
    client.stock("demo-late", 2).await?;
    let first = lapsed(client, "demo-late").await?;
    let id = text(&first, "id");
    client.pay(&id).await?;
    let order = client.until(&id, |o| o["payment"]["state"] == "paid").await?;
    let had = asset(&first);
    let reservations = order["lines"][0]["reservations"].as_array().cloned().unwrap_or_default();
    let sold = reservations.iter().find(|r| r["state"] == "converted").and_then(|r| r["asset"].as_str());
    let which = if sold.is_some() && sold == had.as_deref() { "the same" } else { "another or no" };
    Ok(format!("{}; {which} machine", story(client, &order).await?))
}

pub(super) async fn late_and_refund_due(client: &Client) -> anyhow::Result<String> {
    client.stock("demo-gone", 1).await?;
    let first = lapsed(client, "demo-gone").await?;
    let next = client.order("demo-gone-2", one("demo-gone"), true).await?;
    let id = text(&first, "id");
    client.pay(&id).await?;
    let order = client.until(&id, |o| o["payment"]["state"] == "refund_due").await?;
    let next = client.read(&text(&next, "id")).await?;
    Ok(format!("{}; the next is {}", story(client, &order).await?, text(&next, "status")))
}

pub(super) async fn wrong_amount(client: &Client) -> anyhow::Result<String> {
    client.stock("demo-wrong", 1).await?;
    let id = text(&client.order("demo-wrong", one("demo-wrong"), true).await?, "id");
    client.pay_part(&id, 1, 100).await?;
    let order = client.until(&id, |o| o["payment"]["state"] == "mismatch").await?;
    let before = format!("{} with {}", text(&order, "status"), text(&order["payment"], "state"));
    client.pay_part(&id, 2, PRICE - 100).await?;
    let order = client.until(&id, |o| o["status"] == "converted").await?;
    Ok(format!("{before}; after the rest {}", story(client, &order).await?))
}
