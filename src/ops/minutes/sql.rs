//! Statements on the minutes.

use chrono::{DateTime, Utc};
use sqlx::PgPool;

use super::Stretch;

/// The minutes of the last `most` that are over and that nobody has counted. Every counted minute has a row of the
/// kind `counted` under the first shop, so that a quiet one is not counted again and again.
pub(super) async fn uncounted(pool: &PgPool, most: i64) -> Result<Vec<DateTime<Utc>>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select m as "minute!"
           from generate_series(date_trunc('minute', now() - make_interval(mins => $1::int)),
                                date_trunc('minute', now() - interval '90 seconds'), '1 minute') m
           where not exists (select from onehold.minutes c
                             where c.shop_id = (select min(id) from onehold.shops)
                               and c.minute = m and c.kind = 'counted')
           order by m"#,
        i32::try_from(most).unwrap_or(i32::MAX)
    )
    .fetch_all(pool)
    .await
}

/// Counts one minute, of every shop.
pub(super) async fn count(pool: &PgPool, minute: DateTime<Utc>) -> Result<u64, sqlx::Error> {
    // happened: by the block-range index on the time. The id of an order is a UUIDv7 and says when it was placed,
    // to the millisecond, so that no order is read.
    sqlx::query!(
        r#"with happened as (
               select shop_id, at,
                      case when kind = 'refused' then 'refused:' || coalesce(detail->>'kind', '?') else kind end as kind,
                      case when substr(order_id::text, 15, 1) = '7' then
                          extract(epoch from at)::float8
                          - ('x' || lpad(left(replace(order_id::text, '-', ''), 12), 16, '0'))::bit(64)::bigint
                            / 1000.0::float8 end as took
               from onehold.order_events
               where at >= $1 and at < $1 + interval '1 minute'
           ), counted as (
               select shop_id, kind, count(*) as n,
                      percentile_cont(0.5) within group (order by greatest(took, 0)) as p50,
                      percentile_cont(0.99) within group (order by greatest(took, 0)) as p99
               from happened group by shop_id, kind
               union all
               select min(id), 'counted', 1, null, null from onehold.shops
           )
           insert into onehold.minutes (shop_id, minute, kind, n, p50, p99)
           select shop_id, $1, kind, n, p50, p99 from counted
           on conflict (shop_id, minute, kind) do update
               set n = excluded.n, p50 = excluded.p50, p99 = excluded.p99"#,
        minute
    )
    .execute(pool)
    .await
    .map(|done| done.rows_affected())
}

/// Removes what is older than a week, a bounded number of rows at a time.
pub(super) async fn forget(pool: &PgPool) -> Result<u64, sqlx::Error> {
    sqlx::query!(
        "delete from onehold.minutes m using (
             select x.shop_id, x.minute, x.kind from onehold.shops s
             cross join lateral (select shop_id, minute, kind from onehold.minutes
                                 where shop_id = s.id and minute < now() - interval '7 days'
                                 order by minute limit 1000) x
             limit 10000) old
         where m.shop_id = old.shop_id and m.minute = old.minute and m.kind = old.kind"
    )
    .execute(pool)
    .await
    .map(|done| done.rows_affected())
}

/// The shop's last `back` seconds in stretches of `each`.
pub(super) async fn stretches(pool: &PgPool, shop_id: i32, each: f64, back: f64) -> Result<Vec<Stretch>, sqlx::Error> {
    sqlx::query_as!(
        Stretch,
        r#"select date_bin(make_interval(secs => $2), minute, 'epoch'::timestamptz) as "from!", kind,
                  sum(n)::int8 as "n!", max(p50) as p50, max(p99) as p99
           from onehold.minutes
           where shop_id = $1 and minute >= now() - make_interval(secs => $3) and kind <> 'counted'
           group by 1, kind order by 1, kind"#,
        shop_id,
        each,
        back
    )
    .fetch_all(pool)
    .await
}
