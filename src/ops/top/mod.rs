//! The overview in a terminal: the same words and numbers as the dashboard's, for those who are on the machine at
//! night, and as plain text for scripts.

mod screen;

use std::fmt::Write as _;

use chrono::{DateTime, Utc};

use super::Watch;
use super::minutes::{self, Stretch};
use super::standing::{self, Depth, MOST_JOBS, MOST_OTHERS, Problem, Stands, Worker, problems};
use super::words::{at_least, grouped, span};

pub use screen::draw;

/// What is counted of orders, by how their events begin, and what it is called.
const COUNTED: [&str; 6] = ["placed", "reserved", "refused", "converted", "expired", "cancelled"];

/// What is shown.
#[derive(Clone, Debug)]
pub struct View {
    /// When it stood so.
    pub at: DateTime<Utc>,
    /// What is wrong, worst first; or, alone, that nothing is.
    pub problems: Vec<Problem>,
    /// Every queue.
    pub queues: Vec<Depth>,
    /// What stands where.
    pub stands: Stands,
    /// Workers that were seen lately.
    pub workers: Vec<Worker>,
    /// The last hour of the shop, by minutes.
    pub hour: Vec<Stretch>,
}

/// Looks: at one shop, or at the whole installation with the last hour of `shop_id`.
///
/// # Errors
/// What the database answers; it works for at most two seconds on each question.
pub async fn look(watch: &Watch, shop_id: i32, all: bool) -> Result<View, sqlx::Error> {
    let queues = standing::queues(watch).await?;
    let stands = standing::stands(watch, (!all).then_some(shop_id)).await?;
    Ok(View {
        at: Utc::now(),
        problems: problems(&queues, &stands),
        queues,
        stands,
        workers: standing::workers(watch).await?,
        hour: minutes::last_hour(watch, shop_id).await?,
    })
}

impl View {
    /// How many there were in the last hour, by the way an event's kind begins.
    fn sum(&self, kind: &str) -> i64 {
        self.hour.iter().filter(|s| s.kind.starts_with(kind)).map(|s| s.n).sum()
    }

    /// How many there were in each of the last sixty minutes, the oldest first.
    fn each_minute(&self, kind: &str) -> Vec<u64> {
        let mut minutes = vec![0_u64; 60];
        for stretch in self.hour.iter().filter(|s| s.kind.starts_with(kind)) {
            let ago = usize::try_from((self.at - stretch.from).num_minutes()).unwrap_or_default();
            if let Some(minute) = 59_usize.checked_sub(ago).and_then(|at| minutes.get_mut(at)) {
                *minute += u64::try_from(stretch.n).unwrap_or_default();
            }
        }
        minutes
    }

    /// From placed to reserved, the worst of the minutes' p50 and p99.
    fn decided_within(&self) -> Option<(f64, f64)> {
        let worst = |pick: fn(&Stretch) -> Option<f64>| {
            self.hour.iter().filter(|s| s.kind == "reserved").filter_map(pick).reduce(f64::max)
        };
        worst(|s| s.p50).zip(worst(|s| s.p99))
    }

    /// What stands now: name and value.
    fn now(&self) -> Vec<(&'static str, String)> {
        let stands = &self.stands;
        vec![
            ("holds that lapse in 5 minutes", at_least(stands.lapsing, MOST_JOBS)),
            ("oldest undecided order", span(stands.placed_oldest)),
            ("since the last sweep", stands.swept.map_or("-".to_owned(), span)),
            ("sweep behind by", span(stands.sweep_lag)),
            ("payment events waiting", at_least(stands.payments, MOST_OTHERS)),
            (
                "payments late, mismatched, refund-due",
                [stands.late, stands.mismatch, stands.refund_due].map(|n| at_least(n, MOST_OTHERS)).join(", "),
            ),
            ("pools that lack units", at_least(stands.shortfalls, MOST_OTHERS)),
        ]
    }
}

