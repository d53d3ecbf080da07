//! Which work a job of each queue is: the one place where jobs meet the rooms that do them.

use std::sync::Arc;

use anyhow::anyhow;
use onehold::allocator::{Combiner, Outcome};
use onehold::convert::{Applied, Converter};
use onehold::db::Db;
use onehold::ops::minutes;
use onehold::queue::catalogue::{
    ApplyPayment, CONVERT, HOUSEKEEPING, Housekeeping, REFILL, RESERVE, RefillPool, ReserveOrder, Task,
};
use onehold::queue::{self, Delivery, Handler, JobError, decode};
use onehold::stock::pools;
use onehold::sweep;
use onehold::traces;
use tracing::{Instrument as _, Span};

/// Runs every job of the catalogue.
///
/// Safe to repeat: each of the works below is, and says so where it stands.
pub(crate) fn handler(db: Db) -> Handler {
    let (combiner, converter) = (Combiner::start(&db), Converter::start(&db));
    Arc::new(move |delivery| {
        let (db, combiner, converter) = (db.clone(), combiner.clone(), converter.clone());
        Box::pin(async move {
            let span = span(&db, &delivery).await;
            let ended = run(&db, &combiner, &converter, &delivery).instrument(span.clone()).await;
            if ended.is_err() {
                traces::failed(&span);
            }
            ended
        })
    })
}

/// The job's part of the trace of what put it in.
async fn span(db: &Db, delivery: &Delivery) -> Span {
    if !traces::on() {
        return Span::none();
    }
    let follows = match delivery.queue {
        q if q == RESERVE.name => match decode::<ReserveOrder>(delivery) {
            Ok(job) => traces::of_order(db.pool(), job.shop, job.order).await,
            Err(_) => None,
        },
        q if q == CONVERT.name => match decode::<ApplyPayment>(delivery) {
            Ok(job) => traces::of_payment(db.pool(), job.shop, &job.provider, &job.event).await,
            Err(_) => None,
        },
        _ => None,
    };
    traces::processing(delivery.queue, &delivery.id, delivery.attempt, follows.as_deref())
}

async fn run(db: &Db, combiner: &Combiner, converter: &Converter, delivery: &Delivery) -> Result<(), JobError> {
    match delivery.queue {
        q if q == RESERVE.name => reserve(combiner, decode(delivery)?).await,
        q if q == CONVERT.name => apply(converter, decode(delivery)?).await,
        q if q == REFILL.name => refill(db, decode(delivery)?).await,
        q if q == HOUSEKEEPING.name => keep_house(db, decode(delivery)?).await,
        other => Err(JobError::Dead(anyhow!("no work is known for the queue {other}"))),
    }
}

async fn reserve(combiner: &Combiner, job: ReserveOrder) -> Result<(), JobError> {
    let began = std::time::Instant::now();
    let outcome = combiner.run(job.shop, job.order).await?;
    let took_ms = began.elapsed().as_millis();
    match outcome {
        Outcome::Reserved => {
            decided("reserved", "none");
            tracing::info!(shop = job.shop, order = %job.order, took_ms, "reserved");
        }
        Outcome::Refused(refusal) => {
            decided("refused", refusal.kind.code());
            tracing::info!(shop = job.shop, order = %job.order, took_ms, kind = refusal.kind.code(), "refused");
        }
        Outcome::Waiting => tracing::info!(shop = job.shop, order = %job.order, took_ms, "waits for stock"),
        Outcome::AlreadyDecided => tracing::debug!(order = %job.order, "decided before"),
        Outcome::NoSuchOrder => return Err(JobError::Dead(anyhow!("there is no order {}", job.order))),
    }
    Ok(())
}

fn decided(outcome: &'static str, kind: &'static str) {
    metrics::counter!("onehold_decisions_total", "outcome" => outcome, "kind" => kind).increment(1);
}

async fn apply(converter: &Converter, job: ApplyPayment) -> Result<(), JobError> {
    let began = std::time::Instant::now();
    let applied = converter.apply(job.shop, &job.provider, &job.event).await?;
    if applied == Applied::NoSuchEvent {
        return Err(JobError::Dead(anyhow!("there is no {} event {}", job.provider, job.event)));
    }
    let outcome = match applied {
        Applied::Converted => "converted",
        Applied::Unchanged | Applied::AlreadySettled | Applied::NoSuchEvent => "unchanged",
        Applied::RefundDue => "refund_due",
        Applied::Mismatch => "mismatch",
        Applied::Failed => "failed",
        Applied::Refunded => "refunded",
        Applied::Disputed => "disputed",
        Applied::Abandoned => "abandoned",
        Applied::Waits => "waits",
    };
    metrics::counter!("onehold_payments_total", "outcome" => outcome).increment(1);
    let took_ms = began.elapsed().as_millis();
    tracing::info!(shop = job.shop, provider = job.provider, event = job.event, took_ms, ?applied, "payment event");
    Ok(())
}

async fn refill(db: &Db, job: RefillPool) -> Result<(), JobError> {
    let put = pools::refill(db, job.shop, &job.sku, &job.location).await?;
    if put > 0 {
        tracing::debug!(shop = job.shop, sku = job.sku, location = job.location, put, "refilled");
    }
    Ok(())
}

async fn keep_house(db: &Db, job: Housekeeping) -> Result<(), JobError> {
    match job.task {
        Task::Sweep => {
            let expired = sweep::sweep(db).await?;
            metrics::counter!("onehold_holds_expired_total").increment(expired);
        }
        Task::Requeue => sweep::requeue(db).await.map(|_| ())?,
        Task::RollUp => {
            // All are done, whatever becomes of the others.
            let (rolled, counted) = (sweep::roll_up(db).await, minutes::count(db).await);
            let forgotten = traces::forget(db.pool()).await;
            rolled?;
            counted?;
            forgotten?;
        }
        Task::Prune => queue::prune(db).await.map(|_| ())?,
    }
    Ok(())
}
