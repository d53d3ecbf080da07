//! Measuring this installation beside what it is compared with, in one run: absolute times say more about
//! the machine than about the code, ratios say more about the code.

mod assets;
mod hot_sku;
mod idle;
mod sql;

use std::time::Duration;

use serde::Serialize;

use crate::db::Db;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// From a POST to `reserved` on an idle system, beside one bare commit.
    Idle,
    /// One reservation among many assets, most of them sold or held, beside one among a thousand.
    Assets,
    /// Many buyers at once on one SKU, beside one counter row, a pool that is locked whole, and a bare insert.
    HotSku,
}

impl Scenario {
    /// Every scenario.
    pub const ALL: [Self; 3] = [Self::Idle, Self::Assets, Self::HotSku];

    /// Whether worker processes belong to the measured fleet.
    #[must_use]
    pub fn wants_workers(self) -> bool {
        match self {
            Self::Idle => true,
            Self::Assets | Self::HotSku => false,
        }
    }

    /// The scenario with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Assets => "assets",
            Self::HotSku => "hot-sku",
        }
    }
}

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
    /// What is compared, in short and stable words.
    pub ratio: &'static str,
    /// What `value` compares.
    pub measure: Measure,
    /// The ratio of the medians: of times, or of the rounds' rates.
    pub value: f64,
    /// Of times, the ratio at the quartiles: (ours p25 / baseline p25, ours p75 / baseline p75). Of rates, the
    /// least and the greatest ratio of any round.
    pub spread: (f64, f64),
    /// The median of the rounds' rates, a second: (ours, baseline). Only where rates are compared.
    pub rates: Option<(f64, f64)>,
    /// Ours, in milliseconds.
    pub ours: Distribution,
    /// What it is compared with, in milliseconds.
    pub baseline: Distribution,
}

/// A distribution of times, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Distribution {
    /// How many were measured.
    pub n: usize,
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
}

impl Distribution {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |percent: usize| {
            times
                .get((times.len() * percent / 100).min(times.len().saturating_sub(1)))
                .map_or(0.0, |t| t.as_secs_f64() * 1e3)
        };
        Self { n: times.len(), p25: at(25), p50: at(50), p75: at(75), p99: at(99), max: at(100) }
    }
}

impl Ratio {
    fn of(scenario: Scenario, ratio: &'static str, ours: Vec<Duration>, baseline: Vec<Duration>) -> Self {
        let (ours, baseline) = (Distribution::of(ours), Distribution::of(baseline));
        Self {
            scenario: scenario.name(),
            ratio,
            measure: Measure::Time,
            value: ours.p50 / baseline.p50,
            spread: (ours.p25 / baseline.p25, ours.p75 / baseline.p75),
            rates: None,
            ours,
            baseline,
        }
    }

    /// Compares rates, round by round.
    fn of_rates(scenario: Scenario, ratio: &'static str, ours: &Throughput, baseline: &Throughput) -> Self {
        let rounds: Vec<f64> = ours.rates.iter().zip(&baseline.rates).map(|(ours, other)| ours / other).collect();
        Self {
            scenario: scenario.name(),
            ratio,
            measure: Measure::Rate,
            value: median(&rounds),
            spread: (rounds.iter().copied().fold(f64::INFINITY, f64::min), rounds.iter().copied().fold(0.0, f64::max)),
            rates: Some((median(&ours.rates), median(&baseline.rates))),
            ours: ours.times,
            baseline: baseline.times,
        }
    }

    /// How much longer than usual the slow ones take: the 99th percentile to the median.
    fn of_tail(scenario: Scenario, ratio: &'static str, ours: &Throughput) -> Self {
        let times = ours.times;
        let value = times.p99 / times.p50;
        let spread = (times.p75 / times.p50, times.max / times.p50);
        let (scenario, measure) = (scenario.name(), Measure::Time);
        Self { scenario, ratio, measure, value, spread, rates: None, ours: times, baseline: times }
    }
}

/// What one side did in several rounds.
struct Throughput {
    /// Of each round, a second.
    rates: Vec<f64>,
    /// Of all rounds together.
    times: Distribution,
}

impl Throughput {
    fn of(rates: Vec<f64>, times: Vec<Duration>) -> Self {
        Self { rates, times: Distribution::of(times) }
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// What the scenarios run on: a whole fleet with a throwaway database.
#[derive(Debug)]
pub struct Fleet {
    /// Where the web process listens.
    pub base: String,
    /// An API key of the shop `main` with every scope.
    pub key: String,
    /// Its database.
    pub db: Db,
}

/// Runs one scenario; `progress` is told what is going on.
///
/// # Errors
/// A fleet that does not answer, or a database that refuses.
pub async fn run(scenario: Scenario, fleet: &Fleet, progress: impl Fn(&str)) -> anyhow::Result<Vec<Ratio>> {
    match scenario {
        Scenario::Idle => idle::run(fleet, &progress).await,
        Scenario::Assets => assets::run(fleet, &progress).await,
        Scenario::HotSku => hot_sku::run(fleet, &progress).await,
    }
}

/// The ratios as a table, times in milliseconds. Of times, a value below 1 is faster than the baseline; of
/// rates, a value above 1 is.
#[must_use]
pub fn table(ratios: &[Ratio]) -> String {
    let mut lines = vec![format!(
        "{:9} {:44} {:>5} {:>6} {:>13}  {:>24}  {:>24}  {:>15}",
        "scenario",
        "ratio",
        "of",
        "value",
        "spread",
        "ours p50/p99/max ms",
        "baseline p50/p99/max ms",
        "ours/baseline/s"
    )];
    for r in ratios {
        let times = |d: &Distribution| format!("{:.2}/{:.2}/{:.2}", d.p50, d.p99, d.max);
        let of = match r.measure {
            Measure::Time => "time",
            Measure::Rate => "rate",
        };
        lines.push(format!(
            "{:9} {:44} {:>5} {:>6.2} {:>13}  {:>24}  {:>24}  {:>15}",
            r.scenario,
            r.ratio,
            of,
            r.value,
            format!("{:.2}-{:.2}", r.spread.0, r.spread.1),
            times(&r.ours),
            times(&r.baseline),
            r.rates.map_or(String::new(), |(ours, baseline)| format!("{ours:.0}/{baseline:.0}")),
        ));
    }
    lines.join("\n")
}
