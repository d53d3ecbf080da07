//! Migrations: safe from several machines at once, honest about a database that is newer or older than
//! the binary, and true to the rule that every key leads with the shop.

use onehold::db::{Db, MigrateError, check_schema, migrate};
use onehold::queue;

use crate::support::waiting::race;
use crate::support::{database, empty_database};

/// The migrations of this source tree, by the names of its files, oldest first.
fn versions() -> Vec<i64> {
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut versions: Vec<i64> = names.map(|name| name[..4].parse().unwrap()).collect();
    versions.sort_unstable();
    versions
}

fn newest() -> i64 {
    *versions().last().unwrap()
}

async fn applied(db: &Db) -> Vec<(i64, String)> {
    let rows = "select version, installed_on::text from onehold._migrations where success order by version";
    sqlx::query_as(rows).fetch_all(db.pool()).await.unwrap()
}

async fn run(db: &Db, statement: &'static str) {
    sqlx::raw_sql(statement).execute(db.pool()).await.unwrap();
}

#[tokio::test]
async fn migrating_again_changes_nothing() {
    let db = database().await.db;
    let before = applied(&db).await;
    assert_eq!(before.last().unwrap().0, newest());
    migrate(&db, queue::migrations()).await.unwrap();
    assert_eq!(applied(&db).await, before);
    check_schema(&db).await.unwrap();
}

#[tokio::test]
async fn several_machines_can_migrate_an_empty_database_at_once() {
    let url = empty_database().await;
    let mut machines = Vec::new();
    for _ in 0..4 {
        machines.push(Db::connect(&url, 2).await.unwrap());
    }
    let db = machines[0].clone();
    for answer in race(machines.into_iter().map(|db| async move { migrate(&db, queue::migrations()).await })).await {
        answer.unwrap();
    }
    let there: Vec<i64> = applied(&db).await.into_iter().map(|(version, _)| version).collect();
    assert_eq!(there, versions(), "each migration once, in order");
    check_schema(&db).await.unwrap();
}

#[tokio::test]
async fn a_database_that_is_newer_than_the_binary_is_refused_and_left_alone() {
    let db = database().await.db;
    run(
        &db,
        "insert into onehold._migrations (version, description, success, checksum, execution_time)
         values (9000, 'from the future', true, '', 0)",
    )
    .await;
    let before = applied(&db).await;
    for refusal in [migrate(&db, queue::migrations()).await, check_schema(&db).await] {
        let refusal = refusal.unwrap_err();
        assert!(matches!(refusal, MigrateError::Newer { found: 9000, known } if known == newest()));
        assert!(refusal.to_string().contains("newer than this binary"), "{refusal}");
    }
    assert_eq!(applied(&db).await, before);
}

#[tokio::test]
async fn a_database_that_lacks_migrations_is_named_as_behind() {
    let db = Db::connect(&empty_database().await, 2).await.unwrap();
    let all = versions().len();
    let refusal = check_schema(&db).await.unwrap_err();
    assert!(matches!(refusal, MigrateError::Behind { missing } if missing == all), "{refusal}");
    assert!(refusal.to_string().contains("onehold migrate"), "{refusal}");

    migrate(&db, queue::migrations()).await.unwrap();
    run(&db, "delete from onehold._migrations where version = (select max(version) from onehold._migrations)").await;
    assert!(matches!(check_schema(&db).await.unwrap_err(), MigrateError::Behind { missing: 1 }));
}

#[tokio::test]
async fn a_migration_that_was_changed_after_it_was_applied_is_refused() {
    let db = database().await.db;
    run(&db, "update onehold._migrations set checksum = '\\x00' where version = 1").await;
    let refusal = migrate(&db, queue::migrations()).await.unwrap_err();
    assert!(matches!(refusal, MigrateError::Migration(_)), "{refusal}");
}

/// Unique indexes (primary keys among them) and foreign keys in schema `onehold` whose first column is not
/// the shop. The shops themselves have no shop, and the list of migrations has none either.
const KEYS: &str = "
    with keys as (
        select i.indrelid as table_id, c.relname as name, i.indkey[0] as first
        from pg_index i join pg_class c on c.oid = i.indexrelid
        where i.indisunique
        union all
        select k.conrelid, k.conname, k.conkey[1] from pg_constraint k where k.contype = 'f'
    )
    select k.name::text, coalesce(a.attname::text, '')
    from keys k
    join pg_class t on t.oid = k.table_id
    left join pg_attribute a on a.attrelid = k.table_id and a.attnum = k.first
    where t.relnamespace = 'onehold'::regnamespace and t.relname not in ('shops', '_migrations')
    order by k.name";

async fn keys_led_by_something_else(db: &Db) -> Vec<String> {
    let keys: Vec<(String, String)> = sqlx::query_as(KEYS).fetch_all(db.pool()).await.unwrap();
    assert!(keys.len() > 20, "the schema has more keys than this query sees");
    keys.into_iter().filter(|(_, first)| first != "shop_id").map(|(name, _)| name).collect()
}

#[tokio::test]
async fn every_key_leads_with_the_shop() {
    let db = database().await.db;
    assert_eq!(keys_led_by_something_else(&db).await, Vec::<String>::new());
    run(
        &db,
        "create table onehold.wrong (id int primary key, shop_id int, asset_id uuid,
             foreign key (asset_id, shop_id) references onehold.assets (id, shop_id));
         create unique index wrong_expression on onehold.wrong ((id + 1), shop_id)",
    )
    .await;
    assert_eq!(
        keys_led_by_something_else(&db).await,
        ["wrong_asset_id_shop_id_fkey", "wrong_expression", "wrong_pkey"],
        "a key that is led by something else must be seen"
    );
}
