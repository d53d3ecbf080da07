//! Statements on holds that end.

use sqlx::PgConnection;
use uuid::Uuid;

pub(super) async fn lock_reserved(
    conn: &mut PgConnection,
    shop_id: i32,
    orders: &[Uuid],
) -> Result<Vec<Uuid>, sqlx::Error> {
    // Skip what another is deciding: he judges the deadline too. In id order, the one order of locks.
    sqlx::query_scalar!(
        "select id from onehold.orders
         where shop_id = $1 and id = any($2) and status = 'reserved'
         order by id
         for update skip locked",
        shop_id,
        orders
    )
    .fetch_all(conn)
    .await
}

pub(super) async fn expire(
    conn: &mut PgConnection,
    shop_id: i32,
    locked: &[Uuid],
    actor: &str,
    give_back: bool,
) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select id as "id!" from onehold.expire_orders($1, $2, $3, $4) id"#,
        shop_id,
        locked,
        actor,
        give_back
    )
    .fetch_all(conn)
    .await
}

pub(super) async fn lapsed(conn: &mut PgConnection, shop_id: i32, limit: i64) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        // Orders that somebody is deciding right now are passed over here already, or they would stand at the
        // head of every batch. The inner bound is on holds: an order has up to 10,000 of them.
        r#"select o.id from onehold.orders o
           where o.shop_id = $1 and o.status = 'reserved' and o.id in (
               select order_id from onehold.reservations
               where shop_id = $1 and state = 'held' and expires_at <= clock_timestamp()
               order by expires_at
               limit 20000)
           limit $2
           for update skip locked"#,
        shop_id,
        limit
    )
    .fetch_all(conn)
    .await
}

pub(super) async fn cancel(conn: &mut PgConnection, shop_id: i32, order: Uuid) -> Result<u64, sqlx::Error> {
    sqlx::query!(
        "update onehold.reservations set state = 'cancelled'
         where shop_id = $1 and order_id = $2 and state = 'held'",
        shop_id,
        order
    )
    .execute(&mut *conn)
    .await
    .map(|done| done.rows_affected())
}

/// Puts the units of an order's ended holds back into their pools, where there is room.
pub(super) async fn give_back(conn: &mut PgConnection, shop_id: i32, order: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query!("select onehold.give_back($1, array[$2::uuid])", shop_id, order).execute(conn).await.map(|_| ())
}

/// How many holds an order has, and how many of them have lapsed.
pub(super) async fn standing(conn: &mut PgConnection, shop_id: i32, order: Uuid) -> Result<(i64, i64), sqlx::Error> {
    sqlx::query!(
        r#"select count(*) as "held!", count(*) filter (where expires_at <= clock_timestamp()) as "lapsed!"
           from onehold.reservations
           where shop_id = $1 and order_id = $2 and state = 'held'"#,
        shop_id,
        order
    )
    .fetch_one(conn)
    .await
    .map(|row| (row.held, row.lapsed))
}
