//! An import of many rows: its memory, and what is left of one that is killed.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use onehold::allocator::Outcome;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::importer::{LIMIT, command, csv, everything, imported};
use crate::scene::{SHOP, Scene};
use crate::support::{eventually, room};

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
