//! Statements on stock, for those who watch.

use sqlx::PgPool;

use super::{Lasting, Movement, Pool, Sessions};

pub(super) async fn pools(
    pool: &PgPool,
    shop_id: i32,
    sku: &str,
    location: &str,
    most: i64,
) -> Result<Vec<Pool>, sqlx::Error> {
    // page: found before any figure is asked for, as each figure adds up a pool's holds.
    sqlx::query_as!(
        Pool,
        r#"with page as materialized (
               select sku, location from onehold.stock_levels
               where shop_id = $1 and (sku, location) > ($2, $3) order by sku, location limit $4
           )
           select p.sku, p.location, f.on_hand as "on_hand!", f.held as "held!", f.pooled as "pooled!",
                  coalesce((select l.units from onehold.stock_shortfalls l where l.shop_id = $1 and l.sku = p.sku
                               and l.location = p.location and l.cleared_at is null), 0)::int8 as "shortfall!"
           from page p cross join lateral onehold.pool_figures($1, p.sku, p.location) f
           order by p.sku, p.location"#,
        shop_id,
        sku,
        location,
        most
    )
    .fetch_all(pool)
    .await
}

pub(super) async fn of_sku(pool: &PgPool, shop_id: i32, sku: &str, most: i64) -> Result<Vec<Pool>, sqlx::Error> {
    sqlx::query_as!(
        Pool,
        r#"with page as materialized (
               select sku, location from onehold.stock_levels
               where shop_id = $1 and sku = $2 order by location limit $3
           )
           select p.sku, p.location, f.on_hand as "on_hand!", f.held as "held!", f.pooled as "pooled!",
                  coalesce((select l.units from onehold.stock_shortfalls l where l.shop_id = $1 and l.sku = p.sku
                               and l.location = p.location and l.cleared_at is null), 0)::int8 as "shortfall!"
           from page p cross join lateral onehold.pool_figures($1, p.sku, p.location) f
           order by p.location"#,
        shop_id,
        sku,
        most
    )
    .fetch_all(pool)
    .await
}

pub(super) async fn sessions(pool: &PgPool) -> Result<Vec<Sessions>, sqlx::Error> {
    // As many rows as there are sessions, which the server bounds.
    sqlx::query_as!(
        Sessions,
        r#"select coalesce(nullif(application_name, ''), '(unnamed)') as "program!", coalesce(state, '?') as "state!",
                  case when state = 'active' then wait_event_type || ': ' || wait_event end as waits_for,
                  count(*) as "n!",
                  coalesce(max(extract(epoch from now() - state_change)), 0)::float8 as "longest!"
           from pg_stat_activity
           where datname = current_database() and pid <> pg_backend_pid()
           group by 1, 2, 3 order by count(*) desc limit 50"#
    )
    .fetch_all(pool)
    .await
}

pub(super) async fn lasting(pool: &PgPool, shop_id: i32, looked_at: i64) -> Result<Vec<Lasting>, sqlx::Error> {
    // recent: the last holds of the shop by the primary key, whose ids are UUIDv7, so that the cost does not grow.
    // pace: what of them was not given back, by category, over the time since the oldest of them.
    sqlx::query_as!(
        Lasting,
        r#"with recent as materialized (
               select asset_id, state, held_at from onehold.reservations where shop_id = $1 order by id desc limit $2
           ), pace as (
               select a.category, count(*) as n,
                      (select greatest(extract(epoch from now() - min(held_at)), 60) from recent)::float8 as over
               from recent r join onehold.assets a on a.shop_id = $1 and a.id = r.asset_id
               where r.state in ('held', 'converted') group by a.category
           )
           select p.category, l.n as "left!", (p.n * 3600 / p.over)::float8 as "per_hour!",
                  (l.n * p.over / p.n)::float8 as "lasts!"
           from pace p cross join lateral (
               select count(*) as n from (
                   select from onehold.assets a where a.shop_id = $1 and a.category = p.category
                      and a.status = 'ready' and a.owner_id is null
                      and (a.available_from is null or a.available_from <= now()) limit 1001) x) l
           order by 4, 1 limit 20"#,
        shop_id,
        looked_at
    )
    .fetch_all(pool)
    .await
}

pub(super) async fn movements(
    pool: &PgPool,
    shop_id: i32,
    sku: &str,
    looked_at: i64,
    most: i64,
) -> Result<Vec<Movement>, sqlx::Error> {
    // The ledger has no index by SKU, which every sale would pay for: the newest of the shop are looked through.
    sqlx::query_as!(
        Movement,
        r#"select m.at as "at!", m.location as "location!", m.delta as "delta!", m.kind as "kind!",
                  m.reference as "reference!", m.actor as "actor!"
           from (select * from onehold.stock_movements where shop_id = $1 order by id desc limit $3) m
           where m.sku = $2 order by m.id desc limit $4"#,
        shop_id,
        sku,
        looked_at,
        most
    )
    .fetch_all(pool)
    .await
}
