//! The import's statements. Most are not checked at build time: they speak of temporary tables, which the build's
//! database does not have; the tests run every one of them.

use sqlx::{PgConnection, PgExecutor, Row as _};

use super::Kind;
use super::bad::MOST_NAMED;
use super::stage::{KeyUsed, Pool, ReferenceUsed};

/// How long one statement over all rows may take, in milliseconds; and how long the transaction may wait for
/// input, which the caller bounds more tightly. Behind PgBouncer, too: they are this transaction's own.
const LIMITS: &str = "set local statement_timeout = 1800000; set local idle_in_transaction_session_timeout = 90000";

/// Sets this transaction's limits and takes the shop's lock of imports. False: another import has it.
pub(super) async fn begin(tx: &mut PgConnection, shop_id: i32) -> Result<bool, sqlx::Error> {
    sqlx::raw_sql(LIMITS).execute(&mut *tx).await?;
    // The number that comes with the shop's is the import's own; locks of pools have one wide number.
    sqlx::query_scalar!(r#"select pg_try_advisory_xact_lock(1768778863, $1) as "free!""#, shop_id).fetch_one(tx).await
}

/// Makes the temporary table, which goes with the transaction.
pub(super) async fn create(tx: &mut PgConnection, kind: Kind) -> Result<(), sqlx::Error> {
    let statement = match kind {
        Kind::Assets => {
            "create temporary table onehold_import (
                 line bigint not null, key text collate \"C\" not null, category text not null, location text not null,
                 vendor text, attributes jsonb not null, status text not null, rank int not null,
                 available_from timestamptz
             ) on commit drop"
        }
        Kind::Stock => {
            "create temporary table onehold_import (
                 line bigint not null, sku text not null, location text not null, delta int not null,
                 kind text not null, reference text collate \"C\" not null
             ) on commit drop"
        }
    };
    sqlx::query(statement).execute(tx).await.map(|_| ())
}

/// Adds rows in the text format of COPY, their fields in the table's order.
pub(super) async fn copy(tx: &mut PgConnection, rows: &[u8]) -> Result<(), sqlx::Error> {
    let mut copy = tx.copy_in_raw("copy pg_temp.onehold_import from stdin").await?;
    copy.send(rows).await?;
    copy.finish().await.map(|_| ())
}

/// Lets the planner know what has been laid beside.
pub(super) async fn analyze(tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query("analyze pg_temp.onehold_import").execute(tx).await.map(|_| ())
}

/// Movements whose reference was used before, for another movement or on an earlier line, by line; with how many
/// there are of them.
pub(super) async fn references_used(
    tx: &mut PgConnection,
    shop_id: i32,
) -> Result<Vec<(ReferenceUsed, i64)>, sqlx::Error> {
    let rows = sqlx::query(
        r#"
        with looked_at as (
            select *, min(line) over (partition by reference) as first_line from pg_temp.onehold_import
        ), bad as (
            select s.line, s.reference, case when s.line > s.first_line then s.first_line end as first_line,
                   m.kind || ' of ' || m.delta || ' ' || m.sku || ' at ' || m.location as before
            from looked_at s
            left join onehold.stock_movements m
              on m.shop_id = $1 and m.reference = s.reference collate "default"
             and (m.sku, m.location, m.delta, m.kind) is distinct from (s.sku, s.location, s.delta, s.kind)
            where s.line > s.first_line or m.id is not null
        )
        select *, count(*) over () as total from bad order by line limit $2
        "#,
    )
    .bind(shop_id)
    .bind(most_named())
    .fetch_all(tx)
    .await?;
    let bad = |row: &sqlx::postgres::PgRow| {
        let (line, reference) = (row.try_get("line")?, row.try_get("reference")?);
        let (first_line, before) = (row.try_get("first_line")?, row.try_get("before")?);
        Ok((ReferenceUsed { line, reference, first_line, before }, row.try_get("total")?))
    };
    rows.iter().map(bad).collect()
}

