//! What the embedded server is asked before there is a database of ours.

use sqlx::{PgConnection, Row as _};

/// Makes the database `onehold` where it is missing.
pub(super) async fn create_database(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    // Not checked at build time: the catalogue of databases belongs to no database of ours.
    let there = sqlx::query("select exists (select from pg_database where datname = 'onehold')");
    if !there.fetch_one(&mut *conn).await?.try_get::<bool, _>(0)? {
        sqlx::query("create database onehold").execute(conn).await?;
    }
    Ok(())
}
