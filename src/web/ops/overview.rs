//! The overview: what is wrong on top, in words, then the numbers.

use axum::extract::State;
use maud::{Markup, html};

use super::page::{Refused, at_least, grouped, page, span};
use super::session::Operator;
use crate::ops::Watch;
use crate::ops::minutes::{self, Stretch};
use crate::ops::standing::{self, MOST_JOBS, MOST_OTHERS, problems};
use crate::web::AppState;

/// The kinds of events that are drawn, in this order.
const DRAWN: [&str; 6] = ["placed", "reserved", "refused:", "converted", "expired", "cancelled"];

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
        ul.problems { @for problem in problems(&depths, &stands) {
            li class=(problem.grade) { b { (problem.what) } (problem.todo) }
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
