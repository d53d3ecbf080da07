//! `/metrics`: who may read it, what it says, and that its labels are bounded (cases P2, P4).

use std::collections::BTreeSet;

use onehold::shops::Scope;
use onehold::web;
use reqwest::Response;
use tokio_util::sync::CancellationToken;

use crate::served::{KEY, Served, problem, shop_with_key};
use crate::support::database;

async fn text(response: Response) -> String {
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    response.text().await.unwrap()
}

/// The value of the sample that begins so.
fn value(text: &str, sample: &str) -> f64 {
    let line = text.lines().find(|line| line.strip_prefix(sample).is_some_and(|rest| rest.starts_with(' ')));
    let line = line.unwrap_or_else(|| panic!("no {sample} in\n{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn metrics_are_for_keys_of_scope_ops() {
    let db = database().await.db;
    let web = Served::start(&db).await;
    let (_, without) = shop_with_key(&db, "a", &[Scope::Orders, Scope::Stock]).await;
    let (_, with) = shop_with_key(&db, "b", &[Scope::Ops]).await;
    let url = format!("{}/metrics", web.base);
    problem(web.client.get(&url), 401, "unauthorized").await;
    problem(web.client.get(&url).bearer_auth("wrong"), 401, "unauthorized").await;
    problem(web.client.get(&url).bearer_auth(without), 403, "forbidden").await;
    text(web.client.get(&url).bearer_auth(with).send().await.unwrap()).await;
}

#[tokio::test]
async fn what_stands_in_the_database_is_told_and_nothing_that_a_client_sent() {
    let db = database().await.db;
    let web = Served::start(&db).await;
    sqlx::raw_sql(
        "insert into onehold.orders (shop_id, idempotency_key, reference, status, payment_state, placed_at) values
             (1, 'a', '<script>S3CRET', 'placed', 'none', now() - interval '1 hour'),
             (1, 'b', 'S3CRET', 'expired', 'refund_due', now()), (1, 'c', 'S3CRET', 'expired', 'refund_due', now());
         insert into apalis.jobs (id, job_type, job, status, attempts, max_attempts, run_at, priority, done_at) values
             ('1', 'reserve', 'S3CRET', 'Pending', 0, 5, now() - interval '90 seconds', 0, null),
             ('2', 'reserve', 'S3CRET', 'Failed', 1, 5, now() + interval '90 seconds', 0, null),
             ('3', 'convert', 'S3CRET', 'Killed', 5, 5, now(), 0, now());",
    )
    .execute(db.pool())
    .await
    .unwrap();
    // A word for a method and a path that nobody has foreseen become no labels.
    let odd = reqwest::Method::from_bytes(b"S3CRET").unwrap();
    web.client.request(odd, format!("{}/S3CRET", web.base)).send().await.unwrap();
    let told = text(web.get("/metrics").send().await.unwrap()).await;
    assert_eq!(value(&told, "onehold_orders_in_trouble{state=\"refund_due\"}"), 2.0);
    assert_eq!(value(&told, "onehold_queue_jobs{queue=\"reserve\",state=\"ready\"}"), 1.0);
    assert_eq!(value(&told, "onehold_queue_jobs{queue=\"reserve\",state=\"later\"}"), 1.0);
    assert_eq!(value(&told, "onehold_queue_jobs{queue=\"convert\",state=\"dead\"}"), 1.0);
    let oldest = value(&told, "onehold_queue_oldest_seconds{queue=\"reserve\"}");
    assert!((90.0..150.0).contains(&oldest), "{oldest}");
    assert!(value(&told, "onehold_placed_oldest_seconds") >= 3_600.0);
    assert!(
        value(&told, "onehold_http_requests_total{route=\"none\",method=\"other\",status=\"404\"}") >= 1.0,
        "{told}"
    );
    assert!(!told.contains("S3CRET") && !told.contains(KEY), "{told}");
}

#[tokio::test]
async fn a_process_without_a_web_app_answers_on_a_port_of_its_own() {
    let db = database().await.db;
    let shutdown = CancellationToken::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(web::serve(listener, web::watching(&db, shutdown.clone()), shutdown.clone()));
    for path in ["/healthz", "/readyz"] {
        assert_eq!(reqwest::get(base.clone() + path).await.unwrap().status(), 200, "{path}");
    }
    assert_eq!(reqwest::get(base.clone() + "/v1/orders").await.unwrap().status(), 404);
    let told = text(reqwest::get(base.clone() + "/metrics").await.unwrap()).await;
    assert_eq!(value(&told, "onehold_database_asked"), 1.0);
    // Without a database there is an answer all the same, without its numbers.
    let nowhere = onehold::db::Db::connect_lazy("postgres://nobody@127.0.0.1:1/none", 2).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(web::serve(listener, web::watching(&nowhere, shutdown.clone()), shutdown.clone()));
    let told = text(reqwest::get(base + "/metrics").await.unwrap()).await;
    assert_eq!(value(&told, "onehold_database_asked"), 0.0);
    assert!(!told.contains("onehold_queue_jobs"), "{told}");
}

/// Each name once with its help, and each in the documentation.
#[tokio::test]
async fn every_metric_is_explained() {
    let db = database().await.db;
    let web = Served::start(&db).await;
    // A transaction, so that what is counted of those stands there too.
    let body = serde_json::json!({"lines": [{"asset": {"category": "box"}}]});
    let placed =
        web.post("/v1/orders").bearer_auth(KEY).header("Idempotency-Key", "k").json(&body).send().await.unwrap();
    let order: serde_json::Value = placed.json().await.unwrap();
    let cancel = format!("/v1/orders/{}/cancel", order["id"].as_str().unwrap());
    assert_eq!(web.post(&cancel).bearer_auth(KEY).send().await.unwrap().status(), 200);
    let told = text(web.get("/metrics").send().await.unwrap()).await;
    let page = include_str!("../docs/metrics.md");
    let names: Vec<&str> = told.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "a name stands there twice: {names:?}");
    for name in &names {
        assert!(page.contains(&format!("`{name}`")), "{name} is missing in docs/metrics.md");
        assert!(told.contains(&format!("# HELP {name} ")), "{name} has no help");
    }
    assert!(value(&told, "onehold_transactions_total{name=\"cancel\",outcome=\"committed\"}") >= 1.0);
    assert!(value(&told, "onehold_transaction_seconds_count{name=\"cancel\"}") >= 1.0);
}

/// Alerts, runbook and dashboard name metrics that are explained, and every alert has its incident.
#[test]
fn every_alert_has_a_page_in_the_runbook_and_asks_for_metrics_that_exist() {
    let (rules, runbook) = (include_str!("../ops/alerts.yml"), include_str!("../docs/runbook.md"));
    let (dashboard, metrics) = (include_str!("../ops/grafana.json"), include_str!("../docs/metrics.md"));
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() >= 10);
    for alert in &alerts {
        assert!(runbook.contains(&format!("\n## {alert}\n")), "{alert} is missing in docs/runbook.md");
        assert!(rules.contains(&format!("docs/runbook.md#{}\n", alert.to_lowercase())), "{alert} leads nowhere");
    }
    assert_eq!(runbook.matches("\n## ").count(), alerts.len(), "the runbook tells of an alert that is none");
    assert!(serde_json::from_str::<serde_json::Value>(dashboard).unwrap()["panels"].as_array().unwrap().len() > 9);
    for text in [rules, runbook, dashboard] {
        // A field of payments and no metric.
        let text = text.replace("metadata.onehold_order", "");
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|w| w.starts_with("onehold_")) {
            let name = ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
            assert!(metrics.contains(&format!("`{name}`")), "{name} is no metric");
        }
    }
}
