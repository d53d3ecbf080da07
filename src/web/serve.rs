//! Serving until it is time to end.

use std::future::IntoFuture as _;
use std::io;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How long running requests have to finish once it is time to end. None takes longer by itself: a
/// statement ends after 10 s, and who waits for an order is answered at once. It leaves the process the
/// rest of its 25 s.
const MOST_DRAIN: Duration = Duration::from_secs(20);

/// Answers requests on `listener` until `shutdown` is cancelled; then takes no new ones, and returns when
/// those that run have been answered, or after 20 s.
///
/// # Errors
/// A listener that is broken.
pub async fn serve(listener: TcpListener, app: Router, shutdown: CancellationToken) -> io::Result<()> {
    let drained = axum::serve(listener, app).with_graceful_shutdown(shutdown.clone().cancelled_owned()).into_future();
    tokio::pin!(drained);
    tokio::select! {
        ended = &mut drained => return ended,
        () = shutdown.cancelled() => {}
    }
    match tokio::time::timeout(MOST_DRAIN, drained).await {
        Ok(ended) => ended,
        Err(_) => {
            tracing::warn!("requests were cut off: they did not end within {} s", MOST_DRAIN.as_secs());
            Ok(())
        }
    }
}
