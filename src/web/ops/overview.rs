//! The overview: what is wrong on top, in words, then the numbers.

use axum::extract::State;
use maud::{Markup, html};

use super::page::{Refused, at_least, grouped, page, span};
use super::session::Operator;
use crate::ops::Watch;
use crate::ops::minutes::{self, Stretch};
use crate::ops::standing::{self, Depth, MOST_JOBS, MOST_OTHERS, Stands};
use crate::web::AppState;

/// The kinds of events that are drawn, in this order.
const DRAWN: [&str; 6] = ["placed", "reserved", "refused:", "converted", "expired", "cancelled"];
/// A queue whose longest due job is older than this is behind, in seconds.
const BEHIND: f64 = 30.0;
/// The sweep runs each minute; what lapsed longer ago than this should be gone, in seconds.
const SWEEP_BEHIND: f64 = 180.0;

pub(super) async fn overview(State(state): State<AppState>, operator: Operator) -> Result<Markup, Refused> {
    let (hour, day) = (
        minutes::last_hour(&state.watch, operator.shop()).await?,
        minutes::last_day(&state.watch, operator.shop()).await?,
    );
    Ok(page(
        &operator,
        "Overview",
        "/ops",
        html! {
            div data-live="/ops/live" { (now(&state.watch, operator.shop()).await?) }
            h2 { "Last hour, by minutes" }
            (drawn(&hour))
            h2 { "Last day, by quarters of an hour" }
            (drawn(&day))
            p.hint { "Counted by the housekeeping once a minute is over. Times are UTC." }
        },
    ))
}

/// What stands now; sent again and again to whoever watches.
pub(super) async fn now(watch: &Watch, shop_id: i32) -> Result<Markup, sqlx::Error> {
    let (depths, stands) = (standing::queues(watch).await?, standing::stands(watch, Some(shop_id)).await?);
    Ok(html! {
        ul.problems { @for (grade, what, todo) in problems(&depths, &stands) {
            li class=(grade) { b { (what) } (todo) }
        } }
        h2 { "Now" }
        div.cards {
            (card("Holds that lapse in 5 minutes", &at_least(stands.lapsing, MOST_JOBS)))
            (card("Oldest undecided order", &span(stands.placed_oldest)))
            (card("Since the last sweep", &stands.swept.map_or("–".to_owned(), span)))
            (card("Sweep behind by", &span(stands.sweep_lag)))
            (card("Payment events waiting", &at_least(stands.payments, MOST_OTHERS)))
            (card("Worker lines seen", &grouped(stands.workers)))
            @for depth in &depths {
                (card(&format!("{}: due, oldest {}", depth.queue, span(depth.oldest)), &at_least(depth.ready, MOST_JOBS)))
            }
        }
    })
}

fn card(name: &str, value: &str) -> Markup {
    html! { div.card { b { (value) } span { (name) } } }
}

/// What is wrong, worst first, and what to do about it.
fn problems(depths: &[Depth], stands: &Stands) -> Vec<(&'static str, String, &'static str)> {
    let mut found = Vec::new();
    let mut add = |grade, wrong: bool, what: String, todo| {
        if wrong {
            found.push((grade, what, todo));
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
    found.sort_by_key(|(grade, ..)| *grade != "bad");
    if found.is_empty() {
        found.push(("good", "All is well.".into(), "Orders flow, nothing waits for a person."));
    }
    found
}

fn drawn(stretches: &[Stretch]) -> Markup {
    let times = |name: &str| {
        let of = |pick: fn(&Stretch) -> Option<f64>| {
            stretches
                .iter()
                .filter(|s| s.kind == name)
                .filter_map(pick)
                .fold(None, |a: Option<f64>, b| Some(a.map_or(b, |a| a.max(b))))
        };
        (of(|s| s.p50), of(|s| s.p99))
    };
    html! {
        div.cards {
            @for kind in DRAWN {
                @let name = kind.trim_end_matches(':');
                @let all: i64 = stretches.iter().filter(|s| s.kind.starts_with(kind)).map(|s| s.n).sum();
                div.card { b { (grouped(all)) } span { (name) } (sparkline(stretches, kind)) }
            }
            @if let (Some(p50), Some(p99)) = times("reserved") {
                div.card { b { (span(p50)) " / " (span(p99)) } span { "placed to reserved, worst p50 / p99" } }
            }
        }
        @let refused: std::collections::BTreeMap<&str, i64> = stretches.iter()
            .filter_map(|s| Some((s.kind.strip_prefix("refused:")?, s.n)))
            .fold(Default::default(), |mut sums, (kind, n)| { *sums.entry(kind).or_default() += n; sums });
        @if !refused.is_empty() {
            p.hint { "Refused as " @for (kind, n) in &refused { (kind) ": " (grouped(*n)) "; " } }
        }
    }
}

/// One line over the time; empty stretches count as none.
fn sparkline(stretches: &[Stretch], kind: &str) -> Markup {
    let (Some(first), Some(last)) = (stretches.first(), stretches.last()) else { return html! {} };
    let whole = (last.from - first.from).num_seconds().max(1);
    let mut sums = std::collections::BTreeMap::<i64, i64>::new();
    for s in stretches {
        let sum = sums.entry((s.from - first.from).num_seconds()).or_default();
        *sum += if s.kind.starts_with(kind) { s.n } else { 0 };
    }
    let most = sums.values().copied().max().unwrap_or_default().max(1);
    let points: Vec<String> =
        sums.iter().map(|(at, n)| format!("{},{}", at * 100 / whole, 29 - n * 28 / most)).collect();
    html! {
        svg viewBox="0 0 100 30" preserveAspectRatio="none" role="img" aria-label={ "at most " (most) " at once" } {
            polyline class="spark" points=(points.join(" ")) {}
        }
    }
}
