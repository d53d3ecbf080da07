//! When a delivery that failed is tried again: the schedule of the Standard Webhooks specification, with jitter, and
//! what the receiver asks for.

use std::time::Duration;

use chrono::{DateTime, Utc};
use rand::Rng as _;

/// The pauses after the first, second, … attempt, in seconds. After one more attempt than these it is given up.
/// Source: the Standard Webhooks specification, "Deliverability and reliability".
const PAUSES: [u64; 9] = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];
/// How much longer a pause may become by chance, so that what failed together does not come back together.
const MOST_JITTER: f64 = 0.2;
/// The longest pause that a receiver can ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(86_400);

/// How long to wait after the `attempt`-th failure (from 1), at least as long as the receiver `asked`; none: give up.
pub(super) fn pause(attempt: i32, asked: Option<Duration>) -> Option<Duration> {
    let nth = usize::try_from(attempt).ok()?.checked_sub(1)?;
    let usual = Duration::from_secs(*PAUSES.get(nth)?);
    let jittered = usual.mul_f64(1.0 + rand::rng().random_range(0.0..MOST_JITTER));
    Some(jittered.max(asked.unwrap_or_default().min(LONGEST_ASKED)))
}

/// What a header `Retry-After` asks for: seconds, or a date. None where it is neither.
pub(super) fn asked(header: &str, now: DateTime<Utc>) -> Option<Duration> {
    let header = header.trim();
    if let Ok(seconds) = header.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = DateTime::parse_from_rfc2822(header).ok()?;
    Some((date.to_utc() - now).to_std().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_follow_the_schedule_and_end() {
        for (attempt, seconds) in (1..).zip(PAUSES) {
            let pause = pause(attempt, None).unwrap().as_secs_f64();
            let (least, most) = (Duration::from_secs(seconds).as_secs_f64(), seconds as f64 * 1.2);
            assert!((least..=most).contains(&pause), "{attempt}: {pause}");
        }
        for none in [0, -1, 10, 11] {
            assert_eq!(pause(none, None), None, "{none}");
        }
    }

    #[test]
    fn a_receiver_can_ask_for_more_time_and_not_for_ever() {
        assert_eq!(pause(1, Some(Duration::from_secs(60))), Some(Duration::from_secs(60)));
        assert!(pause(2, Some(Duration::from_secs(1))).unwrap() >= Duration::from_secs(300));
        assert_eq!(pause(1, Some(Duration::MAX)), Some(LONGEST_ASKED));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = "2026-01-05T10:00:00Z".parse().unwrap();
        assert_eq!(asked(" 120 ", now), Some(Duration::from_secs(120)));
        assert_eq!(asked("Mon, 05 Jan 2026 10:00:30 GMT", now), Some(Duration::from_secs(30)));
        assert_eq!(asked("Mon, 05 Jan 2026 09:00:00 GMT", now), Some(Duration::ZERO));
        for neither in ["", "soon", "-1", "1.5"] {
            assert_eq!(asked(neither, now), None, "{neither}");
        }
    }
}
