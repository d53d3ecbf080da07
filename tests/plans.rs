//! What a reservation costs does not grow with what is sold or held: counted in rows read, not in time.

use onehold::allocator::candidates::{list, lock_first};
use onehold::db::Verdict;
use onehold::stock::requirement::Requirement;

use crate::scene::{SHOP, Scene};

/// 20,000 machines of one category: 19,000 sold, 500 held, and 500 that can be had, last in rank.
async fn mostly_sold() -> Scene {
    let scene = Scene::with_machines(0).await;
    // Written past the triggers, as a restored backup is; `verify` says below that it is sound.
    scene
        .run(
            "set session_replication_role = replica;
             insert into onehold.assets (shop_id, key, category, location, rank)
                 select 1, 'b' || n, 'box', (array['BER', 'FRA'])[1 + n % 2], n from generate_series(1, 20000) n;
             insert into onehold.orders (shop_id, idempotency_key, status)
                 select 1, 'o' || n, case when n <= 19000 then 'converted' else 'reserved' end
                 from generate_series(1, 19500) n;
             insert into onehold.order_lines (shop_id, order_id, line, asset, quantity)
                 select 1, id, 1, '{\"category\": \"box\"}', 1 from onehold.orders;
             insert into onehold.order_events (shop_id, order_id, kind, actor)
                 select 1, id, kind, 'worker' from onehold.orders, unnest(array['placed', 'reserved', 'converted']) kind;
             insert into onehold.reservations (shop_id, order_id, asset_id, state, location, expires_at)
                 select 1, o.id, a.id, case when a.rank <= 19000 then 'converted' else 'held' end, a.location,
                        now() + interval '1 hour'
                 from onehold.assets a join onehold.orders o on o.idempotency_key = 'o' || a.rank;
             insert into onehold.bindings (shop_id, reservation_id, asset_id)
                 select 1, id, asset_id from onehold.reservations where state = 'converted';
             update onehold.assets a set owner_id = r.id from onehold.reservations r where r.asset_id = a.id;
             set session_replication_role = origin;",
        )
        .await;
    // Outside a transaction block each: what autovacuum does on a live database.
    for table in ["assets", "orders", "reservations"] {
        scene.run(&format!("vacuum analyze onehold.{table}")).await;
    }
    scene
}

#[tokio::test]
async fn a_search_reads_as_many_rows_as_it_lists_whatever_is_sold_and_held() {
    let scene = mostly_sold().await;
    scene.verify().await;
    let anywhere =
        Requirement { category: "box".into(), locations: None, vendor: None, attributes: Default::default() };
    let somewhere = Requirement { locations: Some(vec!["FRA".into(), "BER".into()]), ..anywhere.clone() };
    for (wanted, most) in [(anywhere, 30), (somewhere, 60)] {
        let (scans, fetched) = scene
            .db
            .transaction("test", |mut tx| {
                let wanted = &wanted;
                Box::pin(async move {
                    let before = reads(&mut tx).await?;
                    let listed = list(&mut tx, SHOP, wanted).await?;
                    assert_eq!(listed.len(), 25);
                    assert_eq!(lock_first(&mut tx, SHOP, wanted, &listed).await?, Some(0));
                    let after = reads(&mut tx).await?;
                    Ok(Verdict::Rollback((after.0 - before.0, after.1 - before.1)))
                })
            })
            .await
            .unwrap();
        // The list, once more for each row that the lock looks at, and nothing else.
        assert_eq!(scans, 0, "a table scan for {wanted:?}");
        assert!(fetched <= most + 25, "{fetched} rows were read for {wanted:?}");
    }
}

/// Table scans of the assets, and assets read through an index. The server counts for a connection what it
/// has not reported yet, which may be more than this transaction: compare two of these.
async fn reads(tx: &mut sqlx::PgConnection) -> Result<(i64, i64), sqlx::Error> {
    let counted = "select seq_scan, idx_tup_fetch from pg_stat_xact_user_tables
                   where schemaname = 'onehold' and relname = 'assets'";
    sqlx::query_as(counted).fetch_one(tx).await
}

/// A session keeps the plan of a statement that it has used before, and made it while the table was nearly empty.
#[tokio::test]
async fn after_a_fast_start_a_payment_that_names_an_order_reads_that_order_only() {
    let scene = Scene::with_machines(1).await;
    // One session, as sessions keep plans of their own, and as its counts can be asked for.
    let db = onehold::db::Db::connect_with(scene.db.options().clone(), 1).await.unwrap();
    let id = scene.place_one("paid").await;
    scene.reserve(id).await;
    let pay = async |event: &str| {
        scene.keep_event(&id.to_string(), event, "succeeded").await;
        let before = orders_read(&db).await;
        onehold::convert::apply(&db, SHOP, "standard", event).await.unwrap();
        orders_read(&db).await - before
    };
    for early in 0..8 {
        pay(&format!("early-{early}")).await;
    }
    scene
        .run(
            "insert into onehold.orders (shop_id, idempotency_key) select 1, 'o' || n from generate_series(1, 20000) n",
        )
        .await;
    let grown = onehold::db::analyze_what_grew(&db).await.unwrap();
    assert!(grown.contains(&"onehold.orders".to_owned()), "{grown:?}");
    let read = pay("late").await;
    assert!(read <= 12, "{read} orders were read for one payment");
    assert_eq!(onehold::db::analyze_what_grew(&db).await.unwrap(), Vec::<String>::new(), "nothing has grown since");
}

