//! What is wrong, in words: for the overview and for `onehold top` alike.

use super::super::words::{at_least, span};
use super::{Depth, MOST_JOBS, MOST_OTHERS, Stands};

/// A queue whose longest due job is older than this is behind, in seconds.
const BEHIND: f64 = 30.0;
/// The sweep runs each minute; what lapsed longer ago than this should be gone, in seconds.
const SWEEP_BEHIND: f64 = 180.0;

/// Something that is wrong; or, alone, that nothing is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// bad, warn or good.
    pub grade: &'static str,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub todo: &'static str,
}

/// What is wrong, worst first, and what to do about it.
#[must_use]
pub fn problems(depths: &[Depth], stands: &Stands) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut add = |grade, wrong: bool, what: String, todo| {
        if wrong {
            found.push(Problem { grade, what, todo });
        }
    };
    add(
        "bad",
        stands.workers == 0,
        "No worker is alive.".into(),
        "Orders are accepted and not decided. Start `onehold worker`.",
    );
    for d in depths {
        let (queue, dead) = (&d.queue, at_least(d.dead, MOST_JOBS));
        add(
            "bad",
            d.oldest > BEHIND && !d.paused,
            format!("The queue {queue} is {} behind.", span(d.oldest)),
            "Look at Queues for failures, at Connections for what waits; add workers if neither says more.",
        );
        add("bad", d.dead > 0, format!("{queue}: {dead} dead letters."), "Look at Queues: mend the cause, then retry.");
        add("warn", d.paused, format!("The queue {queue} is paused."), "Resume it at Queues when the reason is gone.");
    }
    let trouble = |n: i64| at_least(n, MOST_OTHERS);
    add(
        "bad",
        stands.sweep_lag > SWEEP_BEHIND,
        format!("The sweep is {} behind.", span(stands.sweep_lag)),
        "Lapsed holds keep stock from nobody, but show as held. See that `onehold scheduler` runs.",
    );
    add(
        "bad",
        stands.refund_due > 0,
        format!("{} orders are refund-due.", trouble(stands.refund_due)),
        "Money for which there is nothing to sell: give it back. See Orders, refund_due.",
    );
    add(
        "bad",
        stands.mismatch > 0,
        format!("{} payments do not fit their order.", trouble(stands.mismatch)),
        "Amount or currency differs; nothing was converted. See Orders, mismatch.",
    );
    add(
        "warn",
        stands.late > 0,
        format!("{} payments came late.", trouble(stands.late)),
        "They are being dealt with. See Orders, late.",
    );
    add(
        "bad",
        stands.shortfalls > 0,
        format!("{} pools lack units that are held.", trouble(stands.shortfalls)),
        "A forced movement took them. See Inventory; receive stock or end holds.",
    );
    add(
        "warn",
        stands.payments_oldest > 300.0,
        format!("A payment event has waited for {}.", span(stands.payments_oldest)),
        "Its order is not known. See that the web app sends its order ids.",
    );
    found.sort_by_key(|problem| problem.grade != "bad");
    if found.is_empty() {
        let (what, todo) = ("All is well.".into(), "Orders flow, nothing waits for a person.");
        found.push(Problem { grade: "good", what, todo });
    }
    found
}
