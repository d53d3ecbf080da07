//! The questions behind the gauges. Each is bounded in rows by limits within, and in time by the server. They go
//! over all shops, shop by shop: they are an operator's questions.

use sqlx::PgPool;

/// A queue at this moment.
pub(super) struct Depth {
    pub(super) queue: String,
    pub(super) ready: i64,
    pub(super) later: i64,
    pub(super) running: i64,
    pub(super) dead: i64,
    /// Seconds.
    pub(super) oldest: f64,
    pub(super) paused: bool,
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

/// What stands where.
pub(super) struct Stands {
    pub(super) workers: i64,
    pub(super) silence: f64,
    pub(super) lapsing: i64,
    pub(super) sweep_lag: f64,
    pub(super) placed_oldest: f64,
    pub(super) payments: i64,
    pub(super) payments_oldest: f64,
    pub(super) late: i64,
    pub(super) mismatch: i64,
    pub(super) refund_due: i64,
    pub(super) shortfalls: i64,
}

/// Over all shops.
pub(super) async fn stands(pool: &PgPool) -> Result<Stands, sqlx::Error> {
    sqlx::query_as!(
        Stands,
        r#"select
               (select count(*) from apalis.workers where last_seen > now() - interval '15 seconds') as "workers!",
               (select coalesce(extract(epoch from now() - min(last_seen)), 0)::float8
                from apalis.workers) as "silence!",
               coalesce(sum(h.lapsing), 0)::int8 as "lapsing!",
               coalesce(max(o.lag), 0)::float8 as "sweep_lag!",
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
               limit 1001) x) u on true"#
    )
    .fetch_one(pool)
    .await
}
