//! How the queue's loop is timed.

use std::time::Duration;

/// The times of one worker process. The defaults are what Onehold runs with; tests shorten them.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How often a process says that it lives, and looks for those that do not. Default 2 s.
    pub heartbeat: Duration,
    /// A process that has not said so for this long is dead, and its jobs run elsewhere. With the default
    /// of 8 s they run again about 10 s after a `kill -9`.
    pub dead_after: Duration,
    /// How often a queue is looked at without a notification, give or take a quarter. Default 1 s.
    pub poll: Duration,
    /// How long running jobs may go on after the process was asked to stop. Default 25 s.
    pub grace: Duration,
    /// How long the process then takes, at most, to write down what has ended and hand back the rest.
    /// Default 4 s, so that with the grace it stays under the 30 s after which platforms kill.
    pub closing: Duration,
    /// How long one execution may take before it is ended and counts as failed. Default 5 min.
    pub longest_run: Duration,
    /// The first pause after a failed attempt is between nothing and this, and doubles. Default 250 ms.
    pub backoff_base: Duration,
    /// No such pause is longer than this. Default 60 s.
    pub backoff_cap: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(2),
            dead_after: Duration::from_secs(8),
            poll: Duration::from_secs(1),
            grace: Duration::from_secs(25),
            closing: Duration::from_secs(4),
            longest_run: Duration::from_secs(300),
            backoff_base: Duration::from_millis(250),
            backoff_cap: Duration::from_secs(60),
        }
    }
}
