//! An import into a shop that has something already, or that others change meanwhile. Cases C6, M1 and M2.

use std::time::Duration;

use onehold::allocator::Outcome;
use serde_json::json;

use crate::importer::{csv, everything, import, imported, on_hand, refused, text};
use crate::scene::Scene;
use crate::support::eventually;

#[tokio::test]
async fn stock_that_is_imported_again_counts_once_and_changed_content_is_named() {
    let scene = Scene::with_machines(0).await;
    let rows = "sku,location,delta,reference\nA,BER,5,R-1\nA,FRA,6,R-2\n";
    imported(&csv(&scene, rows).await, 2);
    imported(&csv(&scene, rows).await, 2);
    imported(&csv(&scene, &format!("{rows}A,BER,7,R-3\n")).await, 3);
    assert_eq!(on_hand(&scene, "A").await, 18);
    for (changed, before) in [
        ("B,BER,5,R-1,", "5 A at BER"),
        ("A,FRA,5,R-1,", ""),
        ("A,BER,4,R-1,", ""),
        ("A,BER,5,R-1,return", "receipt of 5"),
    ] {
        let input = format!("sku,location,delta,reference,kind\nA,BER,9,R-9,\n{changed}\nA,FRA,6,R-2,\n");
        let bad = refused(&csv(&scene, &input).await);
        assert_eq!(bad.len(), 1, "{bad:?}");
        assert_eq!(bad[0].0, 3);
        assert!(bad[0].1.contains("\"R-1\" has been used") && bad[0].1.contains(before), "{bad:?}");
    }
    let twice = "sku,location,delta,reference\nA,BER,9,R-9\nA,BER,9,R-10\nA,BER,9,R-9\nA,BER,9,R-9\n";
    let bad = refused(&csv(&scene, twice).await);
    assert_eq!(bad.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [4, 5]);
    assert!(bad[1].1.contains("\"R-9\" stands on line 2 already"), "{bad:?}");
    assert_eq!(on_hand(&scene, "A").await, 18);
    scene.verify().await;
}

#[tokio::test]
async fn a_shops_references_and_keys_are_its_own() {
    let scene = Scene::with_machines(0).await;
    scene.run("insert into onehold.shops (name) values ('other')").await;
    let (stock, assets) = ("sku,location,delta,reference\nA,BER,5,R-1\n", "key,category,location\nm-1,box,BER\n");
    for rows in [stock, assets] {
        imported(&csv(&scene, rows).await, 1);
        let changed = rows.replace("BER", "FRA");
        imported(&import(&scene, &["-", "--format=csv", "--shop=other"], changed.as_bytes()).await, 1);
    }
    let apart = "select count(*) from onehold.stock_movements m join onehold.assets a using (shop_id, location)";
    assert_eq!(scene.number(apart).await, 2);
}

#[tokio::test]
async fn assets_that_are_imported_again_are_described_anew() {
    let scene = Scene::with_machines(0).await;
    let rows = "key,category,location,rank\nm-1,box,BER,1\nm-2,box,BER,1\n";
    imported(&csv(&scene, rows).await, 2);
    let before = scene.number("select max(extract(epoch from updated_at) * 1000000)::bigint from onehold.assets").await;
    imported(&csv(&scene, rows).await, 2);
    let touched =
        format!("select count(*) from onehold.assets where extract(epoch from updated_at) * 1000000 > {before}");
    assert_eq!(scene.number(&touched).await, 0, "what is so already is not written");
    imported(&csv(&scene, "key,category,location,vendor\nm-2,crate,HEL,Dell\nm-3,box,BER,\n").await, 2);
    assert_eq!(scene.number("select count(*) from onehold.assets where key = 'm-2' and (category, location, vendor, rank) = ('crate', 'HEL', 'Dell', 0)").await, 1);
    assert_eq!(scene.number("select count(*) from onehold.assets").await, 3);
    assert_eq!(scene.number("select count(*) from onehold.locations where name = 'HEL'").await, 1);
    assert_eq!(scene.number(&touched).await, 2);
    let twice = refused(&csv(&scene, "key,category,location\nm-4,box,BER\n\" m-4\",box,BER\n").await);
    assert_eq!(twice[0].0, 3);
    assert!(twice[0].1.contains("\"m-4\" stands on line 2 already"), "{twice:?}");
    assert_eq!(scene.number("select count(*) from onehold.assets").await, 3);
    scene.verify().await;
}

