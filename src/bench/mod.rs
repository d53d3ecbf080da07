//! Measuring this installation beside what it is compared with, in one run: absolute times say more about
//! the machine than about the code, ratios say more about the code.

mod assets;
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
}

impl Scenario {
    /// Every scenario.
    pub const ALL: [Self; 2] = [Self::Idle, Self::Assets];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Assets => "assets",
        }
    }
}

/// One comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// The scenario.
    pub scenario: &'static str,
    /// What is compared, in short and stable words.
    pub ratio: &'static str,
    /// The ratio of the medians.
    pub value: f64,
    /// The ratio at the quartiles: (ours p25 / baseline p25, ours p75 / baseline p75).
    pub spread: (f64, f64),
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
            value: ours.p50 / baseline.p50,
            spread: (ours.p25 / baseline.p25, ours.p75 / baseline.p75),
            ours,
            baseline,
        }
    }
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
    }
}

/// The ratios as a table, times in milliseconds.
#[must_use]
pub fn table(ratios: &[Ratio]) -> String {
    let mut lines = vec![format!(
        "{:9} {:44} {:>6} {:>13}  {:>24}  {:>24}",
        "scenario", "ratio", "value", "spread", "ours p50/p99/max ms", "baseline p50/p99/max ms"
    )];
    for r in ratios {
        let times = |d: &Distribution| format!("{:.2}/{:.2}/{:.2}", d.p50, d.p99, d.max);
        let spread = format!("{:.2}-{:.2}", r.spread.0, r.spread.1);
        lines.push(format!(
            "{:9} {:44} {:>6.2} {:>13}  {:>24}  {:>24}",
            r.scenario,
            r.ratio,
            r.value,
            spread,
            times(&r.ours),
            times(&r.baseline)
        ));
    }
    lines.join("\n")
}
