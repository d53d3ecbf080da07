//! Endpoints: which may be used, how they are added, listed, disabled and told again, and what `verify` sees.

use std::time::Duration;

use onehold::courier::endpoints::{self, Added};
use onehold::shops::Scope;
use serde_json::json;
use tokio::process::Command;

use crate::courier::{courier, deliveries, endpoint};
use crate::receiver::{Receiver, ok};
use crate::scene::{SHOP, Scene};
use crate::served::{Served, answer, problem, shop_with_key};
use crate::support::eventually;
use crate::support::process::binary;

const LIMIT: Duration = Duration::from_secs(40);

#[tokio::test]
async fn what_leads_inside_is_refused_when_it_is_added() {
    let scene = Scene::with_machines(0).await;
    for (url, why) in [
        ("https://127.0.0.1/x", "leads to"),
        ("https://localhost/x", "leads to"),
        ("https://[::1]:1/x", "leads to"),
        ("https://[::ffff:10.0.0.1]/x", "leads to"),
        ("https://0x7f.1/x", "leads to"),
        ("https://169.254.169.254/latest/meta-data", "leads to"),
        ("http://192.0.2.1/x", "https://"),
        ("ftp://example.com", "https://"),
        ("https://user:pass@example.com/", "user or password"),
        ("https://name.invalid/x", "cannot be looked up"),
        ("nonsense", "is not a URL"),
    ] {
        match endpoints::add(&scene.db, SHOP, url, false).await.unwrap() {
            Added::Unusable(said) => assert!(said.contains(why), "{url}: {said}"),
            Added::New { .. } => panic!("{url}"),
        }
    }
    assert!(matches!(endpoints::add(&scene.db, SHOP, "ftp://x", true).await.unwrap(), Added::Unusable(_)));
    assert_eq!(scene.number("select count(*) from onehold.endpoints").await, 0);
}

#[tokio::test]
async fn a_name_that_leads_inside_only_when_it_is_delivered_is_refused_then() {
    let scene = Scene::with_machines(1).await;
    let receiver = Receiver::start(|_| ok()).await;
    // As if the names had been looked up elsewhere when they were added.
    for host in ["localhost", "127.0.0.1", "[::ffff:127.0.0.1]"] {
        let insert = format!(
            "insert into onehold.endpoints (shop_id, url, secret) values (1, 'https://{host}:{}/', 'whsec_YWFhYQ==')",
            receiver.port
        );
        scene.run(&insert).await;
    }
    scene.reserved("a").await;
    let _courier = courier(&scene);
    let refused = "select count(*) from onehold.delivery_attempts where error like '%private, loopback%'";
    let tried = "select count(*) from onehold.delivery_attempts";
    eventually(LIMIT, || async { scene.number(tried).await == 3 }).await;
    let errors: Vec<String> =
        sqlx::query_scalar("select error from onehold.delivery_attempts").fetch_all(scene.db.pool()).await.unwrap();
    assert_eq!(scene.number(refused).await, 3, "{errors:?}");
    assert_eq!(*receiver.connections.lock().unwrap(), 0);
}

#[tokio::test]
async fn operators_see_what_was_told_and_tell_it_again() {
    let scene = Scene::with_machines(3).await;
    let web = Served::start(&scene.db).await;
    let mut receiver = Receiver::start(|_| ok()).await;
    let (id, secret) = endpoint(&scene, &receiver).await;
    let _courier = courier(&scene);
    for key in ["a", "b", "c"] {
        scene.reserved(key).await;
    }
    eventually(LIMIT, || async { deliveries(&scene, id, "delivered").await.len() == 3 }).await;
    let first = receiver.rest().remove(0);

    let (status, listed) = answer(web.get("/v1/endpoints")).await;
    assert_eq!((status, &listed["data"][0]["id"]), (200, &json!(id)));
    assert!(!listed.to_string().contains(&secret), "a secret is shown once");
    let path = format!("/v1/endpoints/{id}/deliveries");
    let (_, page) = answer(web.get(&format!("{path}?limit=2"))).await;
    let next = page["next_cursor"].as_str().unwrap();
    let (_, rest) = answer(web.get(&format!("{path}?limit=2&cursor={next}"))).await;
    assert_eq!((page["data"].as_array().unwrap().len(), rest["data"].as_array().unwrap().len()), (2, 1));
    assert_eq!((&rest["data"][0]["event"], &rest["data"][0]["attempts"][0]["status"]), (&json!(first.id), &json!(200)));
    problem(web.get(&format!("{path}?state=lost")), 400, "invalid_query").await;

    let replay = format!("/v1/endpoints/{id}/replay");
    let again = |body: serde_json::Value| web.post(&replay).bearer_auth(crate::served::KEY).json(&body);
    assert_eq!(answer(again(json!({"event": first.id}))).await, (202, json!({"events": 1, "go_on_from": null})));
    let same = receiver.next().await;
    assert_eq!((same.id, same.body), (first.id.clone(), first.body), "the same, with the same id");
    let everything = json!({"since": "2020-01-01T00:00:00Z"});
    assert_eq!(answer(again(everything.clone())).await.1["events"], 3);
    for _ in 0..3 {
        receiver.next().await;
    }
    for bad in [
        json!({}),
        json!({"event": first.id, "since": "2020-01-01T00:00:00Z"}),
        json!({"since": "soon"}),
        json!({"until": "2020-01-01T00:00:00Z"}),
        json!({"event": 5}),
        json!({"since": "2020-01-01T00:00:00Z", "x": 1}),
    ] {
        problem(again(bad), 422, "invalid_body").await;
    }
    problem(again(json!({"event": uuid_of_nothing()})), 404, "not_found").await;

    let (_, key) = shop_with_key(&scene.db, "other", &[Scope::Ops]).await;
    problem(web.post(&replay).bearer_auth(&key).json(&everything), 404, "not_found").await;
    let (_, key) = shop_with_key(&scene.db, "third", &[Scope::Orders]).await;
    problem(web.post(&replay).bearer_auth(&key).json(&everything), 403, "forbidden").await;
    endpoints::disable(&scene.db, SHOP, id, "by test").await.unwrap();
    problem(again(everything), 409, "endpoint_disabled").await;
}

