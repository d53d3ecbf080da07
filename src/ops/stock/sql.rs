//! Statements on stock, for those who watch.

use sqlx::PgPool;

use super::{Pool, Sessions};

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
