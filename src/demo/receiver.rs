//! A receiver of outbound events, as far as a scene needs one: it fails the first message, and takes the rest.

use anyhow::Context as _;
use serde_json::Value;
use standardwebhooks::Webhook;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The most bytes of a message. The scene's have a few hundred.
const MOST_BYTES: usize = 64 * 1024;

/// A message as it arrived.
pub(super) struct Message {
    /// Its `webhook-id`.
    pub(super) id: String,
    /// Its type.
    pub(super) kind: String,
    /// Whether it was signed with the endpoint's secret.
    pub(super) signed: bool,
}

/// Takes `count` messages one after the other; answers the first with 500 and the others with 204.
pub(super) async fn receive(listener: &TcpListener, secret: &str, count: usize) -> anyhow::Result<Vec<Message>> {
    let webhook = Webhook::new(secret)?;
    let mut messages = Vec::new();
    while messages.len() < count {
        let (mut stream, _) = listener.accept().await?;
        let (headers, body) = read(&mut stream).await?;
        let status = if messages.is_empty() { "500 No" } else { "204 Taken" };
        stream.write_all(format!("HTTP/1.1 {status}\r\nconnection: close\r\n\r\n").as_bytes()).await?;
        let event: Value = serde_json::from_slice(&body)?;
        messages.push(Message {
            id: headers.get("webhook-id").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned(),
            kind: super::client::text(&event, "type"),
            signed: webhook.verify(&body, &headers).is_ok(),
        });
    }
    Ok(messages)
}

async fn read(stream: &mut TcpStream) -> anyhow::Result<(http::HeaderMap, Vec<u8>)> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let n = stream.read(&mut piece).await?;
        anyhow::ensure!(n > 0 && bytes.len() < MOST_BYTES, "a message broke off");
        bytes.extend_from_slice(&piece[..n]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let mut headers = http::HeaderMap::new();
        for line in std::str::from_utf8(&bytes[..end])?.lines().skip(1) {
            let (name, value) = line.split_once(':').context("a header without a name")?;
            headers.insert(http::HeaderName::try_from(name)?, value.trim().parse()?);
        }
        let length: usize = headers.get("content-length").context("no length")?.to_str()?.parse()?;
        let body = &bytes[end + 4..];
        if body.len() >= length {
            return Ok((headers, body[..length].to_vec()));
        }
    }
}
