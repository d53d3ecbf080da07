//! The pages of the dashboard over real HTTP: what they show, what they hide, and what they let whom do
//! (cases P1, P3, P4).

use onehold::shops::Scope;
use sqlx::types::Uuid;

use crate::ops_sign_in::{browser, form_token, page, signed_in};
use crate::queue_support::put;
use crate::scene::Scene;
use crate::served::{KEY, Served, shop_with_key};

/// Every page that needs no name of a thing, or names one that is always there.
pub(crate) const PAGES: &[&str] =
    &["/ops", "/ops/orders", "/ops/inventory", "/ops/queues", "/ops/queues/reserve", "/ops/connections"];

/// Sends the form of a page as a browser would; gives the status, and where it leads or what it says.
pub(crate) async fn act(web: &Served, cookie: &str, path: &str, fields: &[(&str, &str)]) -> (u16, String) {
    let (_, shown) = page(web, "/ops", cookie).await;
    let mut form = vec![("form_token", form_token(&shown))];
    form.extend_from_slice(fields);
    post(web, cookie, path, &form).await
}

async fn post(web: &Served, cookie: &str, path: &str, form: &[(&str, &str)]) -> (u16, String) {
    let request = browser().post(web.base.clone() + path).header("cookie", cookie).form(form);
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    match answer.headers().get("location") {
        Some(to) => (status, to.to_str().unwrap().to_owned()),
        None => (status, answer.text().await.unwrap()),
    }
}

/// A shop with machines, and what serves it.
async fn stage(machines: i32) -> (Scene, Served) {
    let scene = Scene::with_machines(machines).await;
    let web = Served::start(&scene.db).await;
    (scene, web)
}

/// The text of a page that is there.
async fn shown(web: &Served, cookie: &str, path: &str) -> String {
    let (status, text) = page(web, path, cookie).await;
    assert_eq!(status, 200, "{path}: {text}");
    text
}

#[tokio::test]
async fn every_page_asks_nothing_of_other_sites_and_runs_nothing_inline() {
    let (scene, web) = stage(1).await;
    let id = scene.reserved("a").await;
    put(&scene.db, onehold::queue::catalogue::RESERVE, "k", "{}", 3).await;
    let job: String =
        sqlx::query_scalar("select id from apalis.jobs limit 1").fetch_one(scene.db.pool()).await.unwrap();
    let cookie = signed_in(&web, KEY).await;
    let mut paths: Vec<String> = PAGES.iter().map(|path| (*path).to_owned()).collect();
    paths.extend([format!("/ops/orders/{id}"), format!("/ops/jobs/{job}"), "/ops/sign-in".to_owned()]);
    for path in &paths {
        let text = shown(&web, &cookie, path).await;
        for foreign in ["http://", "https://", "src=\"//", "style=\"", "onclick", "<script>"] {
            assert!(!text.contains(foreign), "{path} has {foreign}");
        }
        assert!(text.contains("<html lang=\"en\">") && text.contains("name=\"viewport\""), "{path}");
        assert!(text.contains("id=\"content\"") && text.contains("<h1>"), "{path}");
        for part in text.split("href=\"").skip(1).chain(text.split("src=\"").skip(1)) {
            let to = part.split('"').next().unwrap();
            assert!(to.starts_with("/ops") || to.starts_with('#'), "{path} leads to {to}");
        }
    }
    for file in ["/ops/style.css", "/ops/live.js", "/ops/icon.svg"] {
        let text = shown(&web, "", file).await;
        assert!(!text.contains("url(") && !text.contains("@import") && !text.contains("https:"), "{file}");
    }
    for path in
        ["/ops/orders/nonsense", "/ops/orders/019b0000-0000-7000-8000-000000000000", "/ops/jobs/x", "/ops/queues/x"]
    {
        assert_eq!(page(&web, path, &cookie).await.0, 404, "{path}");
    }
}

