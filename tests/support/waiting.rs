//! Waiting for a condition, and starting together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Barrier;

const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Waits until `so` holds, looking again every few milliseconds. For conditions that send no signal.
///
/// # Panics
/// When `limit` is over.
pub(crate) async fn eventually<F: Future<Output = bool>>(limit: Duration, mut so: impl FnMut() -> F) {
    let since = Instant::now();
    while !so().await {
        assert!(since.elapsed() < limit, "this did not come true within {limit:?}");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Runs all of `runners` at once, each on a task of its own that starts at one barrier, and gives their
/// answers in the same order.
pub(crate) async fn race<T, F>(runners: impl IntoIterator<Item = F>) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let runners: Vec<F> = runners.into_iter().collect();
    let barrier = Arc::new(Barrier::new(runners.len()));
    let tasks: Vec<_> = runners
        .into_iter()
        .map(|runner| {
            let barrier = barrier.clone();
            tokio::spawn(async move {
                barrier.wait().await;
                runner.await
            })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}