/// All of it as text: a line for each problem first, then the numbers, in columns that stay.
#[must_use]
pub fn plain(view: &View) -> String {
    let mut text = format!("onehold {}, {} UTC\n\n", env!("CARGO_PKG_VERSION"), view.at.format("%Y-%m-%d %H:%M:%S"));
    // Writing into a String cannot fail.
    for problem in &view.problems {
        let _ = writeln!(text, "{:<4} {} {}", problem.grade, problem.what, problem.todo);
    }
    text.push('\n');
    for (name, value) in view.now() {
        let _ = writeln!(text, "{name:<38} {value}");
    }
    text.push_str("\nlast hour   ");
    for kind in COUNTED {
        let _ = write!(text, " {kind} {}", grouped(view.sum(kind)));
    }
    if let Some((p50, p99)) = view.decided_within() {
        let _ = write!(text, "; placed to reserved, worst p50 {} p99 {}", span(p50), span(p99));
    }
    let _ = write!(
        text,
        "\n\n{:<14} {:>8} {:>9} {:>8} {:>8} {:>8}\n",
        "queue", "due", "oldest", "later", "running", "dead"
    );
    for d in &view.queues {
        let [due, later, running, dead] = [d.ready, d.later, d.running, d.dead].map(count);
        let paused = if d.paused { "  paused" } else { "" };
        let _ =
            writeln!(text, "{:<14} {due:>8} {:>9} {later:>8} {running:>8} {dead:>8}{paused}", d.queue, span(d.oldest));
    }
    let _ = write!(text, "\n{:<14} {:>9} {:>8} {:<8} name\n", "worker of", "seen", "in hand", "release");
    for w in &view.workers {
        let _ = writeln!(text, "{:<14} {:>9} {:>8} {:<8} {}", w.queue, span(w.silence), w.running, w.release, w.name);
    }
    text
}

/// A count of jobs, short.
fn count(n: i64) -> String {
    if n >= MOST_JOBS { format!(">{}", MOST_JOBS - 2) } else { n.to_string() }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn view() -> View {
        let at = DateTime::from_timestamp(1_800_000_000, 0).unwrap_or_default();
        let stretch = |minutes: i64, kind: &str, n| Stretch {
            from: at - chrono::Duration::minutes(minutes),
            kind: kind.to_owned(),
            n,
            p50: Some(0.02),
            p99: Some(0.4),
        };
        let queues = vec![Depth {
            queue: "reserve".into(),
            ready: 10_001,
            later: 2,
            running: 3,
            dead: 1,
            oldest: 45.0,
            paused: true,
        }];
        let stands = Stands {
            workers: 1,
            silence: 0.5,
            lapsing: 7,
            sweep_lag: 0.0,
            swept: None,
            placed_oldest: 1.0,
            payments: 0,
            payments_oldest: 0.0,
            late: 0,
            mismatch: 0,
            refund_due: 2,
            shortfalls: 0,
        };
        let worker = Worker {
            name: "box-1".into(),
            queue: "reserve".into(),
            release: "0.1.0".into(),
            silence: 0.5,
            started_at: None,
            running: 3,
        };
        let hour = vec![
            stretch(59, "placed", 4),
            stretch(0, "placed", 8),
            stretch(61, "placed", 1),
            stretch(0, "refused:held", 2),
            stretch(0, "reserved", 6),
        ];
        View { at, problems: problems(&queues, &stands), queues, stands, workers: vec![worker], hour }
    }

    #[test]
    fn the_text_begins_with_what_is_wrong_and_what_to_do() {
        let text = plain(&view());
        let wrong = text.lines().nth(2).unwrap_or_default();
        assert!(wrong.starts_with("bad  reserve: 1 dead letters. Look at Queues"), "{text}");
        for part in
            ["2 orders are refund-due", "placed 13 reserved 6 refused 2", ">9999    45.0 s        2", "paused", "box-1"]
        {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }

    #[test]
    fn a_minute_stands_where_it_was_and_what_is_older_nowhere() {
        let minutes = view().each_minute("placed");
        assert_eq!((minutes.len(), minutes[0], minutes[59], minutes.iter().sum::<u64>()), (60, 4, 8, 12));
    }
}