fn uuid_of_nothing() -> &'static str {
    "00000000-0000-7000-8000-000000000000"
}

#[tokio::test]
async fn an_endpoint_that_came_late_is_told_what_others_were_told() {
    let scene = Scene::with_machines(1).await;
    let receiver = Receiver::start(|_| ok()).await;
    let mut late = Receiver::start(|_| ok()).await;
    endpoint(&scene, &receiver).await;
    scene.reserved("a").await;
    let (id, _) = endpoint(&scene, &late).await;
    let window = endpoints::Window { since: "2020-01-01T00:00:00Z".parse().unwrap(), until: chrono::Utc::now() };
    endpoints::replay(&scene.db, SHOP, id, endpoints::Which::Within(window)).await.unwrap();
    let _courier = courier(&scene);
    assert_eq!(late.next().await.kind(), "order.reserved");
}

#[tokio::test]
async fn the_command_line_shows_a_secret_once() {
    let scene = Scene::with_machines(0).await;
    let run = |args: Vec<String>| {
        let url = scene.test.url.clone();
        async move {
            let out =
                Command::new(binary()).arg("endpoints").args(&args).env("DATABASE_URL", url).output().await.unwrap();
            let said = [out.stdout, out.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
            (out.status.success(), said)
        }
    };
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (refused, said) = run(words("add https://127.0.0.1/x")).await;
    assert!(!refused && said.contains("private"), "{said}");
    let (added, said) = run(words("add http://127.0.0.1:9/x --allow-private")).await;
    assert!(added, "{said}");
    let (id, secret) = said.trim().split_once('\t').unwrap();
    assert!(secret.starts_with("whsec_"));
    let (_, listed) = run(words("list")).await;
    assert!(listed.contains(id) && listed.contains("live") && !listed.contains(secret), "{listed}");
    let (replayed, said) = run(words(&format!("replay {id} --since 2020-01-01T00:00:00Z"))).await;
    assert!(replayed && said.starts_with("0 events"), "{said}");
    let (done, said) = run(words(&format!("disable {id}"))).await;
    assert!(done && said.contains("is disabled"), "{said}");
    let (_, listed) = run(words("list")).await;
    assert!(listed.contains("disabled"), "{listed}");
    assert!(!run(words(&format!("disable {}", uuid_of_nothing()))).await.0);
    assert!(!run(words("list --shop none")).await.0);
}

#[tokio::test]
async fn verify_sees_a_decision_that_was_not_told_and_one_that_goes_nowhere() {
    let scene = Scene::with_machines(1).await;
    let receiver = Receiver::start(|_| ok()).await;
    endpoint(&scene, &receiver).await;
    scene.run("update onehold.endpoints set created_at = now() - interval '1 hour'").await;
    scene.reserved("a").await;
    scene.verify().await;
    let broken = |says: &'static str| {
        let db = scene.db.clone();
        async move {
            let checks = onehold::ops::verify::verify(&db, |_| {}).await.unwrap();
            checks.into_iter().find(|check| check.invariant.contains(says)).unwrap().broken
        }
    };
    scene.run("delete from onehold.deliveries").await;
    assert_eq!(broken("every outbound event is of a decision").await, 1);
    scene.run("delete from onehold.outbound_events").await;
    assert_eq!(broken("has exactly one outbound event").await, 1);
}
