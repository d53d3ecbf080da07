//! `onehold top --once`: what scripts read of how things stand.

use std::process::Output;

use tokio::process::Command;

use crate::scene::Scene;
use crate::support::process::binary;

async fn top(url: &str, args: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(["top", "--once", "--database-url", url]).args(args).env("RUST_LOG", "error");
    command.kill_on_drop(true).output().await.unwrap()
}

#[tokio::test]
async fn it_says_what_is_wrong_first_and_ends() {
    let scene = Scene::with_machines(1).await;
    scene.reserved("a").await;
    scene.run("update apalis.jobs set status = 'Killed', done_at = now(), attempts = max_attempts").await;
    let output = top(&scene.test.url, &[]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let wrong: Vec<&str> = said.lines().skip(2).take_while(|line| !line.is_empty()).collect();
    assert_eq!(wrong.len(), 2, "{said}");
    assert!(wrong.iter().any(|line| line.starts_with("bad  No worker is alive.")), "{said}");
    assert!(wrong.iter().any(|line| line.starts_with("bad  reserve: 1 dead letters.")), "{said}");
    let queue = said.lines().find(|line| line.starts_with("reserve ")).unwrap();
    assert_eq!(queue.split_whitespace().collect::<Vec<_>>(), ["reserve", "0", "0", "ms", "0", "0", "1"], "{said}");
    assert!(!said.contains('\u{1b}'), "colours are for terminals");
}

#[tokio::test]
async fn a_shop_is_looked_at_by_its_name() {
    let scene = Scene::with_machines(0).await;
    assert!(top(&scene.test.url, &["--shop", "main"]).await.status.success());
    let output = top(&scene.test.url, &["--shop", "nowhere"]).await;
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no shop nowhere"));
}
