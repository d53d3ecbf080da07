//! Measuring this installation beside what it is compared with, in one run: absolute times say more about
//! the machine than about the code, ratios say more about the code.
//!
//! Each scenario plays its sides in turn, round by round (`drive`), and afterwards checks that what a side says it
//! has done is there: a broken run fails rather than print a fast number.

mod assets;
mod baselines;
mod cart;
mod convert;
mod dashboard;
mod drive;
mod end_to_end;
mod growth;
mod hot_asset;
mod hot_sku;
mod idle;
mod many_skus;
mod meter;
mod queue;
mod ratio;
mod sql;
mod sweep;

use std::time::Duration;

use anyhow::Context as _;

use crate::db::Db;
use crate::shops::{self, MAIN};
pub use growth::{Curve, Point, draw};
pub use ratio::{Costs, Figures, Measure, Ratio, table};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// From a POST to `reserved` on an idle system, in fsyncs; one order alone by the combiner and without.
    Idle,
    /// Sixty-four buyers at once on one SKU, beside what such a shop is usually built on.
    HotSku,
    /// Sixty-four buyers at once on ten thousand SKUs.
    ManySkus,
    /// Orders of 1, 10 and 50 lines.
    Cart,
    /// Sixty-four buyers at once on ten machines: most must be refused.
    HotAsset,
    /// One reservation among up to a million assets, most of them sold or held.
    Assets,
    /// Payments that are applied, sixty-four at once.
    Convert,
    /// Buyers beside the sweep of 100,000 lapsed holds.
    Sweep,
    /// Jobs that do nothing.
    Queue,
    /// An order's whole way through the fleet, sixty-four at once.
    EndToEnd,
    /// The same with an operator at the dashboard beside it.
    Dashboard,
    /// One reservation as an installation grows: what the curves are drawn from.
    Growth,
}

impl Scenario {
    /// Every scenario that compares, in the order of a whole run; [`curves`] are apart.
    pub const ALL: [Self; 11] = [
        Self::Idle,
        Self::HotSku,
        Self::ManySkus,
        Self::Cart,
        Self::HotAsset,
        Self::Assets,
        Self::Convert,
        Self::Sweep,
        Self::Queue,
        Self::EndToEnd,
        Self::Dashboard,
    ];

    /// Whether worker processes belong to the measured fleet.
    #[must_use]
    pub fn wants_workers(self) -> bool {
        match self {
            Self::Idle | Self::EndToEnd | Self::Dashboard | Self::Growth => true,
            Self::HotSku
            | Self::ManySkus
            | Self::Cart
            | Self::HotAsset
            | Self::Assets
            | Self::Convert
            | Self::Sweep
            | Self::Queue => false,
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
            Self::HotSku => "hot-sku",
            Self::ManySkus => "many-skus",
            Self::Cart => "cart",
            Self::HotAsset => "hot-asset",
            Self::Assets => "assets",
            Self::Convert => "convert",
            Self::Sweep => "sweep",
            Self::Queue => "queue",
            Self::EndToEnd => "end-to-end",
            Self::Dashboard => "dashboard",
            Self::Growth => "growth",
        }
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// How often each side plays.
    pub rounds: usize,
    /// How long each side plays in each round, at most.
    pub round: Duration,
    /// What the sizes of the scenarios are divided by.
    pub divisor: usize,
}

impl Effort {
    /// What a number that is quoted needs; every scenario together takes under a quarter of an hour.
    pub const FULL: Self = Self { rounds: 5, round: Duration::from_secs(2), divisor: 1 };
    /// Only that everything runs and leaves behind what it should; its numbers say nothing.
    pub const EXERCISE: Self = Self { rounds: 1, round: Duration::from_millis(250), divisor: 50 };

    /// A size of a scenario, made smaller by the divisor, but not below `least`.
    fn size(&self, full: usize, least: usize) -> i32 {
        i32::try_from((full / self.divisor).max(least)).unwrap_or(i32::MAX)
    }
}

/// What the scenarios run on: a whole fleet with a throwaway database.
#[derive(Debug)]
pub struct Fleet {
    /// Where the web process listens.
    pub base: String,
    /// An API key of the shop `main` with every scope.
    pub key: String,
    /// The Standard Webhooks secret of the shop `main`.
    pub webhook_secret: String,
    /// Its database, to which it connects as a superuser.
    pub db: Db,
    /// Whether the server can count statements: see [`prepare`].
    pub statements: bool,
    /// A directory on the database's disk; none where the database is elsewhere.
    pub data_dir: Option<std::path::PathBuf>,
}

/// What a scenario tells while it runs.
#[derive(Clone, Debug)]
pub enum Progress {
    /// What is going on; of use until the next.
    Step(String),
    /// A comparison that is left out, and why; of use as long as the results.
    Skipped(String),
}

/// What a scenario has at hand.
struct Bench<'a> {
    fleet: &'a Fleet,
    effort: Effort,
    shop_id: i32,
    scenario: Scenario,
    progress: &'a (dyn Fn(&Progress) + Sync),
}

