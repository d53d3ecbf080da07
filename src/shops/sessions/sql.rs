//! Statements on sessions of browsers.

use sqlx::PgPool;

/// Opens a session for `seconds`, and forgets up to a hundred of the shop's that are over.
pub(super) async fn open(
    pool: &PgPool,
    shop_id: i32,
    hash: &[u8],
    key_hash: &[u8],
    key_name: &str,
    seconds: f64,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "with over as (
             delete from onehold.browser_sessions
             where shop_id = $1 and hash = any (array(
                 select hash from onehold.browser_sessions
                 where shop_id = $1 and expires_at < now() order by expires_at limit 100 for update skip locked))
         )
         insert into onehold.browser_sessions (shop_id, hash, key_hash, key_name, expires_at)
         values ($1, $2, $3, $4, clock_timestamp() + make_interval(secs => $5))",
        shop_id,
        hash,
        key_hash,
        key_name,
        seconds
    )
    .execute(pool)
    .await
    .map(|_| ())
}

/// A session that is not over.
pub(super) struct Live {
    pub(super) key_hash: Vec<u8>,
    /// The scopes that its key has now; none where no live key of the database has that hash.
    pub(super) scopes: Option<Vec<String>>,
    /// The name that its key has now.
    pub(super) key_name: String,
}

pub(super) async fn live(pool: &PgPool, shop_id: i32, hash: &[u8]) -> Result<Option<Live>, sqlx::Error> {
    sqlx::query_as!(
        Live,
        r#"select s.key_hash, s.key_name, k.scopes as "scopes?"
           from onehold.browser_sessions s
           left join onehold.api_keys k
             on k.shop_id = s.shop_id and k.hash = s.key_hash and k.revoked_at is null
           where s.shop_id = $1 and s.hash = $2 and s.expires_at > clock_timestamp()"#,
        shop_id,
        hash
    )
    .fetch_optional(pool)
    .await
}

/// Ends one session.
pub(super) async fn end(pool: &PgPool, shop_id: i32, hash: &[u8]) -> Result<(), sqlx::Error> {
    sqlx::query!("delete from onehold.browser_sessions where shop_id = $1 and hash = $2", shop_id, hash)
        .execute(pool)
        .await
        .map(|_| ())
}

/// Ends every session that was opened with the same key.
pub(super) async fn end_all(pool: &PgPool, shop_id: i32, key_hash: &[u8]) -> Result<u64, sqlx::Error> {
    sqlx::query!("delete from onehold.browser_sessions where shop_id = $1 and key_hash = $2", shop_id, key_hash)
        .execute(pool)
        .await
        .map(|done| done.rows_affected())
}

/// Whether there is more than one shop.
pub(super) async fn several_shops(pool: &PgPool) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(r#"select count(*) > 1 as "several!" from (select from onehold.shops limit 2) s"#)
        .fetch_one(pool)
        .await
}
