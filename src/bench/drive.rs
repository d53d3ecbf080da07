//! The driver: so many clients do one operation after the other until the time is up; and the contest of several
//! sides, in turn, round by round.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures_util::future::BoxFuture;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::{Barrier, Mutex};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::hot_sku::BUYERS;
use super::meter::Meter;
use super::ratio::Costs;
use super::{Bench, sql};
use crate::allocator::{Combiner, Kind, Outcome};
use crate::db::Db;

/// Does the operation with this number, counted from 0.
pub(super) type Act = Box<dyn FnMut(usize) -> BoxFuture<'static, anyhow::Result<Did>> + Send>;

/// What an operation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Did {
    /// So many: more than one where it does a batch.
    Done(usize),
    /// Nothing, for good: an honest no. It is not counted, and its time is lost.
    Refused,
    /// Nothing yet: it is tried again.
    Again,
}

/// Of the time of a round, the part whose operations are not counted: plans and connections are made in it.
const WARM_UP: u32 = 10;

/// A side that is ready to begin.
pub(super) struct Party {
    /// Each acts by itself, at once with the others.
    pub(super) clients: Vec<Act>,
    /// How many operations there are to do.
    pub(super) operations: usize,
    /// The orders it works on, for the check afterwards.
    pub(super) orders: Arc<Vec<Uuid>>,
    /// What is closed afterwards.
    pub(super) db: Option<Db>,
}

/// What one side did in one round.
#[derive(Clone, Debug)]
pub(super) struct Round {
    /// The time in which operations were counted.
    pub(super) window: Duration,
    /// How many ended in it.
    pub(super) counted: usize,
    /// How many were done in all, also while warming up.
    pub(super) done: usize,
    /// Of each operation in the window.
    pub(super) times: Vec<Duration>,
}

/// What one side did in all rounds.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) rounds: Vec<Round>,
    pub(super) costs: Option<Costs>,
}

impl Tally {
    /// Of each round, in operations a second.
    pub(super) fn rates(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.counted as f64 / round.window.as_secs_f64()).collect()
    }
}

/// Lets every client of a party act until `limit` or until all is done.
///
/// # Errors
/// What any of them met, and a party that did nothing.
pub(super) async fn drive(party: Party, limit: Duration) -> anyhow::Result<Round> {
    let Party { clients, operations, db, .. } = party;
    let next = Arc::new(AtomicUsize::new(0));
    let start = Arc::new(Barrier::new(clients.len() + 1));
    let mut running = JoinSet::new();
    for client in clients {
        let (next, start) = (next.clone(), start.clone());
        running.spawn(async move {
            start.wait().await;
            one_client(client, operations, &next, limit).await
        });
    }
    start.wait().await;
    let began = Instant::now();
    let mut acts = Vec::new();
    while let Some(client) = running.join_next().await {
        acts.extend(client??);
    }
    let took = began.elapsed();
    if let Some(db) = db {
        db.pool().close().await;
    }
    let done = acts.iter().map(|act| act.done).sum();
    ensure!(done > 0, "nothing was done");
    // Where everything was done before it was warm, all of it counts.
    let warm = limit / WARM_UP;
    let warm = if acts.iter().any(|act| act.from >= warm) { warm } else { Duration::ZERO };
    acts.retain(|act| act.from >= warm);
    let counted = acts.iter().map(|act| act.done).sum();
    Ok(Round { window: took - warm, counted, done, times: acts.into_iter().map(|act| act.took).collect() })
}

struct Acted {
    from: Duration,
    took: Duration,
    done: usize,
}

async fn one_client(
    mut act: Act,
    operations: usize,
    next: &AtomicUsize,
    limit: Duration,
) -> anyhow::Result<Vec<Acted>> {
    let began = Instant::now();
    let mut acts = Vec::new();
    while began.elapsed() < limit {
        let n = next.fetch_add(1, Ordering::Relaxed);
        if n >= operations {
            break;
        }
        let from = began.elapsed();
        loop {
            match act(n).await? {
                Did::Done(done) => {
                    acts.push(Acted { from, took: began.elapsed() - from, done });
                    break;
                }
                Did::Refused => break,
                Did::Again if began.elapsed() >= limit => break,
                Did::Again => {}
            }
        }
    }
    Ok(acts)
}

/// Several sides that do the same in different ways.
pub(super) trait Contest {
    /// Who takes part.
    type Side: Copy + Debug;

    /// Whether what an operation costs is metered too.
    const METERED: bool = true;
    /// How long the meter waits for sessions that stay: they tell what they counted within so much time.
    const LINGER: Duration = Duration::ZERO;