#[tokio::test]
async fn an_order_is_found_by_whatever_one_knows_of_it() {
    let (scene, web) = stage(1).await;
    let id = scene
        .place(
            "a",
            serde_json::json!({"reference": "R-<b>7", "lines": [
        {"asset": {"category": "box"}, "quantity": 1}]}),
        )
        .await;
    scene.reserve(id).await;
    scene.pay(id, "evt-1").await;
    let other = scene.place_one("b").await;
    let cookie = signed_in(&web, KEY).await;
    for what in
        [id.to_string(), id.to_string().to_uppercase(), "R-<b>7".to_owned(), "m-01".to_owned(), format!("pay-{id}")]
    {
        let url = format!("{}/ops/orders", web.base);
        let found = browser().get(&url).query(&[("q", &what)]).header("cookie", &cookie).send().await.unwrap();
        assert_eq!(found.status(), 303, "{what}");
        assert_eq!(found.headers()["location"].to_str().unwrap(), format!("/ops/orders/{id}"), "{what}");
    }
    let all = shown(&web, &cookie, "/ops/orders").await;
    assert!(all.contains(&id.to_string()) && all.contains(&other.to_string()));
    assert!(all.contains("R-&lt;b&gt;7") && !all.contains("R-<b>7"), "a reference is text");
    let sold = shown(&web, &cookie, "/ops/orders?status=converted").await;
    assert!(sold.contains(&id.to_string()) && !sold.contains(&other.to_string()));
    for nothing in ["/ops/orders?q=unknown", "/ops/orders?q=%00", "/ops/orders?status=mismatch"] {
        assert!(shown(&web, &cookie, nothing).await.contains("There is no such order."), "{nothing}");
    }
    assert_eq!(page(&web, "/ops/orders?status=sold", &cookie).await.0, 422);
}

