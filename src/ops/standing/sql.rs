//! How things stand at this moment. Each question is bounded in rows by limits within, and in time by the server.
//! Over all shops they go shop by shop: they are an operator's questions.

use sqlx::PgPool;

use super::{Depth, Stands, Worker};

/// A worker that was seen lately.
pub(super) async fn workers(pool: &PgPool, most: i64) -> Result<Vec<Worker>, sqlx::Error> {
    sqlx::query_as!(
        Worker,
        r#"select w.id as name, w.worker_type as queue, w.layers as release, extract(epoch from now() - w.last_seen)::float8 as "silence!",
                  w.started_at,
                  (select count(*) from (select from apalis.jobs j where j.lock_by = w.id
                      and j.status in ('Queued', 'Running') limit 1001) x) as "running!"
           from apalis.workers w order by w.last_seen desc limit $1"#,
        most
    )
    .fetch_all(pool)
    .await
}

/// The queues of these names.
pub(super) async fn queues(pool: &PgPool, names: &[String]) -> Result<Vec<Depth>, sqlx::Error> {
    sqlx::query_as!(
        Depth,
        r#"select q.name as "queue!",
               (select count(*) from (
                   select from apalis.jobs where job_type = q.name
                      and (status = 'Pending' or (status = 'Failed' and attempts < max_attempts))
                      and run_at <= now() limit 10001) j) as "ready!",
               (select count(*) from (
                   select from apalis.jobs where job_type = q.name
                      and (status = 'Pending' or (status = 'Failed' and attempts < max_attempts))
                      and run_at > now() limit 10001) j) as "later!",
               (select count(*) from (
                   select from apalis.jobs where job_type = q.name and status in ('Queued', 'Running')
                   limit 10001) j) as "running!",
               (select count(*) from (
                   select from apalis.jobs where job_type = q.name and status = 'Killed' limit 10001) j) as "dead!",
               coalesce((select greatest(extract(epoch from now() - run_at), 0)::float8
                   from apalis.jobs where job_type = q.name
                    and (status = 'Pending' or (status = 'Failed' and attempts < max_attempts))
                   order by run_at limit 1), 0) as "oldest!",
               exists (select from apalis.paused_queues p where p.queue = q.name) as "paused!"
           from unnest($1::text[]) with ordinality q (name, position) order by q.position"#,
        names
    )
    .fetch_all(pool)
    .await
}

/// Of one shop, or over all.
pub(super) async fn stands(pool: &PgPool, shop_id: Option<i32>) -> Result<Stands, sqlx::Error> {
    sqlx::query_as!(
        Stands,
        r#"select
               (select count(*) from apalis.workers where last_seen > now() - interval '15 seconds') as "workers!",
               (select coalesce(extract(epoch from now() - min(last_seen)), 0)::float8
                from apalis.workers) as "silence!",
               coalesce(sum(h.lapsing), 0)::int8 as "lapsing!",
               coalesce(max(o.lag), 0)::float8 as "sweep_lag!",
               -- The keys of ticks end with their time, so the last key is the last tick.
               (select extract(epoch from now() - j.done_at)::float8 from apalis.jobs j
                where j.job_type = 'housekeeping' and j.idempotency_key > 'sweep:' and j.idempotency_key < 'sweep:9'
                  and j.status = 'Done'
                order by j.idempotency_key desc limit 1) as swept,
               coalesce(max(p.age), 0)::float8 as "placed_oldest!",
               coalesce(sum(e.waiting), 0)::int8 as "payments!",
               coalesce(max(f.age), 0)::float8 as "payments_oldest!",
               coalesce(sum(t.late), 0)::int8 as "late!",
               coalesce(sum(t.mismatch), 0)::int8 as "mismatch!",
               coalesce(sum(t.refund_due), 0)::int8 as "refund_due!",
               coalesce(sum(u.short), 0)::int8 as "shortfalls!"
           from onehold.shops s
           left join lateral (select count(*) as lapsing from (
               select from onehold.reservations r where r.shop_id = s.id and r.state = 'held'
                  and r.expires_at between now() and now() + interval '5 minutes' limit 10001) x) h on true
           left join lateral (select greatest(extract(epoch from now() - r.expires_at), 0) as lag
               from onehold.reservations r where r.shop_id = s.id and r.state = 'held'
               order by r.expires_at limit 1) o on true
           left join lateral (select extract(epoch from now() - d.placed_at) as age
               from onehold.orders d where d.shop_id = s.id and d.status = 'placed' order by d.id limit 1) p on true
           left join lateral (select count(*) as waiting from (
               select from onehold.payment_events v where v.shop_id = s.id and v.state = 'pending'
               limit 1001) x) e on true
           left join lateral (select extract(epoch from now() - v.received_at) as age
               from onehold.payment_events v where v.shop_id = s.id and v.state = 'pending'
               order by v.received_at limit 1) f on true
           left join lateral (select count(*) filter (where x.payment_state = 'late') as late,
                   count(*) filter (where x.payment_state = 'mismatch') as mismatch,
                   count(*) filter (where x.payment_state = 'refund_due') as refund_due
               from (select w.payment_state from onehold.orders w where w.shop_id = s.id
                        and w.payment_state in ('late', 'mismatch', 'refund_due') limit 1001) x) t on true
           left join lateral (select count(*) as short from (
               select from onehold.stock_shortfalls l where l.shop_id = s.id and l.cleared_at is null
               limit 1001) x) u on true
           where $1::int is null or s.id = $1"#,
        shop_id
    )
    .fetch_one(pool)
    .await
}
