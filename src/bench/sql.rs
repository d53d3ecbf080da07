//! What the scenarios put into the database, what they read of it, and the counters of the server. Not checked at
//! build time: some of it exists in a throwaway database only.

use sqlx::PgPool;
use uuid::Uuid;

/// Enough for the largest statement that lays something in; the pool's own limit is for statements that serve.
pub(super) const PATIENT: &str = "set statement_timeout = '5min'";
/// One statement locks each pool it posts to, and a server has a bounded number of locks.
const MOST_POOLS: i32 = 500;

pub(super) async fn is_used(pool: &PgPool) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("select exists (select from onehold.orders) or exists (select from onehold.assets)")
        .fetch_one(pool)
        .await
}

/// Puts `units` of each of the SKUs `prefix`1 to `prefix`n on the shelf at BER, as receipts do.
pub(super) async fn stock(pool: &PgPool, shop_id: i32, prefix: &str, skus: i32, units: i32) -> Result<(), sqlx::Error> {
    let mut conn = pool.acquire().await?;
    sqlx::query(PATIENT).execute(&mut *conn).await?;
    for from in (1..=skus).step_by(MOST_POOLS as usize) {
        sqlx::query(
            "select count(p.movement) from generate_series($4, $5) g, lateral onehold.post_movement(
                 $1, $2 || g, 'BER', $3, 'receipt', $2 || g || ':' || gen_random_uuid(), 'bench', false) p",
        )
        .bind(shop_id)
        .bind(prefix)
        .bind(units)
        .bind(from)
        .bind(skus.min(from + MOST_POOLS - 1))
        .execute(&mut *conn)
        .await?;
    }
    settle(&mut conn, &["onehold.stock_levels", "onehold.stock_deltas", "onehold.pool_units"]).await?;
    conn.close().await
}

/// Brings the statistics and the free space of tables up to what was just laid in.
pub(super) async fn settle(conn: &mut sqlx::PgConnection, tables: &[&str]) -> Result<(), sqlx::Error> {
    for table in tables {
        // The names are the program's own.
        sqlx::query(sqlx::AssertSqlSafe(format!("vacuum analyze {table}"))).execute(&mut *conn).await?;
    }
    Ok(())
}

/// Places orders of `lines` lines, one unit each of different SKUs among `prefix`1 to `prefix`n, taken anywhere;
/// without jobs: what is measured begins when a job runs.
pub(super) async fn place_stock(
    pool: &PgPool,
    shop_id: i32,
    prefix: &str,
    skus: i32,
    orders: i32,
    lines: i32,
) -> Result<Vec<Uuid>, sqlx::Error> {
    let mut conn = pool.acquire().await?;
    sqlx::query(PATIENT).execute(&mut *conn).await?;
    let placed = sqlx::query_scalar(
        "with fresh as (
             insert into onehold.orders (shop_id, idempotency_key, hold_seconds)
             select $1, 'bench-' || gen_random_uuid(), 86400 from generate_series(1, $4)
             returning id
         ), begun as materialized (
             select id, floor(random() * $3)::int as base from fresh
         ), lines as (
             -- 7919 is prime, so that the lines of one order are different SKUs.
             insert into onehold.order_lines (shop_id, order_id, line, sku, quantity)
             select $1, id, n, $2 || (1 + (base + n * 7919) % $3), 1 from begun, generate_series(1, $5) n
         ), told as (
             insert into onehold.order_events (shop_id, order_id, kind, actor) select $1, id, 'placed', 'bench' from fresh
         )
         select id from fresh",
    )
    .bind(shop_id)
    .bind(prefix)
    .bind(skus)
    .bind(orders)
    .bind(lines)
    .fetch_all(&mut *conn)
    .await?;
    settle(&mut conn, &["onehold.orders", "onehold.order_lines"]).await?;
    conn.close().await?;
    Ok(placed)
}

/// Places orders for one asset of a category each, as [`place_stock`] does.
pub(super) async fn place_assets(
    pool: &PgPool,
    shop_id: i32,
    category: &str,
    orders: i32,
) -> Result<Vec<Uuid>, sqlx::Error> {
    let mut conn = pool.acquire().await?;
    sqlx::query(PATIENT).execute(&mut *conn).await?;
    let placed = sqlx::query_scalar(
        "with fresh as (
             insert into onehold.orders (shop_id, idempotency_key, hold_seconds)
             select $1, 'bench-' || gen_random_uuid(), 86400 from generate_series(1, $3)
             returning id
         ), lines as (
             insert into onehold.order_lines (shop_id, order_id, line, asset, quantity)
             select $1, id, 1, jsonb_build_object('category', $2), 1 from fresh
         ), told as (
             insert into onehold.order_events (shop_id, order_id, kind, actor) select $1, id, 'placed', 'bench' from fresh
         )
         select id from fresh",
    )
    .bind(shop_id)
    .bind(category)
    .bind(orders)
    .fetch_all(&mut *conn)
    .await?;
    settle(&mut conn, &["onehold.orders", "onehold.order_lines"]).await?;
    conn.close().await?;
    Ok(placed)
}