#[tokio::test]
async fn the_page_of_an_order_tells_what_happened_and_why_and_hides_secrets() {
    let (scene, web) = stage(2).await;
    let id = scene.reserved("a").await;
    scene.keep_event(&id.to_string(), "evt-1", "succeeded").await;
    scene
        .run(
            r#"update onehold.payment_events
               set payload = '{"data": {"client_secret": "S3CRET", "note": "<i>shown</i>"}}'"#,
        )
        .await;
    scene.apply("evt-1").await;
    scene.run("update apalis.jobs set status = 'Killed', last_result = '{\"Err\": \"no <luck>\"}'").await;
    let cookie = signed_in(&web, KEY).await;
    let text = shown(&web, &cookie, &format!("/ops/orders/{id}")).await;
    for part in
        ["placed", "reserved", "converted", "m-01", "evt-1", "2 candidates", "no &lt;luck&gt;", "&lt;i&gt;shown"]
    {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    assert!(!text.contains("S3CRET") && text.contains("(not shown)"));
    let refused =
        scene.place("b", serde_json::json!({"lines": [{"asset": {"category": "none"}, "quantity": 1}]})).await;
    scene.reserve(refused).await;
    let text = shown(&web, &cookie, &format!("/ops/orders/{refused}")).await;
    assert!(text.contains("Nothing that fits can be had: buy more."), "{text}");
}

#[tokio::test]
async fn an_action_needs_its_form_and_is_done_under_the_name_of_the_key() {
    let (scene, web) = stage(2).await;
    let (kept, gone, sold) = (scene.reserved("a").await, scene.place_one("b").await, scene.reserved("c").await);
    scene.pay(sold, "evt-1").await;
    let cookie = signed_in(&web, KEY).await;
    let path = |id: Uuid, wish: &str| format!("/ops/orders/{id}/{wish}");
    assert_eq!(post(&web, &cookie, &path(kept, "cancel"), &[]).await.0, 403, "without the token");
    assert_eq!(post(&web, "", &path(kept, "cancel"), &[("form_token", "x")]).await.0, 401, "without a session");
    assert_eq!(scene.order(kept).await.status.code(), "reserved");

    let before = scene.order(kept).await.hold_expires_at.unwrap();
    let extended = act(&web, &cookie, &path(kept, "extend"), &[("hold_seconds", "3000")]).await;
    assert_eq!(extended, (303, format!("/ops/orders/{kept}")));
    assert!(scene.order(kept).await.hold_expires_at.unwrap() > before);
    for seconds in ["", "soon", "-1", "1000000"] {
        assert_eq!(act(&web, &cookie, &path(kept, "extend"), &[("hold_seconds", seconds)]).await.0, 422, "{seconds}");
    }
    assert_eq!(act(&web, &cookie, &path(gone, "extend"), &[("hold_seconds", "60")]).await.0, 409, "holds nothing");
    for id in [gone, kept] {
        assert_eq!(act(&web, &cookie, &path(id, "cancel"), &[("reason", "by phone")]).await.0, 303);
        assert_eq!(scene.order(id).await.status.code(), "cancelled");
    }
    assert_eq!(act(&web, &cookie, &path(sold, "cancel"), &[]).await.0, 409);
    let release = [("reason", "returned"), ("assets", "ready")];
    assert_eq!(act(&web, &cookie, &path(sold, "release"), &release).await.0, 303);
    assert_eq!(scene.order(sold).await.status.code(), "released");
    assert_eq!(act(&web, &cookie, &path(sold, "explode"), &[]).await.0, 404);
    let by: Vec<String> = sqlx::query_scalar(
        "select distinct actor from onehold.order_events where kind in ('cancelled', 'released', 'extended')",
    )
    .fetch_all(scene.db.pool())
    .await
    .unwrap();
    assert_eq!(by, ["api:bootstrap"]);
    let text = shown(&web, &cookie, &format!("/ops/orders/{kept}")).await;
    assert!(text.contains("by phone") && text.contains("api:bootstrap"), "{text}");
    scene.verify().await;
}

#[tokio::test]
async fn a_key_does_what_its_scopes_allow_in_its_own_shop() {
    let (scene, web) = stage(1).await;
    let id = scene.reserved("a").await;
    put(&scene.db, onehold::queue::catalogue::RESERVE, "k", "{}", 3).await;
    scene.run("update apalis.jobs set status = 'Killed' where idempotency_key = 'k'").await;
    let job: String = sqlx::query_scalar("select id from apalis.jobs where idempotency_key = 'k'")
        .fetch_one(scene.db.pool())
        .await
        .unwrap();
    let main = onehold::shops::find(&scene.db, "main").await.unwrap().unwrap();
    let looks = onehold::shops::keys::create(&scene.db, &main, "looks", &[Scope::Ops]).await.unwrap();
    let onehold::shops::keys::Created::New(looks) = looks else { panic!("no key") };
    let (_, foreign) = shop_with_key(&scene.db, "other", &[Scope::Ops, Scope::Orders, Scope::Stock]).await;
    let (looks, foreign) = (signed_in(&web, &looks).await, signed_in(&web, &foreign).await);

    let order = format!("/ops/orders/{id}");
    let text = shown(&web, &looks, &order).await;
    assert!(!text.contains("/cancel"), "what is not allowed is not offered");
    let (status, said) = act(&web, &looks, &format!("{order}/cancel"), &[]).await;
    assert!(status == 403 && said.contains("lacks the scope orders"), "{status} {said}");
    assert_eq!(page(&web, &order, &foreign).await.0, 404);
    assert_eq!(act(&web, &foreign, &format!("{order}/cancel"), &[]).await.0, 404);
    assert!(!shown(&web, &foreign, "/ops/orders").await.contains(&id.to_string()));
    for q in [id.to_string(), "m-01".to_owned()] {
        assert!(shown(&web, &foreign, &format!("/ops/orders?q={q}")).await.contains("There is no such order."));
    }
    assert!(!shown(&web, &foreign, "/ops/inventory").await.contains("m-01"));
    // Queues and jobs are those of every shop: where there are several, they are for the installation's key.
    for path in [format!("/ops/jobs/{job}"), "/ops/queues/reserve".to_owned()] {
        assert_eq!(page(&web, &path, &foreign).await.0, 403, "{path}");
    }
    for path in
        [format!("/ops/jobs/{job}/discard"), format!("/ops/jobs/{job}/retry"), "/ops/queues/reserve/pause".to_owned()]
    {
        assert_eq!(act(&web, &foreign, &path, &[]).await.0, 403, "{path}");
    }
    assert_eq!(scene.number("select count(*) from apalis.paused_queues").await, 0);
    assert_eq!(scene.number("select count(*) from apalis.jobs where status = 'Killed'").await, 1);
    assert_eq!(scene.order(id).await.status.code(), "reserved");
}

#[tokio::test]
async fn the_inventory_says_why_something_cannot_be_sold_now() {
    let (scene, web) = stage(5).await;
    let (sold, held) = (scene.reserved("a").await, scene.reserved("b").await);
    scene.pay(sold, "evt-1").await;
    scene.run("update onehold.assets set status = 'maintenance' where key = 'm-03'").await;
    scene.run("update onehold.assets set available_from = now() + interval '1 day' where key = 'm-04'").await;
    let movement =
        serde_json::json!({"sku": "PSU", "location": "BER", "delta": 1_234, "kind": "receipt", "reference": "r"});
    let moved = web.post("/v1/stock/movements").bearer_auth(KEY).json(&movement).send().await.unwrap();
    assert_eq!(moved.status(), 201);
    let cookie = signed_in(&web, KEY).await;
    let text = shown(&web, &cookie, "/ops/inventory").await;
    let row = |name: &str| {
        let at = text.find(&format!(">{name}</td>")).unwrap_or_else(|| panic!("no {name}: {text}"));
        text[at..].split("</tr>").next().unwrap().to_owned()
    };
    assert!(row("m-01").contains("sold") && row("m-01").contains(&sold.to_string()));
    assert!(row("m-02").contains("held") && row("m-02").contains(&held.to_string()));
    assert!(row("m-03").contains("maintenance") && row("m-04").contains("not yet") && row("m-05").contains(">yes<"));
    assert!(row("PSU").contains("1,234"), "{}", row("PSU"));
    let moved = shown(&web, &cookie, "/ops/inventory?sku=PSU").await;
    assert!(moved.contains("Movements of PSU") && moved.contains("<td>receipt</td>"), "{moved}");
    // Two were held or sold, and one can be had now.
    let out = text.split("Running out").nth(1).unwrap().split("</table>").next().unwrap();
    assert!(out.contains("<td>box</td><td class=\"n\">1</td>"), "{out}");
    assert!(shown(&web, &cookie, "/ops/inventory?category=none&sku=none").await.contains("There are none."));
    assert_eq!(page(&web, "/ops/inventory?category=%00&after_sku=%00&sku=%00", &cookie).await.0, 200);
}

#[tokio::test]
async fn money_that_was_given_back_is_marked_once_and_an_event_that_waits_is_replayed() {
    let (scene, web) = stage(1).await;
    let (due, waits) = (scene.place_one("a").await, scene.reserved("b").await);
    onehold::orders::cancel(&scene.db, 1, due, "test", None).await.unwrap();
    scene.pay(due, "evt-1").await;
    assert_eq!(scene.order(due).await.payment.state.code(), "refund_due");
    scene.keep_event(&waits.to_string().to_uppercase(), "evt-2", "succeeded").await;
    let cookie = signed_in(&web, KEY).await;
    let path = |id: Uuid, wish: &str| format!("/ops/orders/{id}/{wish}");
    assert!(shown(&web, &cookie, &format!("/ops/orders/{due}")).await.contains("/refunded"));
    assert_eq!(act(&web, &cookie, &path(due, "refunded"), &[("reason", "by bank")]).await.0, 303);
    assert_eq!(scene.order(due).await.payment.state.code(), "refunded");
    assert_eq!(act(&web, &cookie, &path(due, "refunded"), &[]).await.0, 409, "once");
    assert_eq!(act(&web, &cookie, &path(waits, "refunded"), &[]).await.0, 409, "nothing is due");
    assert_eq!(scene.history(due).await.iter().filter(|kind| *kind == "refunded").count(), 1);

    assert!(shown(&web, &cookie, &format!("/ops/orders/{waits}")).await.contains("evt-2"), "what waits is shown");
    let event = |id| [("provider", "standard"), ("event", id)];
    assert_eq!(act(&web, &cookie, &path(waits, "replay"), &event("evt-1")).await.0, 409, "of another order");
    assert_eq!(act(&web, &cookie, &path(due, "replay"), &event("evt-1")).await.0, 409, "applied before");
    let jobs = "select count(*) from apalis.jobs where job_type = 'convert'";
    assert_eq!(scene.number(jobs).await, 0);
    for _ in 0..2 {
        assert_eq!(act(&web, &cookie, &path(waits, "replay"), &event("evt-2")).await.0, 303);
        assert_eq!(scene.number(jobs).await, 1);
    }
    let text = shown(&web, &cookie, &format!("/ops/orders/{waits}")).await;
    assert!(text.contains("<td>convert</td>"), "its job is shown: {text}");
}

/// How many orders the shop has had in the test below.
const MANY: i32 = 50_000;

#[tokio::test]
async fn pages_cost_the_same_however_many_orders_there_were() {
    let (scene, web) = stage(0).await;
    // Past the triggers, as a restored backup is written.
    scene
        .run(&format!(
            "set session_replication_role = replica;
             insert into onehold.assets (shop_id, key, category, location)
                 select 1, 'b' || n, 'box' || n % 7, 'BER' from generate_series(1, {MANY}) n;
             insert into onehold.orders (shop_id, idempotency_key, reference, status, payment_state)
                 select 1, 'o' || n, 'same', case n % 3 when 0 then 'expired' else 'converted' end,
                        case n % 10 when 0 then 'refund_due' else 'paid' end from generate_series(1, {MANY}) n;
             insert into onehold.order_lines (shop_id, order_id, line, asset, quantity)
                 select 1, id, 1, '{{\"category\": \"box\"}}', 1 from onehold.orders;
             insert into onehold.order_events (shop_id, order_id, kind, actor)
                 select 1, id, kind, 'worker' from onehold.orders, unnest(array['placed', 'reserved', 'converted']) kind;
             insert into onehold.reservations (shop_id, order_id, asset_id, state, location, expires_at)
                 select 1, o.id, a.id, 'converted', a.location, now() from onehold.assets a
                 join onehold.orders o on o.idempotency_key = 'o' || substr(a.key, 2);
             insert into apalis.jobs (id, job_type, job, status, attempts, max_attempts, idempotency_key, done_at, last_result)
                 select 'j' || n, 'reserve', '{{}}', case n % 9 when 0 then 'Killed' else 'Done' end, 1, 3, 'k' || n, now(),
                        '{{\"Err\": \"no\"}}' from generate_series(1, {MANY}) n;
             insert into onehold.stock_levels (shop_id, sku, location)
                 select 1, 'S' || n, 'BER' from generate_series(1, {MANY} / 10) n;
             set session_replication_role = origin;"
        ))
        .await;
    // What autovacuum does on a live database.
    scene.run("analyze").await;
    let last: Uuid = sqlx::query_scalar("select id from onehold.orders order by id desc limit 1")
        .fetch_one(scene.db.pool())
        .await
        .unwrap();
    let cookie = signed_in(&web, KEY).await;
    let mut paths: Vec<String> = PAGES.iter().map(|path| (*path).to_owned()).collect();
    let more =
        ["orders?status=expired", "orders?status=refund_due", "orders?status=mismatch", "orders?q=same", "orders?q=b7"];
    paths.extend(more.map(|path| format!("/ops/{path}")));
    paths.extend([format!("/ops/orders/{last}"), "/ops/jobs/j9".into(), "/ops/inventory?category=box1&sku=S7".into()]);
    for path in paths {
        let mut best = std::time::Duration::MAX;
        // The best of three: the machine is busy with other tests.
        for _ in 0..3 {
            let began = std::time::Instant::now();
            let (status, _) = page(&web, &path, &cookie).await;
            assert!([200, 303].contains(&status), "{path}: {status}");
            best = best.min(began.elapsed());
        }
        assert!(best.as_secs_f64() < 1.0, "{path} takes {best:?}");
    }
}