    /// Makes a side ready; nothing of it is timed.
    async fn party(&self, bench: &Bench<'_>, side: Self::Side) -> anyhow::Result<Party>;

    /// Checks that a side that says it has done so many operations has left behind what it should.
    async fn check(&self, bench: &Bench<'_>, side: Self::Side, orders: &[Uuid], done: usize) -> anyhow::Result<()>;
}

/// Lets each side play each round, in an order that goes round with the rounds, and once more under the meter.
pub(super) async fn alternate<C: Contest>(
    bench: &Bench<'_>,
    contest: &C,
    sides: &[C::Side],
) -> anyhow::Result<Vec<Tally>> {
    let mut tallies = vec![Tally::default(); sides.len()];
    for round in 0..bench.effort.rounds {
        for turn in 0..sides.len() {
            let at = (turn + round) % sides.len();
            bench.say(&format!("round {} of {}: {:?}", round + 1, bench.effort.rounds, sides[at]));
            tallies[at].rounds.push(play(bench, contest, sides[at], bench.effort.round, None).await?.0);
        }
    }
    for (side, tally) in sides.iter().zip(&mut tallies).filter(|_| C::METERED) {
        bench.say(&format!("what one operation costs: {side:?}"));
        let meter = Meter::new(bench.fleet).await?;
        tally.costs = play(bench, contest, *side, bench.effort.round, Some(&meter)).await?.1;
    }
    Ok(tallies)
}

async fn play<C: Contest>(
    bench: &Bench<'_>,
    contest: &C,
    side: C::Side,
    limit: Duration,
    meter: Option<&Meter<'_>>,
) -> anyhow::Result<(Round, Option<Costs>)> {
    let party = contest.party(bench, side).await?;
    let orders = Arc::clone(&party.orders);
    let begun = match meter {
        Some(meter) => Some((meter, meter.begin().await?)),
        // Every round begins behind a checkpoint: each side pays for the same full-page images.
        None => {
            sql::checkpoint(bench.fleet.db.pool()).await?;
            None
        }
    };
    let round = drive(party, limit).await.with_context(|| format!("{side:?}"))?;
    let costs = match begun {
        Some((meter, begun)) => {
            // An exercise quotes no number, and does not wait for one.
            tokio::time::sleep(C::LINGER.min(limit * 4)).await;
            Some(meter.end(begun, round.done).await?)
        }
        None => None,
    };
    contest.check(bench, side, &orders, round.done).await.with_context(|| format!("checking what {side:?} left"))?;
    Ok((round, costs))
}

/// Clients that hand one order after the other to a combiner, as the jobs of a worker do, and count what
/// `fits`. Anything else but a contended refusal is a fault: those are honest where many are at once.
pub(super) fn by_combiner(
    combiner: &Combiner,
    shop_id: i32,
    orders: &Arc<Vec<Uuid>>,
    clients: usize,
    fits: fn(&Outcome) -> bool,
) -> Vec<Act> {
    let client = |_| -> Act {
        let (combiner, orders) = (combiner.clone(), Arc::clone(orders));
        Box::new(move |n| {
            let (combiner, order) = (combiner.clone(), orders[n]);
            Box::pin(async move {
                match combiner.run(shop_id, order).await? {
                    outcome if fits(&outcome) => Ok(Did::Done(1)),
                    Outcome::Refused(no) if no.kind == Kind::Contended => Ok(Did::Refused),
                    outcome => anyhow::bail!("order {n} came to {outcome:?}"),
                }
            })
        })
    };
    (0..clients).map(client).collect()
}

/// A party that reserves orders by a combiner of its own, on its own connections.
pub(super) async fn combined(
    bench: &Bench<'_>,
    orders: Vec<Uuid>,
    clients: usize,
    fits: fn(&Outcome) -> bool,
) -> anyhow::Result<(Party, Combiner)> {
    let db = connected(bench, clients).await?;
    let (combiner, orders) = (Combiner::start(&db), Arc::new(orders));
    let clients = by_combiner(&combiner, bench.shop_id, &orders, clients, fits);
    Ok((Party { clients, operations: orders.len(), orders, db: Some(db) }, combiner))
}

/// As many connections as there are clients, all of them open.
pub(super) async fn connected(bench: &Bench<'_>, clients: usize) -> anyhow::Result<Db> {
    let db = Db::connect_with(bench.fleet.db.options().clone(), u32::try_from(clients)?).await?;
    let opening = (0..clients).map(|_| db.pool().acquire());
    // All at once, so that none is used twice.
    futures_util::future::try_join_all(opening).await?;
    Ok(db)
}

/// A session of a baseline's client: bare, without a pool around it.
pub(super) type Session = Arc<Mutex<sqlx::PgConnection>>;

/// So many sessions.
pub(super) async fn sessions(options: &PgConnectOptions, clients: usize) -> anyhow::Result<Vec<Session>> {
    use sqlx::Connection as _;
    let mut sessions = Vec::with_capacity(clients);
    for _ in 0..clients {
        sessions.push(Arc::new(Mutex::new(sqlx::PgConnection::connect_with(options).await?)));
    }
    Ok(sessions)
}

/// The floor: sixty-four sessions insert the reservation's row of one order after the other, and commit it.
pub(super) async fn floor(bench: &Bench<'_>, placed: Vec<Uuid>) -> anyhow::Result<Party> {
    let (orders, shop_id) = (Arc::new(placed), bench.shop_id);
    let client = |session: Session| -> Act {
        let orders = Arc::clone(&orders);
        Box::new(move |n| {
            let (session, order) = (Arc::clone(&session), orders[n]);
            Box::pin(async move {
                let mut session = session.lock().await;
                Ok(Did::Done(sql::bare_reservation(&mut session, shop_id, &[order]).await?))
            })
        })
    };
    let sessions = sessions(bench.fleet.db.options(), BUYERS).await?;
    let clients = sessions.into_iter().map(client).collect();
    Ok(Party { clients, operations: orders.len(), orders, db: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party(clients: usize, operations: usize, act: fn(usize) -> Did) -> Party {
        let client = |_| -> Act { Box::new(move |n| Box::pin(async move { Ok(act(n)) })) };
        Party { clients: (0..clients).map(client).collect(), operations, orders: Arc::default(), db: None }
    }

    #[tokio::test]
    async fn every_operation_is_done_once_and_a_batch_counts_for_all_it_did() {
        let round = drive(party(4, 100, |_| Did::Done(3)), Duration::from_secs(60)).await.unwrap();
        assert_eq!((round.done, round.counted, round.times.len()), (300, 300, 100));
    }

    #[tokio::test]
    async fn a_round_ends_when_its_time_is_up_and_fails_where_nothing_was_done() {
        let stuck = drive(party(2, 100, |_| Did::Again), Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(stuck.to_string(), "nothing was done");
    }
}
