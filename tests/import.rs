//! `onehold import` as a person runs it: the executable, a file or standard input, and what then stands in the
//! database. Cases L1, L3, L4, C6, M2, M4 for rows of a file.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use onehold::allocator::Outcome;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::scene::{SHOP, Scene};
use crate::support::process::binary;
use crate::support::{eventually, room};

const LIMIT: Duration = Duration::from_secs(120);

/// Runs the import of `input` from standard input.
async fn import(scene: &Scene, args: &[&str], input: &[u8]) -> Output {
    let mut child = command(scene, args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // It may end before it has read all.
    let writer = tokio::spawn(async move {
        let _ = stdin.write_all(&input).await;
    });
    let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await.expect("it ends in time").unwrap();
    writer.await.unwrap();
    output
}

fn command(scene: &Scene, args: &[&str]) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(binary());
    command.arg("import").args(args).env("DATABASE_URL", &scene.test.url).env("RUST_LOG", "warn");
    for name in ["ONEHOLD_SHOP", "ONEHOLD_IMPORT_ASSETS", "ONEHOLD_IMPORT_STOCK", "ONEHOLD_IMPORT_FORMAT"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

async fn csv(scene: &Scene, input: &str) -> Output {
    import(scene, &["-", "--format", "csv"], input.as_bytes()).await
}

async fn ndjson(scene: &Scene, input: &str) -> Output {
    import(scene, &["-", "--format", "ndjson"], input.as_bytes()).await
}

#[track_caller]
fn imported(output: &Output, rows: u64) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{err}");
    assert_eq!(out, format!("imported {rows} rows\n"), "{err}");
    assert_eq!(err, "", "without a terminal there is nothing to draw");
}

/// The lines that were named as bad, with their reasons.
#[track_caller]
fn refused(output: &Output) -> Vec<(u64, String)> {
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert_eq!(text(&output.stdout), "");
    assert!(err.contains("nothing was written"), "{err}");
    let named = err.lines().filter_map(|line| line.strip_prefix("line ")?.split_once(": "));
    named.map(|(line, reason)| (line.parse().unwrap(), reason.to_owned())).collect()
}

#[track_caller]
fn refused_lines(output: &Output) -> Vec<u64> {
    refused(output).into_iter().map(|(line, _)| line).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A file in a room of its own.
fn file(room: &tempfile::TempDir, name: &str, content: &str) -> PathBuf {
    let path = room.path().join(name);
    std::fs::write(&path, content).unwrap();
    path
}

async fn on_hand(scene: &Scene, sku: &str) -> i64 {
    scene
        .number(&format!("select coalesce(sum(delta), 0)::bigint from onehold.stock_movements where sku = '{sku}'"))
        .await
}

async fn everything(scene: &Scene) -> i64 {
    scene
        .number(
            "select (select count(*) from onehold.stock_movements) + (select count(*) from onehold.assets)
                  + (select count(*) from onehold.stock_levels) + (select count(*) from onehold.locations)",
        )
        .await
}

#[tokio::test]
async fn stock_comes_from_csv_and_can_be_ordered_at_once() {
    let scene = Scene::with_machines(0).await;
    let room = room();
    let path = file(
        &room,
        "Stock.CSV",
        "\u{feff}location,reference,sku,delta,kind\r\nBER,PO-1,PSU,5,\r\n\r\nFRA,PO-2,\" PSU \",1e3,return\r\nBER,PO-3,FAN,2,adjustment",
    );
    let output = command(&scene, &[path.to_str().unwrap()]).output().await.unwrap();
    imported(&output, 3);
    assert_eq!((on_hand(&scene, "PSU").await, on_hand(&scene, "FAN").await), (1005, 2));
    let written = "select count(*) from onehold.stock_movements where actor = 'import' and (reference, kind) in
        (('PO-1', 'receipt'), ('PO-2', 'return'), ('PO-3', 'adjustment'))";
    assert_eq!(scene.number(written).await, 3);
    assert_eq!(scene.number("select count(*) from onehold.pool_units").await, 1007);
    let lines = json!({"lines": [{"sku": "PSU", "locations": ["BER"], "split": false, "quantity": 5}]});
    let order = scene.place("k", lines).await;
    assert_eq!(scene.reserve(order).await, Outcome::Reserved);
    scene.verify().await;
}

#[tokio::test]
async fn stock_comes_from_ndjson() {
    let scene = Scene::with_machines(0).await;
    let rows = "{\"sku\": \"PSU\", \"location\": \"BER\", \"delta\": 5, \"reference\": \"PO-1\"}\n\n  \n\
        {\"sku\": \"PSU\", \"location\": \"BER\", \"delta\": 7, \"reference\": \"PO\\\\2\", \"kind\": \"return\"}\r\n";
    imported(&ndjson(&scene, &format!("\u{feff}{rows}")).await, 2);
    assert_eq!(on_hand(&scene, "PSU").await, 12);
    assert_eq!(scene.number("select count(*) from onehold.stock_movements where reference = 'PO\\2'").await, 1);
    scene.verify().await;
}

#[tokio::test]
async fn assets_come_from_csv_and_ndjson_with_all_they_can_have() {
    let scene = Scene::with_machines(0).await;
    let rows = "key,category,location,vendor,status,rank,available_from,attributes,attributes.raid,attributes.serial\n\
        m-1,box,BER,Dell,maintenance,-3,2030-01-31T12:00:00+01:00,\"{\"\"ram\"\": 256, \"\"s\"\": \"\"a\\\\b\"\"}\",true,007\n\
        m-2,box,BER,,,,,,,\n";
    imported(&csv(&scene, rows).await, 2);
    let whole = r#"select count(*) from onehold.assets where (key, category, location, vendor, status, rank) =
        ('m-1', 'box', 'BER', 'Dell', 'maintenance', -3) and available_from = '2030-01-31 11:00:00+00'
        and attributes = '{"ram": 256, "s": "a\\b", "raid": true, "serial": "007"}'"#;
    assert_eq!(scene.number(whole).await, 1);
    let bare = "select count(*) from onehold.assets where (key, status, rank) = ('m-2', 'ready', 0)
        and vendor is null and available_from is null and attributes = '{}'";
    assert_eq!(scene.number(bare).await, 1);
    let rows = r#"{"key": "m-3", "category": "box", "location": "FRA", "attributes": {"ram": 1}, "available_from": "0000-06-01T00:00:00Z"}"#;
    imported(&ndjson(&scene, rows).await, 1);
    assert_eq!(
        scene
            .number("select count(*) from onehold.assets where key = 'm-3' and extract(year from available_from) = -1")
            .await,
        1
    );
    assert_eq!(scene.number("select count(*) from onehold.locations where name in ('BER', 'FRA')").await, 2);
    let order = scene.place_one("k").await;
    assert_eq!(scene.reserve(order).await, Outcome::Reserved);
    scene.verify().await;
}

#[tokio::test]
async fn every_bad_row_is_named_by_its_line_and_nothing_is_written() {
    let scene = Scene::with_machines(0).await;
    let rows = "key,category,location,vendor,rank,attributes\r\n\
        good-1,box,BER,\"Dell\r\n\",1,{}\r\n\
        \r\n\
        ,box,BER,,,\r\n\
        good-2,box,BER,Dell,1,\"{\r\n\"\"ram\"\": 1,\r\n\"\"x\"\": [1]}\"\r\n\
        bad-1,,BER,,1.5,[]\r\n\
        bad-2,box,BER,Dell\r\n\
        bad-3,box,BER,,,{\r\n\
        bad\u{1}4,box,BER,,,\"{\"\"a\"\": \"\"\\u0000\"\"}\"\r\n";
    let bad = refused(&csv(&scene, rows).await);
    let lines: Vec<u64> = bad.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [2, 5, 9, 10, 11, 12]);
    assert!(bad[0].1.contains("vendor must not contain control characters"), "{bad:?}");
    assert!(bad[1].1.contains("key is missing"), "{bad:?}");
    for part in ["category is missing", "rank must be a whole number", "attributes must be an object"] {
        assert!(bad[2].1.contains(part), "{bad:?}");
    }
    assert!(bad[3].1.contains("4 fields"), "{bad:?}");
    assert!(bad[4].1.contains("attributes is not JSON"), "{bad:?}");
    assert!(bad[5].1.contains("key must not") && bad[5].1.contains("attributes/a must not contain U+0000"), "{bad:?}");
    let rows = "{\"key\": \"good\", \"category\": \"box\", \"location\": \"BER\"}\n{\n\"x\"\n\
        {\"key\": 5, \"category\": \"box\", \"location\": \"BER\", \"colour\": 1}\n";
    let bad = refused(&ndjson(&scene, rows).await);
    assert_eq!(bad.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 3, 4]);
    assert!(bad[0].1.contains("not JSON") && bad[1].1.contains("must be an object"), "{bad:?}");
    assert!(bad[2].1.contains("key must be a string") && bad[2].1.contains("colour is not a known field"), "{bad:?}");
    assert_eq!(everything(&scene).await, 0);
}

