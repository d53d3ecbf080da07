//! The shop of the hot SKU, and the ways of selling that ours is compared with. Each way is one statement and
//! so one round trip and one commit: as good as it can be made. Not checked at build time: the tables and
//! functions exist in a throwaway database only.

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

/// The baselines' own tables and functions, with as many units.
pub(super) async fn baselines(pool: &PgPool, units: i32) -> Result<(), sqlx::Error> {
    let statements = [
        "create table public.bench_counter (sku text primary key, units_left int not null)",
        "create table public.bench_pool (sku text, unit bigint, primary key (sku, unit))",
        // What every way writes once the unit is its own: the same rows as ours.
        "create function public.bench_finish(p_shop int, p_order uuid) returns void
         language sql as $$
             insert into onehold.reservations (shop_id, order_id, sku, location, quantity, expires_at)
             values (p_shop, p_order, 'bench-elsewhere', 'BER', 1, clock_timestamp() + interval '1 day');
             update onehold.orders set status = 'reserved' where shop_id = p_shop and id = p_order;
             insert into onehold.order_events (shop_id, order_id, kind, actor)
             values (p_shop, p_order, 'reserved', 'bench');
         $$",
        // The counter comes last, so that its lock is held for the commit only.
        "create function public.bench_by_counter(p_shop int, p_order uuid) returns boolean
         language plpgsql as $$
         begin
             perform from onehold.orders where shop_id = p_shop and id = p_order for update;
             perform public.bench_finish(p_shop, p_order);
             update public.bench_counter set units_left = units_left - 1 where sku = 'hot' and units_left > 0;
             return found;
         end $$",
        "create function public.bench_by_whole_set(p_shop int, p_order uuid) returns boolean
         language plpgsql as $$
         declare
             v_unit bigint;
         begin
             perform from onehold.orders where shop_id = p_shop and id = p_order for update;
             with free as materialized (
                 select unit from public.bench_pool where sku = 'hot' order by unit limit 1000
                 for update skip locked
             )
             select min(unit) into v_unit from free;
             if v_unit is null then
                 return false;
             end if;
             delete from public.bench_pool where sku = 'hot' and unit = v_unit;
             perform public.bench_finish(p_shop, p_order);
             return true;
         end $$",
    ];
    for statement in statements {
        sqlx::query(statement).execute(pool).await?;
    }
    sqlx::query("insert into public.bench_counter values ('hot', $1)").bind(units).execute(pool).await?;
    // As many as a pool of ours has out; put out anew for each round.
    sqlx::query("insert into public.bench_pool select 'hot', generate_series(1, $1)")
        .bind(units.min(1_000))
        .execute(pool)
        .await
        .map(|_| ())
}

/// Fills the pool of the baseline up, between the rounds.
pub(super) async fn refill(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::query(
        "insert into public.bench_pool select 'hot', (select coalesce(max(unit), 0) from public.bench_pool) + g
         from generate_series(1, 1000 - (select count(*) from public.bench_pool)) g",
    )
    .execute(pool)
    .await
    .map(|_| ())
}

pub(super) async fn by_counter(conn: &mut PgConnection, shop_id: i32, order: Uuid) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("select public.bench_by_counter($1, $2)").bind(shop_id).bind(order).fetch_one(conn).await
}

pub(super) async fn by_whole_set(conn: &mut PgConnection, shop_id: i32, order: Uuid) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("select public.bench_by_whole_set($1, $2)").bind(shop_id).bind(order).fetch_one(conn).await
}
