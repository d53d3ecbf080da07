//! What an import reads: CSV and NDJSON, whole or with rows that do not fit. Cases L1, L3, L4 for rows of a file.

use onehold::allocator::Outcome;
use serde_json::json;

use crate::importer::{
    command, csv, everything, file, import, imported, ndjson, on_hand, refused, refused_lines, text,
};
use crate::scene::Scene;
use crate::support::room;

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
        ("sku;location\n", "semicolons"),
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