/// Where orders stand.
#[derive(Debug, PartialEq, Eq, sqlx::FromRow)]
pub(super) struct Standing {
    pub(super) reserved: i64,
    pub(super) refused: i64,
    /// Holds that keep something for them.
    pub(super) holds: i64,
    /// How many different things those are: for assets each must be its own.
    pub(super) assets: i64,
}

pub(super) async fn standing(pool: &PgPool, shop_id: i32, orders: &[Uuid]) -> Result<Standing, sqlx::Error> {
    sqlx::query_as(
        "select
             (select count(*) from onehold.orders where shop_id = $1 and id = any ($2) and status = 'reserved') as reserved,
             (select count(*) from onehold.orders where shop_id = $1 and id = any ($2) and status = 'refused') as refused,
             (select count(*) from onehold.reservations
              where shop_id = $1 and order_id = any ($2) and state = 'held') as holds,
             (select count(distinct asset_id) from onehold.reservations
              where shop_id = $1 and order_id = any ($2) and state = 'held') as assets",
    )
    .bind(shop_id)
    .bind(orders)
    .fetch_one(pool)
    .await
}

/// How many pools of SKUs that begin with `prefix` have more held and put out than is on hand.
pub(super) async fn oversold(pool: &PgPool, shop_id: i32, prefix: &str) -> Result<i64, sqlx::Error> {
    let mut conn = pool.acquire().await?;
    sqlx::query(PATIENT).execute(&mut *conn).await?;
    let oversold = sqlx::query_scalar(
        "select count(*) from onehold.stock_levels l, lateral onehold.pool_figures(l.shop_id, l.sku, l.location) f
         where l.shop_id = $1 and starts_with(l.sku, $2) and f.held + f.pooled > f.on_hand",
    )
    .bind(shop_id)
    .bind(prefix)
    .fetch_one(&mut *conn)
    .await?;
    conn.close().await?;
    Ok(oversold)
}

/// Puts `assets` assets of a category into a shop, numbered from 1 by rank; all of them sellable. Those that are
/// there already stay.
pub(super) async fn assets(pool: &PgPool, shop_id: i32, category: &str, assets: i32) -> Result<(), sqlx::Error> {
    let mut conn = pool.acquire().await?;
    // History and stock are written past the triggers, as a restored backup is; needs a superuser.
    for statement in ["set session_replication_role = replica", PATIENT] {
        sqlx::query(statement).execute(&mut *conn).await?;
    }
    sqlx::query(
        "insert into onehold.assets (shop_id, id, key, category, location, vendor, rank)
         select $1, gen_random_uuid(), $2 || '-' || n, $2, (array['BER', 'FRA', 'AMS'])[1 + n % 3], 'Dell', n
         from generate_series(1, $3) n
         on conflict (shop_id, key) where deleted_at is null do nothing",
    )
    .bind(shop_id)
    .bind(category)
    .bind(assets)
    .execute(&mut *conn)
    .await?;
    settle(&mut conn, &["onehold.assets"]).await?;
    // Its settings must not reach the next user of the connection.
    conn.close().await
}

/// Gives the assets of a category whose ranks are in `(after, upto]` away: sold, or held for an hour.
pub(super) async fn take_assets(
    pool: &PgPool,
    shop_id: i32,
    category: &str,
    (after, upto): (i32, i32),
    sold: bool,
) -> Result<(), sqlx::Error> {
    let mut conn = pool.acquire().await?;
    for statement in ["set session_replication_role = replica", PATIENT] {
        sqlx::query(statement).execute(&mut *conn).await?;
    }
    let (order, state) = if sold { ("converted", "converted") } else { ("reserved", "held") };
    sqlx::query(
        "with taken as materialized (
             select id as asset, rank as n, gen_random_uuid() as buyer, gen_random_uuid() as hold from onehold.assets
             where shop_id = $1 and category = $2 and rank > $3 and rank <= $4
         ), owned as (
             update onehold.assets a set owner_id = t.hold from taken t where a.shop_id = $1 and a.id = t.asset
         ), orders as (
             insert into onehold.orders (shop_id, id, idempotency_key, status)
             select $1, buyer, $2 || '-buyer-' || n, $5 from taken
         ), holds as (
             insert into onehold.reservations (shop_id, id, order_id, asset_id, state, location, expires_at)
             select $1, hold, buyer, asset, $6, 'BER', now() + interval '1 day' from taken
         )
         insert into onehold.bindings (shop_id, reservation_id, asset_id)
         select $1, hold, asset from taken where $5 = 'converted'",
    )
    .bind(shop_id)
    .bind(category)
    .bind(after)
    .bind(upto)
    .bind(order)
    .bind(state)
    .execute(&mut *conn)
    .await?;
    settle(&mut conn, &["onehold.assets", "onehold.orders", "onehold.reservations", "onehold.bindings"]).await?;
    conn.close().await
}