#[tokio::test]
async fn bad_movements_are_those_that_the_api_refuses_and_those_that_take_away() {
    let scene = Scene::with_machines(0).await;
    let rows = "sku,location,delta,reference,kind\nA,BER,1,R-1,\nA,BER,0,R-2,\nA,BER,-5,R-3,adjustment\nA,BER,-5,R-4,\n\
        A,BER,2147483648,R-5,\nA,BER,x,R-6,\nA,BER,1,,\nA,BER,1,onehold:sale:1,\nA,BER,1,R-9,sale\n,BER,1,R-10,\n";
    let bad = refused(&csv(&scene, rows).await);
    let parts = [
        "delta must not be 0",
        "delta must be positive in an import",
        "delta must be positive",
        "delta must be a",
        "delta must be a",
        "reference is missing",
        "must not begin with onehold:",
        "kind must be one of",
        "sku is missing",
    ];
    assert_eq!(bad.len(), parts.len(), "{bad:?}");
    for (n, (part, (line, reason))) in parts.iter().zip(&bad).enumerate() {
        assert_eq!(*line, n as u64 + 3);
        assert!(reason.contains(part), "line {line}: {reason}");
    }
    let forced = r#"{"sku": "A", "location": "BER", "delta": 1, "reference": "R", "force": true}"#;
    assert!(refused(&ndjson(&scene, forced).await)[0].1.contains("force"));
    assert_eq!(everything(&scene).await, 0);
}

