//! What is said at the end: one comparison a line, with what each side did.

use std::time::Duration;

use serde::Serialize;

use super::Scenario;
use super::drive::Tally;

/// What the value of a comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// How long one takes: our time to the other's, so below 1 is faster.
    Time,
    /// How many a second at once: our rate to the other's, so above 1 is faster.
    Rate,
}

/// One comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// The scenario.
    pub scenario: &'static str,
    /// What is compared, in short words that stay.
    pub ratio: &'static str,
    /// What `value` compares.
    pub measure: Measure,
    /// The median of the rounds' ratios; where all was measured in one round, the ratio of the medians.
    pub value: f64,
    /// The least and the greatest ratio of any round; where all was measured in one round, the ratios of the first
    /// and of the third quartiles.
    pub spread: (f64, f64),
    /// Ours.
    pub ours: Figures,
    /// What it is compared with.
    pub baseline: Figures,
}

/// What one side did. Times are of one operation, in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Figures {
    /// How many operations were timed.
    pub n: usize,
    /// Operations a second, the median of the rounds; none where one was done after the other.
    pub per_second: Option<f64>,
    /// A quarter were faster.
    pub p25: f64,
    /// The median.
    pub p50: f64,
    /// A quarter were slower.
    pub p75: f64,
    /// One in a hundred was slower.
    pub p99: f64,
    /// The slowest.
    pub max: f64,
    /// What one operation costs the server, where that was metered.
    pub costs: Option<Costs>,
}

/// What one operation costs the server.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Costs {
    /// Statements that ran, those inside functions and triggers too; none without `pg_stat_statements`.
    pub statements: Option<f64>,
    /// Statements that were sent, each of them a round trip; none without `pg_stat_statements`.
    pub round_trips: Option<f64>,
    /// Bytes of WAL, full-page images included.
    pub wal_bytes: f64,
    /// Transactions that were committed.
    pub commits: f64,
}

impl Figures {
    pub(super) fn of_times(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |percent: usize| {
            times.get((times.len() * percent / 100).min(times.len().saturating_sub(1))).map_or(0.0, |t| ms(*t))
        };
        Self { n: times.len(), p25: at(25), p50: at(50), p75: at(75), p99: at(99), max: at(100), ..Self::default() }
    }

    fn of_tally(tally: &Tally) -> Self {
        let times = tally.rounds.iter().flat_map(|round| round.times.iter().copied()).collect();
        Self { per_second: Some(median(&tally.rates())), costs: tally.costs, ..Self::of_times(times) }
    }
}

impl Ratio {
    /// Times that were taken in turn, one after the other.
    pub(super) fn of_times(
        scenario: Scenario,
        ratio: &'static str,
        ours: Vec<Duration>,
        baseline: Vec<Duration>,
    ) -> Self {
        Self::of_figures(scenario, ratio, Figures::of_times(ours), Figures::of_times(baseline))
    }

    /// The same, of what was summed up before.
    pub(super) fn of_figures(scenario: Scenario, ratio: &'static str, ours: Figures, baseline: Figures) -> Self {
        Self {
            scenario: scenario.name(),
            ratio,
            measure: Measure::Time,
            value: ours.p50 / baseline.p50,
            spread: (ours.p25 / baseline.p25, ours.p75 / baseline.p75),
            ours,
            baseline,
        }
    }

    /// How many a second, round by round.
    pub(super) fn of_rates(scenario: Scenario, ratio: &'static str, ours: &Tally, baseline: &Tally) -> Self {
        Self::of_rounds(scenario, ratio, Measure::Rate, ours, baseline, &ours.rates(), &baseline.rates())
    }

    /// How much of the fleet's time one takes (the inverse of how many a second), round by round.
    pub(super) fn of_shares(scenario: Scenario, ratio: &'static str, ours: &Tally, baseline: &Tally) -> Self {
        let inverse = |tally: &Tally| tally.rates().iter().map(|rate| 1.0 / rate).collect::<Vec<_>>();
        Self::of_rounds(scenario, ratio, Measure::Time, ours, baseline, &inverse(ours), &inverse(baseline))
    }

    /// The 99th percentile of the times, round by round.
    pub(super) fn of_tails(scenario: Scenario, ratio: &'static str, ours: &Tally, baseline: &Tally) -> Self {
        let tails = |tally: &Tally| {
            tally.rounds.iter().map(|round| Figures::of_times(round.times.clone()).p99).collect::<Vec<_>>()
        };
        Self::of_rounds(scenario, ratio, Measure::Time, ours, baseline, &tails(ours), &tails(baseline))
    }

