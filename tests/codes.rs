//! What stands in the database by name and in the code by enum is one list.

use onehold::orders::{PaymentState, Status};
use onehold::payments::{Effect, Provider};
use onehold::queue::catalogue::{CONVERT, RESERVE};
use onehold::reservations::state::STATES;
use onehold::shops::Scope;
use serde_json::json;

use crate::scene::Scene;

/// The quoted words of a check constraint.
async fn words(scene: &Scene, constraint: &str) -> Vec<String> {
    let definition: String =
        sqlx::query_scalar("select pg_get_constraintdef(oid) from pg_constraint where conname = $1")
            .bind(constraint)
            .fetch_one(scene.db.pool())
            .await
            .unwrap();
    let mut words: Vec<_> = definition.split('\'').skip(1).step_by(2).map(str::to_owned).collect();
    words.sort_unstable();
    words
}

fn sorted<'a>(codes: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut codes: Vec<_> = codes.into_iter().map(str::to_owned).collect();
    codes.sort_unstable();
    codes
}

#[tokio::test]
async fn the_databases_lists_of_states_are_the_enums() {
    let scene = Scene::with_machines(0).await;
    let effects =
        [Effect::Succeeded, Effect::Failed, Effect::Refunded, Effect::Disputed, Effect::Abandoned, Effect::None];
    for (constraint, codes) in [
        ("order_status_is_known", sorted(Status::ALL.iter().map(|s| s.code()))),
        ("payment_state_is_known", sorted(PaymentState::ALL.iter().map(|s| s.code()))),
        ("reservation_state_is_known", sorted(STATES.iter().map(|(_, code, _)| *code))),
        ("effect_is_known", sorted(effects.iter().map(|e| e.code()))),
        ("payment_provider_is_known", sorted([Provider::Stripe, Provider::Standard].iter().map(|p| p.code()))),
        ("provider_is_known", sorted([Provider::Stripe, Provider::Standard].iter().map(|p| p.code()))),
        ("scopes_are_known", sorted(Scope::ALL.iter().map(|s| s.code()))),
    ] {
        assert_eq!(words(&scene, constraint).await, codes, "{constraint}");
    }
}

/// Jobs that SQL puts into a queue have the attempts that the catalogue says.
#[tokio::test]
async fn jobs_put_in_by_sql_have_the_attempts_of_the_catalogue() {
    let scene = Scene::with_machines(1).await;
    let body = json!({"reference": "R", "lines": [{"asset": {"category": "box"}, "quantity": 1}]});
    scene.keep_event("R", "evt", "succeeded").await;
    scene.place("k", body).await;
    for queue in [RESERVE, CONVERT] {
        let attempts = format!("select max_attempts::bigint from apalis.jobs where job_type = '{}'", queue.name);
        assert_eq!(scene.number(&attempts).await, i64::from(queue.max_attempts), "{}", queue.name);
    }
}