#[tokio::test]
async fn text_that_is_not_utf_8_is_a_bad_row() {
    let scene = Scene::with_machines(0).await;
    let rows = b"sku,location,delta,reference\nA,BER,1,R-1\nA\xff,BER,1,R-2\nA\xc3,\xa9BER,1,R-3\nA,BER,1,R-4\n";
    let bad = refused(&import(&scene, &["-", "--format=csv"], rows).await);
    assert_eq!(bad.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [3, 4]);
    assert!(bad[0].1.contains("sku is not UTF-8"), "{bad:?}");
    let rows = b"{\"sku\": \"A\", \"location\": \"BER\", \"delta\": 1, \"reference\": \"R\"}\n{\"sku\": \"\xff\"}\n";
    assert_eq!(refused_lines(&import(&scene, &["-", "--format=ndjson"], rows).await), [2]);
    // A file in UTF-16, as some programs save it, fails in its header.
    assert_eq!(refused_lines(&import(&scene, &["-", "--format=csv"], b"\xff\xfek\0e\0y\0\n\0").await), [1]);
    assert_eq!(everything(&scene).await, 0);
}

#[tokio::test]
async fn the_first_hundred_bad_rows_are_named_and_the_others_counted() {
    let scene = Scene::with_machines(0).await;
    let mut rows = "sku,location,delta,reference\n".to_owned();
    for n in 0..1_000 {
        // Every fourth cannot be read, and every fourth repeats a reference.
        let (delta, reference) = if n % 4 == 0 { (0, n) } else { (1, n - n % 4 + n % 4 % 3) };
        rows += &format!("A,BER,{delta},R-{reference}\n");
    }
    let output = csv(&scene, &rows).await;
    let lines = refused_lines(&output);
    let expected: Vec<u64> = (2..).filter(|line| (line - 2) % 4 == 0).take(100).collect();
    assert_eq!(lines, expected);
    assert!(text(&output.stderr).contains("and 150 more"), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("250 rows are bad"), "{}", text(&output.stderr));
    assert_eq!(everything(&scene).await, 0);
}

