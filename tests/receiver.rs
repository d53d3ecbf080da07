//! A receiver of outbound events: real HTTP on a port of its own, which answers as it is told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use standardwebhooks::Webhook;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

const LIMIT: Duration = Duration::from_secs(40);

/// A message as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) path: String,
    pub(crate) id: String,
    pub(crate) timestamp: String,
    pub(crate) signature: String,
    /// Empty where none was sent.
    pub(crate) traceparent: String,
    pub(crate) body: String,
}

impl Received {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub(crate) fn kind(&self) -> String {
        self.json()["type"].as_str().unwrap().to_owned()
    }

    /// Whether it is signed with this secret, now.
    pub(crate) fn is_signed_with(&self, secret: &str) -> bool {
        let mut headers = http::HeaderMap::new();
        headers.insert("webhook-id", self.id.parse().unwrap());
        headers.insert("webhook-timestamp", self.timestamp.parse().unwrap());
        headers.insert("webhook-signature", self.signature.parse().unwrap());
        Webhook::new(secret).unwrap().verify(self.body.as_bytes(), &headers).is_ok()
    }
}

/// What is answered.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// This status, with further headers (`name: value` and a line's end, each).
    Status(u16, String),
    /// 500 and as much of ten megabytes as the other side reads.
    TenMegabytes,
    /// Nothing, ever.
    Hang,
    /// 200, when this says so.
    When(Arc<Notify>),
    /// The connection is closed without an answer.
    Close,
}

pub(crate) fn ok() -> Reply {
    Reply::Status(200, String::new())
}

type Judge = dyn Fn(&Received) -> Reply + Send + Sync;

/// A running receiver.
pub(crate) struct Receiver {
    pub(crate) base: String,
    pub(crate) port: u16,
    judge: Arc<Mutex<Arc<Judge>>>,
    arrived: UnboundedReceiver<Received>,
    /// How many bytes of answers were taken from us.
    pub(crate) taken: Arc<Mutex<usize>>,
    /// How many connections were made.
    pub(crate) connections: Arc<Mutex<usize>>,
}

impl Receiver {
    pub(crate) async fn start(judge: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let judge: Arc<Mutex<Arc<Judge>>> = Arc::new(Mutex::new(Arc::new(judge)));
        let (tell, arrived) = unbounded_channel();
        let (taken, connections) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
        let (judged, counted, connected) = (judge.clone(), taken.clone(), connections.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *connected.lock().unwrap() += 1;
                tokio::spawn(answer(stream, judged.clone(), tell.clone(), counted.clone()));
            }
        });
        Self { base: format!("http://127.0.0.1:{port}"), port, judge, arrived, taken, connections }
    }

    /// From now on it answers so.
    pub(crate) fn now(&self, judge: impl Fn(&Received) -> Reply + Send + Sync + 'static) {
        *self.judge.lock().unwrap() = Arc::new(judge);
    }

    /// The next message to arrive.
    pub(crate) async fn next(&mut self) -> Received {
        let next = tokio::time::timeout(LIMIT, self.arrived.recv()).await;
        next.expect("a message must arrive in time").unwrap()
    }

    /// What has arrived and was not asked for yet.
    pub(crate) fn rest(&mut self) -> Vec<Received> {
        std::iter::from_fn(|| self.arrived.try_recv().ok()).collect()
    }
}

async fn answer(
    mut stream: TcpStream,
    judge: Arc<Mutex<Arc<Judge>>>,
    tell: UnboundedSender<Received>,
    taken: Arc<Mutex<usize>>,
) {
    let Some(received) = read(&mut stream).await else { return };
    let judge = judge.lock().unwrap().clone();
    let reply = judge(&received);
    let _ = tell.send(received);
    match reply {
        Reply::Status(status, headers) => {
            let head = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n{headers}\r\n");
            let _ = stream.write_all(head.as_bytes()).await;
        }
        Reply::TenMegabytes => {
            let head = format!("HTTP/1.1 500 X\r\ncontent-length: {}\r\n\r\n", 10 << 20);
            let _ = stream.write_all(head.as_bytes()).await;
            let piece = vec![b'x'; 1 << 16];
            for _ in 0..160 {
                if stream.write_all(&piece).await.is_err() {
                    return;
                }
                *taken.lock().unwrap() += piece.len();
            }
        }
        Reply::Hang => {
            // Until the other side has enough of it.
            let _ = stream.read(&mut [0; 1]).await;
        }
        Reply::When(so) => {
            so.notified().await;
            let _ = stream.write_all(b"HTTP/1.1 200 X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
        }
        Reply::Close => {}
    }
}

async fn read(stream: &mut TcpStream) -> Option<Received> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let n = stream.read(&mut piece).await.ok().filter(|n| *n > 0)?;
        bytes.extend_from_slice(&piece[..n]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let header = |name: &str| {
            let line = head.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}:")));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        if body.len() < header("content-length").parse().unwrap_or(0) {
            continue;
        }
        return Some(Received {
            path: head.split(' ').nth(1)?.to_owned(),
            id: header("webhook-id"),
            timestamp: header("webhook-timestamp"),
            signature: header("webhook-signature"),
            traceparent: header("traceparent"),
            body: body.to_owned(),
        });
    }
}
