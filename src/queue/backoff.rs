//! Pauses of a loop that cannot get on, mostly because the database is away.

use std::time::Duration;

use rand::Rng as _;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

/// Counts failures in a row; each makes the next pause longer, at most two seconds: a database that comes
/// back is used again soon, and one that is away is not hammered.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause after one more failure: doubling, with the upper half random so that processes part.
    pub(super) fn next(&mut self) -> Duration {
        let pause = FIRST.saturating_mul(1 << self.failures.min(10)).min(LONGEST);
        self.failures += 1;
        pause.mul_f64(rand::rng().random_range(0.5..=1.0))
    }

    /// It got on.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// `duration`, give or take a quarter: so that processes started together do not stay together.
pub(super) fn jittered(duration: Duration) -> Duration {
    duration.mul_f64(rand::rng().random_range(0.75..=1.25))
}

#[cfg(test)]
mod tests {
    use super::{Backoff, LONGEST};

    #[test]
    fn pauses_grow_and_are_bounded_however_long_it_takes() {
        let mut backoff = Backoff::default();
        let first = backoff.next();
        for _ in 0..100 {
            assert!(backoff.next() <= LONGEST);
        }
        assert!(backoff.next() > first);
        backoff.reset();
        assert!(backoff.next() < LONGEST / 2);
    }
}
