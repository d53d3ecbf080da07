//! `onehold import` as a person runs it: the executable, a file or standard input, and what it says.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;

use crate::scene::Scene;
use crate::support::process::binary;

/// How long an import may take here.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Runs the import of `input` from standard input.
pub(crate) async fn import(scene: &Scene, args: &[&str], input: &[u8]) -> Output {
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

/// A command that imports, without any setting but the database.
pub(crate) fn command(scene: &Scene, args: &[&str]) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(binary());
    command.arg("import").args(args).env("DATABASE_URL", &scene.test.url).env("RUST_LOG", "warn");
    for name in ["ONEHOLD_SHOP", "ONEHOLD_IMPORT_ASSETS", "ONEHOLD_IMPORT_STOCK", "ONEHOLD_IMPORT_FORMAT"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// Runs the import of CSV from standard input.
pub(crate) async fn csv(scene: &Scene, input: &str) -> Output {
    import(scene, &["-", "--format", "csv"], input.as_bytes()).await
}

/// Runs the import of NDJSON from standard input.
pub(crate) async fn ndjson(scene: &Scene, input: &str) -> Output {
    import(scene, &["-", "--format", "ndjson"], input.as_bytes()).await
}

/// It imported so many rows, and said so.
#[track_caller]
pub(crate) fn imported(output: &Output, rows: u64) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{err}");
    assert!(out.starts_with(&format!("imported {rows} rows: ")), "{out}{err}");
    assert_eq!(err, "", "without a terminal there is nothing to draw");
}

/// The lines that were named as bad, with their reasons.
#[track_caller]
pub(crate) fn refused(output: &Output) -> Vec<(u64, String)> {
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert_eq!(text(&output.stdout), "");
    assert!(err.contains("nothing was written"), "{err}");
    let named = err.lines().filter_map(|line| line.strip_prefix("line ")?.split_once(": "));
    named.map(|(line, reason)| (line.parse().unwrap(), reason.to_owned())).collect()
}

/// The lines that were named as bad.
#[track_caller]
pub(crate) fn refused_lines(output: &Output) -> Vec<u64> {
    refused(output).into_iter().map(|(line, _)| line).collect()
}

/// What was printed.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A file in a room of its own.
pub(crate) fn file(room: &tempfile::TempDir, name: &str, content: &str) -> PathBuf {
    let path = room.path().join(name);
    std::fs::write(&path, content).unwrap();
    path
}

/// The sum of a SKU's movements.
pub(crate) async fn on_hand(scene: &Scene, sku: &str) -> i64 {
    scene
        .number(&format!("select coalesce(sum(delta), 0)::bigint from onehold.stock_movements where sku = '{sku}'"))
        .await
}

/// How many rows there are of all that an import can write.
pub(crate) async fn everything(scene: &Scene) -> i64 {
    scene
        .number(
            "select (select count(*) from onehold.stock_movements) + (select count(*) from onehold.assets)
                  + (select count(*) from onehold.stock_levels) + (select count(*) from onehold.locations)",
        )
        .await
}