/// Posts the movements that are not there yet, and gives how many those are. The ledger's trigger runs once.
pub(super) async fn post(tx: &mut PgConnection, shop_id: i32) -> Result<u64, sqlx::Error> {
    sqlx::query(
        r#"
        insert into onehold.stock_movements (shop_id, sku, location, delta, kind, reference, actor)
        select $1, s.sku, s.location, s.delta, s.kind, s.reference, 'import' from pg_temp.onehold_import s
        where not exists (select from onehold.stock_movements m
                          where m.shop_id = $1 and m.reference = s.reference collate "default")
        on conflict on constraint one_movement_per_reference do nothing
        "#,
    )
    .bind(shop_id)
    .execute(tx)
    .await
    .map(|done| done.rows_affected())
}

/// Some of the pools that the import adds to; first those that lack units, as a refill settles that.
pub(super) async fn pools(tx: &mut PgConnection, shop_id: i32, limit: i64) -> Result<Vec<Pool>, sqlx::Error> {
    let rows = sqlx::query(
        r#"
        select p.sku, p.location from (select distinct sku, location from pg_temp.onehold_import) p
        left join onehold.stock_shortfalls f
          on f.shop_id = $1 and f.sku = p.sku and f.location = p.location and f.cleared_at is null
        order by f.id is null, p.sku, p.location limit $2
        "#,
    )
    .bind(shop_id)
    .bind(limit)
    .fetch_all(tx)
    .await?;
    rows.iter().map(|row| Ok(Pool { sku: row.try_get("sku")?, location: row.try_get("location")? })).collect()
}

/// Refills these pools where nobody else is at it.
pub(super) async fn refill(db: impl PgExecutor<'_>, shop_id: i32, pools: &[Pool]) -> Result<(), sqlx::Error> {
    let (skus, locations): (Vec<&str>, Vec<&str>) =
        pools.iter().map(|pool| (pool.sku.as_str(), pool.location.as_str())).unzip();
    sqlx::query!(
        r#"select count(onehold.refill_if_free($1, p.sku, p.location)) as "looked_at!"
           from unnest($2::text[], $3::text[]) p (sku, location)"#,
        shop_id,
        &skus as &[&str],
        &locations as &[&str]
    )
    .fetch_one(db)
    .await
    .map(|_| ())
}

/// Locks the assets that would be described anew, in the order in which everyone locks them.
pub(super) async fn lock_changing(tx: &mut PgConnection, shop_id: i32) -> Result<(), sqlx::Error> {
    sqlx::query(
        r#"
        with changing as materialized (
            select a.id from onehold.assets a
            join pg_temp.onehold_import s on s.key collate "default" = a.key
            where a.shop_id = $1 and a.deleted_at is null
              and (a.category, a.location, a.vendor, a.attributes, a.status, a.rank, a.available_from)
                  is distinct from (s.category, s.location, s.vendor, s.attributes, s.status, s.rank, s.available_from)
            order by a.id for update of a
        )
        select count(*) from changing
        "#,
    )
    .bind(shop_id)
    .fetch_one(tx)
    .await
    .map(|_| ())
}

/// Assets whose key stands on an earlier line, or whose order would not get what it was promised (the rule of
/// `assets::put`, for all of them at once), by line; with how many there are of them.
pub(super) async fn keys_used(tx: &mut PgConnection, shop_id: i32) -> Result<Vec<(KeyUsed, i64)>, sqlx::Error> {
    let rows = sqlx::query(
        r#"
        with looked_at as (
            select *, min(line) over (partition by key) as first_line from pg_temp.onehold_import
        ), bad as (
            select s.line, s.key, case when s.line > s.first_line then s.first_line end as first_line, r.order_id
            from looked_at s
            left join onehold.assets a
              on a.shop_id = $1 and a.key = s.key collate "default" and a.deleted_at is null
             and a.owner_id is not null
             and ((s.status = 'retired' and a.status <> 'retired')
                  or s.category <> a.category or s.location <> a.location)
            left join onehold.reservations r on r.shop_id = $1 and r.id = a.owner_id
            where s.line > s.first_line or a.id is not null
        )
        select *, count(*) over () as total from bad order by line limit $2
        "#,
    )
    .bind(shop_id)
    .bind(most_named())
    .fetch_all(tx)
    .await?;
    let bad = |row: &sqlx::postgres::PgRow| {
        let (line, key) = (row.try_get("line")?, row.try_get("key")?);
        let (first_line, order) = (row.try_get("first_line")?, row.try_get("order_id")?);
        Ok((KeyUsed { line, key, first_line, order }, row.try_get("total")?))
    };
    rows.iter().map(bad).collect()
}