#[tokio::test]
async fn an_asset_in_use_keeps_what_its_order_was_promised() {
    let scene = Scene::with_machines(2).await;
    let held = scene.reserved("k1").await;
    let bound = scene.reserved("k2").await;
    scene.pay(bound, "e1").await;
    let (m1, m2) = (scene.assets(held, "held").await[0].clone(), scene.assets(bound, "converted").await[0].clone());
    for changed in ["crate,BER,ready", "box,FRA,ready", "box,BER,retired"] {
        let rows = format!("key,category,location,status\nnew,box,BER,ready\n{m1},{changed}\n{m2},{changed}\n");
        let bad = refused(&csv(&scene, &rows).await);
        assert_eq!(bad.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [3, 4], "{bad:?}");
        assert!(bad[0].1.contains(&held.to_string()) && bad[1].1.contains(&bound.to_string()), "{bad:?}");
    }
    assert_eq!(scene.number("select count(*) from onehold.assets where vendor = 'Dell' and (category, location, status) = ('box', 'BER', 'ready')").await, 2);
    assert_eq!(scene.number("select count(*) from onehold.assets").await, 2);
    // Whatever was not promised may change.
    imported(
        &csv(&scene, &format!("key,category,location,status,rank\n{m1},box,BER,maintenance,7\n{m2},box,BER,ready,7\n"))
            .await,
        2,
    );
    assert_eq!(scene.number("select count(*) from onehold.assets where rank = 7 and vendor is null").await, 2);
    scene.verify().await;
}

