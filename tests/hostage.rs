//! Why the allocator locks one candidate at a time: the wrong way, measured.

use std::sync::Arc;

use tokio::sync::Barrier;

use crate::scene::Scene;

/// Eight transactions that overlap want one of three machines each. `list` is what each locks; then
/// everybody who got anything takes its first. Gives how many got a machine.
async fn overlap(scene: &Scene, list: &'static str) -> usize {
    let barrier = Arc::new(Barrier::new(8));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (db, barrier) = (scene.db.clone(), barrier.clone());
            tokio::spawn(async move {
                #[allow(clippy::disallowed_methods, reason = "the wrong way, beside the product")]
                let mut tx = db.pool().begin().await.unwrap();
                let locked: Vec<String> = sqlx::query_scalar(list).fetch_all(&mut *tx).await.unwrap();
                // All eight have looked before any of them ends.
                barrier.wait().await;
                tx.commit().await.unwrap();
                usize::from(!locked.is_empty())
            })
        })
        .collect();
    let mut got = 0;
    for task in tasks {
        got += task.await.unwrap();
    }
    got
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn locking_the_set_takes_the_pool_hostage_and_locking_one_at_a_time_does_not() {
    let scene = Scene::with_machines(3).await;
    let set = "select key from onehold.assets where category = 'box' order by key limit 25 for update skip locked";
    let hostage = overlap(&scene, set).await;
    assert!(hostage < 3, "the first to come locks all three, and the others are told that there is nothing: {hostage}");
    let one = "select key from onehold.assets where category = 'box' order by key limit 1 for update skip locked";
    assert_eq!(overlap(&scene, one).await, 3);
}
