//! Statements on shops, their keys and their webhooks' secrets.

use sqlx::PgPool;

use super::Shop;
use super::keys::Listed;

pub(super) async fn find(pool: &PgPool, name: &str) -> Result<Option<Shop>, sqlx::Error> {
    sqlx::query_as!(Shop, "select id, name from onehold.shops where name = $1", name).fetch_optional(pool).await
}

pub(super) async fn list(pool: &PgPool) -> Result<Vec<Shop>, sqlx::Error> {
    sqlx::query_as!(Shop, "select id, name from onehold.shops order by name").fetch_all(pool).await
}

pub(super) async fn create(pool: &PgPool, name: &str) -> Result<Option<i32>, sqlx::Error> {
    sqlx::query_scalar!(
        "insert into onehold.shops (name) values ($1) on conflict on constraint one_shop_per_name do nothing
         returning id",
        name
    )
    .fetch_optional(pool)
    .await
}

pub(super) async fn limit_buyers(pool: &PgPool, shop_id: i32, most: Option<i32>) -> Result<u64, sqlx::Error> {
    sqlx::query!("update onehold.shops set max_holds_per_buyer = $2 where id = $1", shop_id, most)
        .execute(pool)
        .await
        .map(|done| done.rows_affected())
}

pub(super) async fn buyer_limit(pool: &PgPool, shop_id: i32) -> Result<Option<i32>, sqlx::Error> {
    sqlx::query_scalar!("select max_holds_per_buyer from onehold.shops where id = $1", shop_id).fetch_one(pool).await
}

/// Stores the hash of a new key; none where a live key has that name.
pub(super) async fn add_key(
    pool: &PgPool,
    shop_id: i32,
    name: &str,
    hash: &[u8],
    scopes: &[String],
) -> Result<u64, sqlx::Error> {
    sqlx::query!(
        "insert into onehold.api_keys (shop_id, name, hash, scopes) values ($1, $2, $3, $4)
         on conflict (shop_id, name) where revoked_at is null do nothing",
        shop_id,
        name,
        hash,
        scopes
    )
    .execute(pool)
    .await
    .map(|done| done.rows_affected())
}

pub(super) async fn list_keys(pool: &PgPool, shop_id: i32) -> Result<Vec<Listed>, sqlx::Error> {
    sqlx::query_as!(
        Listed,
        "select name, scopes, created_at, revoked_at from onehold.api_keys where shop_id = $1 order by id",
        shop_id
    )
    .fetch_all(pool)
    .await
}

pub(super) async fn revoke_key(pool: &PgPool, shop_id: i32, name: &str) -> Result<u64, sqlx::Error> {
    sqlx::query!(
        "update onehold.api_keys set revoked_at = clock_timestamp()
         where shop_id = $1 and name = $2 and revoked_at is null",
        shop_id,
        name
    )
    .execute(pool)
    .await
    .map(|done| done.rows_affected())
}

/// Whether the shop ever had a key of that name.
pub(super) async fn had_key(pool: &PgPool, shop_id: i32, name: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select exists (select from onehold.api_keys where shop_id = $1 and name = $2) as "had!""#,
        shop_id,
        name
    )
    .fetch_one(pool)
    .await
}

/// A live key.
pub(super) struct LiveKey {
    pub(super) name: String,
    pub(super) scopes: Vec<String>,
}

pub(super) async fn live_key(pool: &PgPool, shop_id: i32, hash: &[u8]) -> Result<Option<LiveKey>, sqlx::Error> {
    sqlx::query_as!(
        LiveKey,
        "select name, scopes from onehold.api_keys where shop_id = $1 and hash = $2 and revoked_at is null",
        shop_id,
        hash
    )
    .fetch_optional(pool)
    .await
}

/// The secrets that are valid now, newest first; `most` of them.
pub(super) async fn webhook_secrets(
    pool: &PgPool,
    shop_id: i32,
    provider: &str,
    most: i64,
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar!(
        "select secret from onehold.webhook_secrets
         where shop_id = $1 and provider = $2 and (valid_until is null or valid_until > clock_timestamp())
         order by id desc
         limit $3",
        shop_id,
        provider,
        most
    )
    .fetch_all(pool)
    .await
}
