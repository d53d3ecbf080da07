//! The bench: what it prints, and where it refuses to measure.

use std::process::Output;

use serde_json::Value;
use tokio::process::Command;

use crate::support::empty_database;
use crate::support::process::binary;

async fn bench(args: &[&str]) -> Output {
    Command::new(binary()).arg("bench").args(args).env("RUST_LOG", "error").kill_on_drop(true).output().await.unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn an_exercise_prints_a_line_of_json_for_each_comparison_and_a_database_in_use_is_not_measured_on() {
    let url = empty_database().await;
    let args = ["--exercise", "--json", "--scenario", "hot-asset", "--on", &url];
    let output = bench(&args).await;
    assert!(output.status.success(), "{}", errors(&output));
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert_eq!(
        (&lines[0]["scenario"], lines[0]["value"].as_f64().is_some_and(|v| v > 0.0)),
        (&"hot-asset".into(), true)
    );
    assert_eq!(lines[0]["ratio"], "refusals to many-skus reservations");
    let again = bench(&args).await;
    assert!(!again.status.success());
    assert!(errors(&again).contains("there are orders or assets in this database"), "{}", errors(&again));
}

#[tokio::test]
async fn a_scenario_that_does_not_exist_is_refused_with_the_names_of_those_that_do() {
    let output = bench(&["--scenario", "hot-skus"]).await;
    assert!(!output.status.success());
    let said = errors(&output);
    assert!(said.contains("hot-skus") && said.contains("hot-sku, many-skus, cart"), "{said}");
}