#[tokio::test]
async fn an_input_that_says_nothing_of_itself_is_refused() {
    let scene = Scene::with_machines(0).await;
    for (input, said) in [
        ("", "no header"),
        ("location,delta\nBER,1\n", "key` or `sku"),
        ("sku,key\n", "key` or `sku"),
        ("sku,sku,locatoin\n", "locatoin"),
        ("sku;location\n", "key` or `sku"),
    ] {
        let bad = refused(&csv(&scene, input).await);
        assert_eq!((bad.len(), bad[0].0), (1, 1), "{bad:?}");
        assert!(bad[0].1.contains(said), "{bad:?}");
    }
    let bad = refused(&ndjson(&scene, "{\n{\"location\": \"BER\"}\n{}\n").await);
    assert_eq!((bad[0].0, bad[1].0, bad.len()), (1, 2, 2), "{bad:?}");
    // Told what they are, rows are looked at one by one.
    let bad = refused(&import(&scene, &["-", "--format=ndjson", "--stock"], b"{\"key\": \"a\"}\n{}\n").await);
    assert_eq!(bad.len(), 2);
    assert!(bad[0].1.contains("key is not a known field"), "{bad:?}");
    let columns = import(&scene, &["-", "--format=csv", "--assets"], b"sku,location\n").await;
    assert!(refused(&columns)[0].1.contains("\"sku\" is not known"));
    for args in [
        &["-"][..],
        &["rows.json"],
        &["/nowhere/rows.csv"],
        &["-", "--format=csv", "--shop=none"],
        &["/", "--format=csv"],
    ] {
        let output = import(&scene, args, b"").await;
        assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}");
        assert!(text(&output.stderr).starts_with("onehold: "), "{args:?}: {}", text(&output.stderr));
    }
    let both = import(&scene, &["-", "--format=csv", "--assets", "--stock"], b"").await;
    assert_eq!(both.status.code(), Some(2));
    // Nothing but a header is no rows.
    imported(&csv(&scene, "sku,location,delta,reference\n").await, 0);
    imported(&ndjson(&scene, "").await, 0);
}

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
async fn an_input_that_breaks_off_writes_nothing() {
    let scene = Scene::with_machines(0).await;
    let mut child = command(&scene, &["-", "--format=csv"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"sku,location,delta,reference\n").await.unwrap();
    // More than one piece, so that the transaction has begun and the rows lie beside the ledger.
    for n in 0..100_000 {
        stdin.write_all(format!("A,BER,5,a-reference-of-some-length-{n}\n").as_bytes()).await.unwrap();
    }
    eventually(LIMIT, || async {
        scene.number("select count(*) from pg_locks where locktype = 'advisory' and classid = 1768778863").await > 0
    })
    .await;
    child.kill().await.unwrap();
    assert_eq!(everything(&scene).await, 0);
    drop(stdin);
    imported(&csv(&scene, "sku,location,delta,reference\nA,BER,5,R-1\n").await, 1);
}

#[tokio::test]
async fn two_hundred_thousand_rows_take_bounded_memory() {
    // The file is larger than that.
    const MOST_KIB: u64 = 50 * 1024;
    let scene = Scene::with_machines(0).await;
    let room = room();
    let path = room.path().join("stock.csv");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    file.write_all(b"sku,location,delta,reference\n").unwrap();
    for n in 0..200_000 {
        writeln!(file, "SKU-{},L-{},1,{:0>240}", n % 7, n % 11, n).unwrap();
    }
    file.flush().unwrap();
    let child = command(&scene, &[path.to_str().unwrap()]).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id().unwrap());
    let watcher = tokio::spawn(async move {
        let mut peak = 0;
        // Until it is gone: a process that has ended has no peak any more.
        while let Some(kib) = std::fs::read_to_string(&status).ok().and_then(|text| high_water(&text)) {
            peak = kib;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        peak
    });
    let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await.expect("it ends in time").unwrap();
    imported(&output, 200_000);
    let peak = watcher.await.unwrap();
    assert!(peak > 0 && peak < MOST_KIB, "{peak} KiB at the most");
    let sum = "select sum(f.on_hand)::bigint from onehold.stock_levels l, onehold.pool_figures(1, l.sku, l.location) f";
    assert_eq!(scene.number(sum).await, 200_000);
    let order = scene
        .place("k", json!({"lines": [{"sku": "SKU-3", "locations": null, "split": false, "quantity": 900}]}))
        .await;
    assert_eq!(onehold::allocator::run(&scene.db, SHOP, order).await.unwrap(), Outcome::Reserved);
    scene.verify().await;
}

fn high_water(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}