/// Makes the assets that are not there yet, and gives how many those are.
pub(super) async fn insert(tx: &mut PgConnection, shop_id: i32) -> Result<u64, sqlx::Error> {
    sqlx::query(
        r#"
        insert into onehold.assets
            (shop_id, key, category, location, vendor, attributes, status, rank, available_from)
        select $1, s.key, s.category, s.location, s.vendor, s.attributes, s.status, s.rank, s.available_from
        from pg_temp.onehold_import s
        where not exists (select from onehold.assets a
                          where a.shop_id = $1 and a.key = s.key collate "default" and a.deleted_at is null)
        on conflict (shop_id, key) where deleted_at is null do nothing
        "#,
    )
    .bind(shop_id)
    .execute(tx)
    .await
    .map(|done| done.rows_affected())
}

/// Describes anew the assets that are there and differ, and gives how many those are. One that has come into use
/// since it was looked at keeps what its order was promised, and is looked at again.
pub(super) async fn replace(tx: &mut PgConnection, shop_id: i32) -> Result<u64, sqlx::Error> {
    let replaced = sqlx::query(
        r#"
        with replaced as (
            update onehold.assets a
            set category = s.category, location = s.location, vendor = s.vendor, attributes = s.attributes,
                status = s.status, rank = s.rank, available_from = s.available_from, updated_at = clock_timestamp()
            from pg_temp.onehold_import s
            where a.shop_id = $1 and a.key = s.key collate "default" and a.deleted_at is null
              and (a.category, a.location, a.vendor, a.attributes, a.status, a.rank, a.available_from)
                  is distinct from (s.category, s.location, s.vendor, s.attributes, s.status, s.rank, s.available_from)
              and (a.owner_id is null
                   or (a.category = s.category and a.location = s.location
                       and (s.status <> 'retired' or a.status = 'retired')))
            returning a.location
        ), places as (
            -- Known from now on; the table's trigger sees insertions only.
            insert into onehold.locations (shop_id, name) select distinct $1, location from replaced
            on conflict do nothing
        )
        select count(*) as replaced from replaced
        "#,
    )
    .bind(shop_id)
    .fetch_one(tx)
    .await?;
    Ok(replaced.try_get::<i64, _>("replaced")?.unsigned_abs())
}

/// Whether every row's asset is there and as the row has it.
pub(super) async fn all_as_described(tx: &mut PgConnection, shop_id: i32) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        r#"
        select not exists (
            select from pg_temp.onehold_import s
            left join onehold.assets a
              on a.shop_id = $1 and a.key = s.key collate "default" and a.deleted_at is null
            where a.id is null
               or (a.category, a.location, a.vendor, a.attributes, a.status, a.rank, a.available_from)
                  is distinct from (s.category, s.location, s.vendor, s.attributes, s.status, s.rank, s.available_from)
        )
        "#,
    )
    .bind(shop_id)
    .fetch_one(tx)
    .await
}

/// Puts a job in for up to `limit` waiting orders that look as if they could be filled now.
pub(super) async fn wake_waiting(tx: &mut PgConnection, shop_id: i32, limit: i32) -> Result<(), sqlx::Error> {
    sqlx::query("select onehold.wake_waiting($1, $2)").bind(shop_id).bind(limit).fetch_one(tx).await.map(|_| ())
}

fn most_named() -> i64 {
    i64::try_from(MOST_NAMED).unwrap_or(i64::MAX)
}
