//! What stands in for the baselines where they are not built in: nothing, and a word about it.

use std::convert::Infallible;

use super::Rival;
use crate::bench::Bench;
use crate::bench::drive::Round;

/// None whatever the rival: it is not built in.
pub(in crate::bench) async fn play(bench: &Bench<'_>, rival: Rival) -> anyhow::Result<Option<Round>> {
    skip(bench, rival.ratio());
    Ok(None)
}

fn skip(bench: &Bench<'_>, ratio: &str) {
    bench.skip(ratio, "this executable was built without the feature `baselines`");
}

/// A counter in Redis, which there is not.
#[derive(Clone)]
pub(in crate::bench) struct Redis(Infallible);

impl Redis {
    pub(in crate::bench) async fn start(bench: &Bench<'_>, ratio: &str, _: i32) -> anyhow::Result<Option<Self>> {
        skip(bench, ratio);
        Ok(None)
    }

    pub(in crate::bench) async fn take(&self) -> anyhow::Result<bool> {
        match self.0 {}
    }
}