impl Bench<'_> {
    /// Tells what is going on.
    fn say(&self, what: &str) {
        (self.progress)(&Progress::Step(format!("{}: {what}", self.scenario.name())));
    }

    /// Tells that a comparison is left out, and why.
    fn skip(&self, ratio: &str, why: &str) {
        (self.progress)(&Progress::Skipped(format!("{}: {ratio}: skipped, as {why}", self.scenario.name())));
    }
}

/// Has a throwaway server load what counts statements; it does so at its next start. False where the server does not
/// have it, and then nothing is changed.
///
/// # Errors
/// A database that refuses.
pub async fn preload(db: &Db) -> anyhow::Result<bool> {
    Ok(meter::sql::preload_statements(db.pool()).await?)
}

/// Makes the counting of statements ready on a server that was started again after [`preload`].
///
/// # Errors
/// A database that refuses.
pub async fn prepare(db: &Db) -> anyhow::Result<()> {
    Ok(meter::sql::prepare_statements(db.pool()).await?)
}

/// Refuses a database that somebody uses: the bench fills the shop `main`.
///
/// # Errors
/// Orders or assets that are there, or a database that refuses.
pub async fn check_unused(db: &Db) -> anyhow::Result<()> {
    anyhow::ensure!(
        !sql::is_used(db.pool()).await?,
        "there are orders or assets in this database: it is not measured on"
    );
    Ok(())
}

/// Runs one scenario; `progress` is told what is going on.
///
/// # Errors
/// A fleet that does not answer, a database that refuses, or a scenario that left behind what it should not.
pub async fn run(
    scenario: Scenario,
    fleet: &Fleet,
    effort: Effort,
    progress: &(dyn Fn(&Progress) + Sync),
) -> anyhow::Result<Vec<Ratio>> {
    let bench = bench(scenario, fleet, effort, progress).await?;
    let ratios = match scenario {
        Scenario::Idle => idle::run(&bench).await,
        Scenario::HotSku => hot_sku::run(&bench).await,
        Scenario::ManySkus => many_skus::run(&bench).await,
        Scenario::Cart => cart::run(&bench).await,
        Scenario::HotAsset => hot_asset::run(&bench).await,
        Scenario::Assets => assets::run(&bench).await,
        Scenario::Convert => convert::run(&bench).await,
        Scenario::Sweep => sweep::run(&bench).await,
        Scenario::Queue => queue::run(&bench).await,
        Scenario::EndToEnd => end_to_end::run(&bench).await,
        Scenario::Dashboard => dashboard::run(&bench).await,
        Scenario::Growth => growth::run(&bench).await.map(|curves| growth_of(&curves)),
    };
    ratios.with_context(|| format!("the scenario {}", scenario.name()))
}

/// Measures what the curves are drawn from: see [`draw`] and [`growth_of`].
///
/// # Errors
/// As [`run`].
pub async fn curves(
    fleet: &Fleet,
    effort: Effort,
    progress: &(dyn Fn(&Progress) + Sync),
) -> anyhow::Result<Vec<Curve>> {
    let bench = bench(Scenario::Growth, fleet, effort, progress).await?;
    growth::run(&bench).await.context("the curves")
}

/// For each curve, the time at its largest size to that at its smallest.
#[must_use]
pub fn growth_of(curves: &[Curve]) -> Vec<Ratio> {
    curves.iter().filter_map(Curve::ratio).collect()
}

async fn bench<'a>(
    scenario: Scenario,
    fleet: &'a Fleet,
    effort: Effort,
    progress: &'a (dyn Fn(&Progress) + Sync),
) -> anyhow::Result<Bench<'a>> {
    let shop = shops::find(&fleet.db, MAIN).await?.context("there is no shop main")?;
    Ok(Bench { fleet, effort, shop_id: shop.id, scenario, progress })
}