    fn of_rounds(
        scenario: Scenario,
        ratio: &'static str,
        measure: Measure,
        ours: &Tally,
        baseline: &Tally,
        our_rounds: &[f64],
        their_rounds: &[f64],
    ) -> Self {
        let rounds: Vec<f64> = our_rounds.iter().zip(their_rounds).map(|(ours, other)| ours / other).collect();
        let least = rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = rounds.iter().copied().fold(0.0, f64::max);
        let (value, spread) = (median(&rounds), (least, greatest));
        let (ours, baseline) = (Figures::of_tally(ours), Figures::of_tally(baseline));
        Self { scenario: scenario.name(), ratio, measure, value, spread, ours, baseline }
    }
}

/// In milliseconds.
pub(super) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The one in the middle; of an even number, the upper of the two. Zero for none.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The ratios as a table: a line for each, and under it what ours and the baseline did. Of times, a value below 1 is
/// faster than the baseline; of rates, a value above 1 is.
#[must_use]
pub fn table(ratios: &[Ratio]) -> String {
    let mut lines = vec![format!(
        "{:<52} {:>5} {:>8} {:>15} {:>9} {:>9} {:>9} {:>6} {:>6} {:>7} {:>7}",
        "scenario: ratio", "of", "value", "spread", "ops/s", "p50 ms", "p99 ms", "stmts", "trips", "WAL B", "commits"
    )];
    for r in ratios {
        let of = match r.measure {
            Measure::Time => "time",
            Measure::Rate => "rate",
        };
        let name = format!("{}: {}", r.scenario, r.ratio);
        let spread = format!("{:.2}-{:.2}", r.spread.0, r.spread.1);
        lines.push(format!("{name:<52} {of:>5} {:>8.2} {spread:>15} {}", r.value, columns(&r.ours)));
        lines.push(format!("{:<52} {:>5} {:>8} {:>15} {}", "", "", "", "baseline", columns(&r.baseline)));
    }
    lines.join("\n")
}

fn columns(f: &Figures) -> String {
    let number = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |v| format!("{v:.digits$}"));
    let costs = f.costs.as_ref();
    format!(
        "{:>9} {:>9.3} {:>9.3} {:>6} {:>6} {:>7} {:>7}",
        number(f.per_second, 0),
        f.p50,
        f.p99,
        number(costs.and_then(|c| c.statements), 1),
        number(costs.and_then(|c| c.round_trips), 2),
        number(costs.map(|c| c.wal_bytes), 0),
        number(costs.map(|c| c.commits), 2),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::drive::Round;

    fn tally(rounds: &[(u64, usize)]) -> Tally {
        let round = |(ms, done): &(u64, usize)| Round {
            window: Duration::from_millis(*ms),
            counted: *done,
            done: *done,
            times: vec![Duration::from_millis(*ms); *done],
        };
        Tally { rounds: rounds.iter().map(round).collect(), costs: None }
    }

    #[test]
    fn a_ratio_of_rates_is_the_median_of_the_rounds_ratios_with_the_least_and_the_greatest() {
        let (ours, baseline) = (tally(&[(100, 10), (100, 40), (100, 20)]), tally(&[(100, 10), (100, 10), (200, 20)]));
        let ratio = Ratio::of_rates(Scenario::HotSku, "to floor", &ours, &baseline);
        assert_eq!((ratio.value, ratio.spread), (2.0, (1.0, 4.0)));
        assert_eq!(ratio.ours.per_second, Some(200.0));
        let share = Ratio::of_shares(Scenario::HotSku, "to floor", &ours, &baseline);
        assert!((share.value - 0.5).abs() < 1e-9, "{}", share.value);
    }

    #[test]
    fn a_line_of_json_has_the_six_names_that_others_read() {
        let ratio = Ratio::of_rates(Scenario::HotSku, "to floor", &tally(&[(100, 10)]), &tally(&[(100, 10)]));
        let line = serde_json::to_value(&ratio).unwrap();
        for name in ["scenario", "ratio", "value", "spread", "ours", "baseline"] {
            assert!(!line[name].is_null(), "{name}");
        }
        assert_eq!(line["ours"]["per_second"], 100.0);
        assert!(table(&[ratio]).contains("hot-sku: to floor"));
    }
}
