//! Serving until it is time to end. The loop is our own, as axum's has no bounds: neither on how many
//! connections there are, nor on how long one may say nothing.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The most connections at once; more wait to be accepted. Each can hold a body of 1 MiB.
const MOST_CONNECTIONS: usize = 4_096;
/// How long a connection may be idle, or take to send a request's head. Longer than the 60 s for which
/// common proxies keep an idle connection, so that they do not send into one that is just being closed.
const MOST_SILENCE: Duration = Duration::from_secs(75);
/// How long to wait before the next connection where one could not be accepted: there are too many open
/// files, and only time helps.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long running requests have to finish once it is time to end. None takes longer by itself: a
/// statement ends after 10 s, and who waits for an order is answered at once. It leaves the process the
/// rest of its 25 s.
const MOST_DRAIN: Duration = Duration::from_secs(20);

/// Answers requests on `listener` until `shutdown` is cancelled; then takes no new ones, and returns when
/// those that run have been answered, or after 20 s.
///
/// # Errors
/// None today; a listener that can never accept again would be one.
pub async fn serve(listener: TcpListener, app: Router, shutdown: CancellationToken) -> io::Result<()> {
    serve_within(Bounds { connections: MOST_CONNECTIONS, silence: MOST_SILENCE }, listener, app, shutdown).await;
    Ok(())
}

#[derive(Clone, Copy)]
struct Bounds {
    connections: usize,
    silence: Duration,
}

async fn serve_within(bounds: Bounds, listener: TcpListener, app: Router, shutdown: CancellationToken) {
    let connections = TaskTracker::new();
    let room = Arc::new(Semaphore::new(bounds.connections));
    while let Some((stream, place)) = next(&listener, &room, &shutdown).await {
        connections.spawn(connection(bounds, stream, app.clone(), shutdown.clone(), place));
    }
    // Who connects from now on is told at once that nobody is there.
    drop(listener);
    connections.close();
    if tokio::time::timeout(MOST_DRAIN, connections.wait()).await.is_err() {
        tracing::warn!(open = connections.len(), "requests were cut off: they did not end within the time for it");
    }
}

/// The next connection and its place; none when it is time to end.
async fn next(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
    shutdown: &CancellationToken,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let accepted = async {
        let place = room.clone().acquire_owned().await.ok()?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return Some((stream, place)),
                // The client's own fault, or too many open files.
                Err(error) => {
                    tracing::debug!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = shutdown.cancelled() => None,
        accepted = accepted => accepted,
    }
}

async fn connection(
    bounds: Bounds,
    stream: TcpStream,
    app: Router,
    shutdown: CancellationToken,
    _place: OwnedSemaphorePermit,
) {
    // Answers are small and written whole: nothing is won by holding them back.
    let _ = stream.set_nodelay(true);
    // Without that, a connection that says nothing at all is waited for, without a bound, to tell its version.
    let mut http = Builder::new(TokioExecutor::new()).http1_only();
    http.http1().timer(TokioTimer::new()).header_read_timeout(bounds.silence);
    let served = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    tokio::pin!(served);
    // What a client breaks off is no fault of ours, and ends the connection either way.
    tokio::select! {
        _ = &mut served => return,
        () = shutdown.cancelled() => served.as_mut().graceful_shutdown(),
    }
    let _ = served.await;
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;

    const UNTIL: Duration = Duration::from_secs(20);

    async fn started(bounds: Bounds, shutdown: &CancellationToken) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().route("/", get(async || "well"));
        (address, tokio::spawn(serve_within(bounds, listener, app, shutdown.clone())))
    }

    async fn said(mut stream: TcpStream, head: &str) -> String {
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(UNTIL, stream.read_to_string(&mut answer)).await.expect("the connection ends").unwrap();
        answer
    }

    #[tokio::test]
    async fn a_connection_that_says_nothing_is_ended_before_and_between_requests() {
        let shutdown = CancellationToken::new();
        let bounds = Bounds { connections: 9, silence: Duration::from_millis(200) };
        let (address, _serving) = started(bounds, &shutdown).await;
        for (head, answered) in [("", false), ("GET / HT", false), ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", true)] {
            let answer = said(TcpStream::connect(address).await.unwrap(), head).await;
            assert_eq!(answer.ends_with("well"), answered, "{head:?}: {answer}");
        }
        shutdown.cancel();
    }

    #[tokio::test]
    async fn one_connection_more_than_there_is_room_for_waits_its_turn() {
        let shutdown = CancellationToken::new();
        let (address, serving) = started(Bounds { connections: 1, silence: UNTIL }, &shutdown).await;
        let first = TcpStream::connect(address).await.unwrap();
        let head = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let mut second = TcpStream::connect(address).await.unwrap();
        second.write_all(head.as_bytes()).await.unwrap();
        let mut byte = [0];
        let early = timeout(Duration::from_millis(200), second.read(&mut byte)).await;
        assert!(early.is_err(), "there was no room yet");
        drop(first);
        assert!(said(second, "").await.ends_with("well"));
        // One that is idle does not keep the process from ending.
        let _idle = TcpStream::connect(address).await.unwrap();
        shutdown.cancel();
        timeout(UNTIL, serving).await.expect("it ends").unwrap();
    }
}