#[tokio::test]
async fn a_hold_that_commits_while_the_import_waits_for_the_asset_is_seen_by_it() {
    let scene = Scene::with_machines(1).await;
    let order = scene.place_one("k").await;
    let mut holder = <sqlx::PgConnection as sqlx::Connection>::connect(&scene.test.url).await.unwrap();
    let hold = format!(
        "begin; insert into onehold.reservations (shop_id, order_id, asset_id, location, expires_at)
         select 1, '{order}', id, 'BER', now() + interval '1 hour' from onehold.assets"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(hold)).execute(&mut holder).await.unwrap();
    let waiting = import(&scene, &["-", "--format=csv"], b"key,category,location\nm-01,box,FRA\n");
    let free = async {
        eventually(Duration::from_secs(30), || async {
            let waiting = "select count(*) from pg_stat_activity
                where datname = current_database() and wait_event_type = 'Lock'";
            scene.number(waiting).await > 0
        })
        .await;
        sqlx::raw_sql("commit").execute(&mut holder).await.unwrap();
    };
    let (output, ()) = tokio::join!(waiting, free);
    assert!(refused(&output)[0].1.contains(&order.to_string()));
    assert_eq!(scene.number("select count(*) from onehold.assets where location = 'BER'").await, 1);
}

#[tokio::test]
async fn two_imports_into_one_shop_do_not_run_at_once() {
    let scene = Scene::with_machines(0).await;
    let mut other = <sqlx::PgConnection as sqlx::Connection>::connect(&scene.test.url).await.unwrap();
    // As an import of this shop takes it.
    sqlx::raw_sql("begin; select pg_advisory_xact_lock(1768778863, 1)").execute(&mut other).await.unwrap();
    let output = csv(&scene, "sku,location,delta,reference\nA,BER,5,R-1\n").await;
    assert!(!output.status.success() && text(&output.stderr).contains("another import"), "{}", text(&output.stderr));
    assert_eq!(everything(&scene).await, 0);
    sqlx::raw_sql("commit").execute(&mut other).await.unwrap();
    imported(&csv(&scene, "sku,location,delta,reference\nA,BER,5,R-1\n").await, 1);
}

#[tokio::test]
async fn a_movement_posted_at_once_under_the_same_reference_counts_once() {
    let scene = Scene::with_machines(0).await;
    for (n, (delta, fits)) in [(5, true), (6, false)].into_iter().enumerate() {
        let mut other = <sqlx::PgConnection as sqlx::Connection>::connect(&scene.test.url).await.unwrap();
        let post =
            format!("begin; select onehold.post_movement(1, 'A', 'BER', {delta}, 'receipt', 'R-{n}', 'x', false)");
        sqlx::raw_sql(sqlx::AssertSqlSafe(post)).execute(&mut other).await.unwrap();
        let input = format!("sku,location,delta,reference\nA,BER,5,R-{n}\nA,BER,1,S-{n}\n");
        let free = async {
            eventually(Duration::from_secs(30), || async {
                let waiting = "select count(*) from pg_stat_activity
                    where datname = current_database() and wait_event_type = 'Lock'";
                scene.number(waiting).await > 0
            })
            .await;
            sqlx::raw_sql("commit").execute(&mut other).await.unwrap();
        };
        let (output, ()) = tokio::join!(csv(&scene, &input), free);
        if fits {
            imported(&output, 2);
        } else {
            assert!(refused(&output)[0].1.contains("receipt of 6 A at BER"));
        }
    }
    assert_eq!(on_hand(&scene, "A").await, 5 + 1 + 6);
    scene.verify().await;
}

#[tokio::test]
async fn a_shortfall_is_cleared_by_an_import_that_brings_what_was_lacking() {
    let scene = Scene::with_machines(0).await;
    imported(&csv(&scene, "sku,location,delta,reference\nA,BER,5,R-1\n").await, 1);
    let order =
        scene.place("k", json!({"lines": [{"sku": "A", "locations": null, "split": false, "quantity": 5}]})).await;
    assert_eq!(scene.reserve(order).await, Outcome::Reserved);
    scene.run("select onehold.post_movement(1, 'A', 'BER', -3, 'adjustment', 'R-2', 'x', true)").await;
    let open = "select coalesce(sum(units), 0)::bigint from onehold.stock_shortfalls where cleared_at is null";
    assert_eq!(scene.number(open).await, 3);
    imported(&csv(&scene, "sku,location,delta,reference\nA,BER,1,R-3\n").await, 1);
    assert_eq!(scene.number(open).await, 2);
    imported(&csv(&scene, "sku,location,delta,reference\nA,BER,3,R-4\n").await, 1);
    assert_eq!(scene.number(open).await, 0);
    assert_eq!(scene.number("select count(*) from onehold.pool_units").await, 1);
    scene.verify().await;
}

#[tokio::test]
async fn it_says_how_many_rows_were_new_and_how_many_known() {
    let scene = Scene::with_machines(0).await;
    let rows = "sku,location,delta,reference\nPSU,BER,1,R-1\nPSU,BER,1,R-2\n";
    let said = |output: &std::process::Output| text(&output.stdout);
    let first = said(&csv(&scene, rows).await);
    assert_eq!(first, "imported 2 rows: 2 new, 0 described anew, 0 known already\n");
    let again = said(&csv(&scene, &format!("{rows}PSU,BER,1,R-3\n")).await);
    assert_eq!(again, "imported 3 rows: 1 new, 0 described anew, 2 known already\n");
}

#[tokio::test]
async fn what_is_packed_or_separated_otherwise_is_told_as_that() {
    let scene = Scene::with_machines(0).await;
    let semicolons = csv(&scene, "sku;location;delta;reference\nPSU;BER;1;R-1\n").await;
    assert!(refused(&semicolons)[0].1.contains("semicolons"), "{semicolons:?}");
    let room = tempfile::tempdir().unwrap();
    let packed = room.path().join("rows.csv");
    std::fs::write(&packed, b"\x1f\x8b\x08\x00rest").unwrap();
    let output = import(&scene, &[packed.to_str().unwrap()], b"").await;
    assert!(!output.status.success() && text(&output.stderr).contains("gzip"), "{output:?}");
}