/// Rows of orders read so far, by scans of the table and of its indexes.
async fn orders_read(db: &onehold::db::Db) -> i64 {
    sqlx::query("select pg_stat_force_next_flush()").execute(db.pool()).await.unwrap();
    let read = "select (seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint from pg_stat_user_tables
                where schemaname = 'onehold' and relname = 'orders'";
    sqlx::query_scalar(read).fetch_one(db.pool()).await.unwrap()
}

/// 100,000 machines of one category with attributes, none of which has what the next order asks for.
async fn huge_category() -> Scene {
    let scene = Scene::with_machines(0).await;
    // In parts: on a busy machine all of it takes longer than a statement may.
    for part in 0..10 {
        scene
            .run(&format!(
                "insert into onehold.assets (shop_id, key, category, location, rank, attributes)
                 select 1, 'a' || n, 'box', 'BER', n, jsonb_build_object('ram_gb', n % 512, 'raid', true)
                 from generate_series({part} * 10000 + 1, {part} * 10000 + 10000) n"
            ))
            .await;
    }
    scene.run("vacuum analyze onehold.assets").await;
    scene
}

#[tokio::test]
async fn an_impossible_wish_is_refused_without_comparing_every_asset_the_slow_way() {
    let scene = huge_category().await;
    let options = scene.db.options().clone().options([("track_functions", "all")]);
    let db = onehold::db::Db::connect_with(options, 1).await.unwrap();
    let wanted = serde_json::json!({"gpu": {"eq": true}, "ram_gb": {"min": 128}});
    let id =
        scene.place("wish", serde_json::json!({"lines": [{"asset": {"category": "box", "attributes": wanted}}]})).await;
    let outcome = onehold::allocator::run(&db, SHOP, id).await.unwrap();
    let onehold::allocator::Outcome::Refused(refusal) = outcome else { panic!("{outcome:?}") };
    assert_eq!(refusal.kind, onehold::allocator::refusal::Kind::Unavailable);
    assert_eq!(refusal.reasons.iter().map(|c| c.count).collect::<Vec<_>>(), [100_000]);
    sqlx::query("select pg_stat_force_next_flush()").execute(db.pool()).await.unwrap();
    let calls: i64 = sqlx::query_scalar(
        "select coalesce(sum(calls), 0)::bigint from pg_stat_user_functions where funcname = 'attributes_match'",
    )
    .fetch_one(db.pool())
    .await
    .unwrap();
    assert!(calls < 100, "{calls} comparisons");
}

/// The quick comparison is the slow one, split in what a path can say and what is left.
#[tokio::test]
async fn attributes_meet_conditions_the_same_either_way() {
    let scene = Scene::with_machines(0).await;
    let differ = "
        with value (v) as (
            select v::jsonb from unnest(array['null', 'true', 'false', '0', '-1.5', '5', '5.0', '1e300', '\"\"', '\"5\"',
                '\"a\\\"b\\\\c/\\u00e9\\n\"', '\"B\"', '\"a\"', '[]', '[5]', '[5, 6]', '{}', '{\"x\": 5}']) v
        ), have (h) as (
            select jsonb_build_object(name, v) from value, unnest(array['x', 'a\"b', 'é.$ \\', '']) name
            union all select '{}' union all select '{\"x\": 5, \"y\": \"a\"}'
        ), simple (c) as (
            select jsonb_build_object(op, v) from value, unnest(array['eq', 'min', 'max']) op
        ), manifold (c) as (
            select jsonb_build_object('in', jsonb_build_array(one.v, two.v)) from value one, value two
            union all select jsonb_build_object('in', '[]'::jsonb)
            union all select jsonb_build_object('eq', 5, 'min', one.v, 'max', two.v) from value one, value two
        ), want (w) as (
            select jsonb_build_object(name, c) from simple, unnest(array['x', 'a\"b', 'é.$ \\', '']) name
            union all select jsonb_build_object('x', c) from manifold
            union all select jsonb_build_object('x', c, 'y', '{\"eq\": \"a\"}'::jsonb) from simple
            union all select '{}'
        ), said as materialized (
            select w, onehold.attributes_path(w) as path, onehold.attributes_beyond_path(w) as beyond from want
        )
        select count(*) from have, said
        where (h @? path and (beyond = '{}' or onehold.attributes_match(h, beyond)))
              is distinct from onehold.attributes_match(h, w)";
    assert_eq!(scene.number(differ).await, 0);
}
