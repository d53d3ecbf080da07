//! What others would use, and what is built for that alone: the cargo feature `baselines`. Without it every row that
//! needs it is skipped, and the bench says so.

#[cfg(not(feature = "baselines"))]
mod absent;
#[cfg(feature = "baselines")]
mod apalis;
#[cfg(feature = "baselines")]
mod graphile;
#[cfg(feature = "baselines")]
mod redis;
#[cfg(feature = "baselines")]
mod sql;

#[cfg(not(feature = "baselines"))]
pub(super) use absent::{Redis, play};
#[cfg(feature = "baselines")]
pub(super) use present::play;
#[cfg(feature = "baselines")]
pub(super) use redis::Redis;

/// Queues that ours is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rival {
    /// The crate graphile_worker, as quick as its settings make it: as many jobs at once as ours, a local queue, and
    /// completions in batches.
    GraphileWorker,
    /// apalis-postgres with its defaults.
    Apalis,
}

impl Rival {
    pub(super) const ALL: [Self; 2] = [Self::GraphileWorker, Self::Apalis];

    /// What the comparison with it is called.
    pub(super) fn ratio(self) -> &'static str {
        match self {
            Self::GraphileWorker => "to graphile_worker",
            Self::Apalis => "to apalis with its defaults",
        }
    }
}

#[cfg(feature = "baselines")]
mod present {
    use super::{Rival, apalis, graphile};
    use crate::bench::drive::Round;
    use crate::bench::{Bench, queue};

    /// What a rival does in one round; none where it is not built in.
    pub(in crate::bench) async fn play(bench: &Bench<'_>, rival: Rival) -> anyhow::Result<Option<Round>> {
        match rival {
            Rival::GraphileWorker => queue::play::<graphile::GraphileWorker>(bench).await.map(Some),
            Rival::Apalis => queue::play::<apalis::Apalis>(bench).await.map(Some),
        }
    }
}