/// The reservation's row, committed: what any way of selling must write at least.
pub(super) async fn bare_reservation(
    conn: &mut sqlx::PgConnection,
    shop_id: i32,
    orders: &[Uuid],
) -> Result<usize, sqlx::Error> {
    let inserted = match orders {
        // One order's statement is as plain as can be.
        [order] => sqlx::query(
            "insert into onehold.reservations (shop_id, order_id, sku, location, quantity, expires_at)
             values ($1, $2, 'bench-bare', 'BER', 1, clock_timestamp() + interval '1 day')",
        )
        .bind(shop_id)
        .bind(order),
        many => sqlx::query(
            "insert into onehold.reservations (shop_id, order_id, sku, location, quantity, expires_at)
             select $1, id, 'bench-bare', 'BER', 1, clock_timestamp() + interval '1 day' from unnest($2::uuid[]) id",
        )
        .bind(shop_id)
        .bind(many),
    };
    let rows = inserted.execute(conn).await?.rows_affected();
    Ok(usize::try_from(rows).unwrap_or(usize::MAX))
}

pub(super) async fn prepare_commits(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::query("create table if not exists public.bench_commits (n bigint generated always as identity primary key)")
        .execute(pool)
        .await
        .map(|_| ())
}

/// One row, committed: one fsync, and the least that any answer that lasts can cost.
pub(super) async fn bare_commit(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::query("insert into public.bench_commits default values").execute(pool).await.map(|_| ())
}

/// The ids of a category's assets.
pub(super) async fn asset_ids(pool: &PgPool, shop_id: i32, category: &str) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar("select id from onehold.assets where shop_id = $1 and category = $2 order by rank")
        .bind(shop_id)
        .bind(category)
        .fetch_all(pool)
        .await
}

/// The hold's row, committed.
pub(super) async fn bare_hold(
    conn: &mut sqlx::PgConnection,
    shop_id: i32,
    order: Uuid,
    asset: Uuid,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "insert into onehold.reservations (shop_id, order_id, asset_id, location, expires_at)
         values ($1, $2, $3, 'BER', clock_timestamp() + interval '1 day')",
    )
    .bind(shop_id)
    .bind(order)
    .bind(asset)
    .execute(conn)
    .await
    .map(|_| ())
}

/// The movement's row, committed: what a sale must write at least. Of SKUs that nobody buys.
pub(super) async fn bare_sale(conn: &mut sqlx::PgConnection, shop_id: i32, order: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query(
        "insert into onehold.stock_movements (shop_id, sku, location, delta, kind, reference, actor)
         values ($1, 'bench-bare-' || get_byte(uuid_send($2), 15) % 100, 'BER', -1, 'sale', 'bench:' || $2, 'bench')",
    )
    .bind(shop_id)
    .bind(order)
    .execute(conn)
    .await
    .map(|_| ())
}

/// How many of the orders are sold, and how many movements say so.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Sold {
    pub(super) orders: i64,
    pub(super) movements: i64,
}

pub(super) async fn sold(pool: &PgPool, shop_id: i32, orders: &[Uuid]) -> Result<Sold, sqlx::Error> {
    sqlx::query_as(
        "select
             (select count(*) from onehold.orders where shop_id = $1 and id = any ($2) and status = 'converted') as orders,
             (select count(*) from onehold.reservations r
              join onehold.stock_movements m on m.shop_id = r.shop_id and m.reference = 'onehold:sale:' || r.id
              where r.shop_id = $1 and r.order_id = any ($2) and r.state = 'converted') as movements",
    )
    .bind(shop_id)
    .bind(orders)
    .fetch_one(pool)
    .await
}

pub(super) async fn checkpoint(pool: &PgPool) -> Result<(), sqlx::Error> {
    let mut conn = pool.acquire().await?;
    sqlx::query(PATIENT).execute(&mut *conn).await?;
    sqlx::query("checkpoint").execute(&mut *conn).await?;
    conn.close().await
}
