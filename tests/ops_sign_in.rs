//! Signing in to the dashboard: no page without it, what the session is worth, and forms of other sites
//! (cases P2, P4).

use onehold::db::Db;
use onehold::shops::{Scope, keys};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use sqlx::AssertSqlSafe;

use crate::served::{KEY, Served, shop_with_key};
use crate::support::database;

/// A browser that follows nothing by itself.
pub(crate) fn browser() -> Client {
    Client::builder().redirect(Policy::none()).build().unwrap()
}

/// Signs in, and gives what the browser keeps: `NAME=VALUE`.
pub(crate) async fn signed_in(web: &Served, key: &str) -> String {
    let answer = sign_in(web, key).await;
    assert_eq!(answer.status(), 303);
    assert_eq!(answer.headers()["location"], "/ops");
    let cookie = answer.headers()["set-cookie"].to_str().unwrap();
    cookie.split(';').next().unwrap().to_owned()
}

async fn sign_in(web: &Served, key: &str) -> Response {
    browser().post(format!("{}/ops/sign-in", web.base)).form(&[("key", key)]).send().await.unwrap()
}

/// The status and text of a page.
pub(crate) async fn page(web: &Served, path: &str, cookie: &str) -> (u16, String) {
    let answer = browser().get(web.base.clone() + path).header("cookie", cookie).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// The token that a page's forms carry.
pub(crate) fn form_token(page: &str) -> &str {
    let at = page.split("name=\"form_token\" value=\"").nth(1).expect("a form with a token");
    at.split('"').next().unwrap()
}

async fn sessions(db: &Db) -> i64 {
    sqlx::query_scalar("select count(*) from onehold.browser_sessions").fetch_one(db.pool()).await.unwrap()
}

async fn run(db: &Db, statement: &str) {
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(db.pool()).await.unwrap();
}

#[tokio::test]
async fn there_is_no_page_without_signing_in() {
    let db = database().await.db;
    let web = Served::start(&db).await;
    let (_, orders) = shop_with_key(&db, "a", &[Scope::Orders, Scope::Stock]).await;
    for path in crate::ops_pages::PAGES {
        let url = web.base.clone() + path;
        let bare = browser().get(&url).send().await.unwrap();
        assert_eq!(bare.status(), 401, "{path}");
        let (status, text) = page(&web, path, "onehold_session=main.0000").await;
        assert_eq!(status, 401, "{path}");
        assert!(text.contains("name=\"key\"") && !text.contains("Sign out"), "{path}: {text}");
        assert_eq!(browser().get(&url).bearer_auth("wrong").send().await.unwrap().status(), 401, "{path}");
        assert_eq!(browser().get(&url).bearer_auth(&orders).send().await.unwrap().status(), 403, "{path}");
        assert_eq!(browser().get(&url).bearer_auth(KEY).send().await.unwrap().status(), 200, "{path}");
    }
    for key in ["", "wrong", &orders] {
        let answer = sign_in(&web, key).await;
        assert_eq!(answer.status(), 401);
        assert!(!answer.headers().contains_key("set-cookie"));
    }
    assert_eq!(sessions(&db).await, 0);
}

#[tokio::test]
async fn a_session_is_kept_as_a_hash_and_its_cookie_is_for_this_site_alone() {
    let db = database().await.db;
    let web = Served::start(&db).await;
    let (_, key) = shop_with_key(&db, "a", &[Scope::Ops]).await;
    let plain = sign_in(&web, &key).await;
    let cookie = plain.headers()["set-cookie"].to_str().unwrap().to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Max-Age=43200", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains("Secure"));
    let behind_tls = browser().post(format!("{}/ops/sign-in", web.base)).header("x-forwarded-proto", "https");
    let behind_tls = behind_tls.form(&[("key", &key)]).send().await.unwrap();
    assert!(behind_tls.headers()["set-cookie"].to_str().unwrap().ends_with("; Secure"));
    let cookie = cookie.split(';').next().unwrap();
    let secret = cookie.rsplit('.').next().unwrap();
    let kept: Vec<String> =
        sqlx::query_scalar("select s::text from onehold.browser_sessions s").fetch_all(db.pool()).await.unwrap();
    assert_eq!(kept.len(), 2);
    assert!(!kept.join(" ").contains(secret) && !kept.join(" ").contains(&key));
    let (status, text) = page(&web, "/ops", cookie).await;
    assert_eq!(status, 200);
    assert!(!text.contains(secret) && !text.contains(&key), "a page shows a secret");
    let answer = browser().get(format!("{}/ops", web.base)).header("cookie", cookie).send().await.unwrap();
    let policy = answer.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(answer.headers()["cache-control"], "no-store");
    // The numbers for Prometheus are for the same people; the API is not for browsers.
    assert_eq!(page(&web, "/metrics", cookie).await.0, 200);
    assert_eq!(page(&web, "/metrics", "onehold_session=main.00").await.0, 401);
    assert_eq!(page(&web, "/v1/orders", cookie).await.0, 401);
}

#[tokio::test]
async fn a_session_ends_by_itself_by_signing_out_and_with_its_key() {
    let db = database().await.db;
    let web = Served::start(&db).await;
    let (shop, key) = shop_with_key(&db, "a", &[Scope::Ops]).await;
    let alive = async |cookie: &str| page(&web, "/ops", cookie).await.0 == 200;
    let leave = async |cookie: &str, everywhere: &str| {
        let token = form_token(&page(&web, "/ops", cookie).await.1).to_owned();
        let form = [("form_token", token.as_str()), ("everywhere", everywhere)];
        let out = browser().post(format!("{}/ops/sign-out", web.base)).header("cookie", cookie).form(&form);
        let out = out.send().await.unwrap();
        assert_eq!(out.status(), 200);
        assert!(out.headers()["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    };
    let (first, second, third) =
        (signed_in(&web, &key).await, signed_in(&web, &key).await, signed_in(&web, &key).await);
    leave(&first, "").await;
    assert!(!alive(&first).await && alive(&second).await);
    leave(&second, "yes").await;
    assert!(!alive(&second).await && !alive(&third).await);
    assert_eq!(sessions(&db).await, 0);
    let old = signed_in(&web, &key).await;
    run(&db, "update onehold.browser_sessions set expires_at = now() - interval '1 second'").await;
    assert!(!alive(&old).await);
    let last = signed_in(&web, &key).await;
    assert_eq!(sessions(&db).await, 1, "what is over is removed");
    keys::revoke(&db, shop.id, "k").await.unwrap();
    assert!(!alive(&last).await, "a revoked key takes its sessions along");
    let first_key = signed_in(&web, KEY).await;
    assert!(alive(&first_key).await);
    // A name alone makes nobody the installation's first key.
    run(&db, "update onehold.browser_sessions set key_name = 'bootstrap' where key_name = 'k'").await;
    assert!(!alive(&last).await);
}

#[tokio::test]
async fn a_form_of_another_site_does_nothing() {
    let db = database().await.db;
    let web = Served::start(&db).await;
    let cookie = signed_in(&web, KEY).await;
    let token = form_token(&page(&web, "/ops", &cookie).await.1).to_owned();
    let other = signed_in(&web, KEY).await;
    let others = form_token(&page(&web, "/ops", &other).await.1).to_owned();
    let url = format!("{}/ops/sign-out", web.base);
    let send = async |token: Option<&str>, header: Option<(&str, &str)>| {
        let form: Vec<_> = token.into_iter().map(|token| ("form_token", token)).collect();
        let mut request = browser().post(&url).header("cookie", &cookie).form(&form);
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(send(None, None).await, 403);
    assert_eq!(send(Some("0"), None).await, 403);
    assert_eq!(send(Some(&others), None).await, 403);
    assert_eq!(send(Some(&token), Some(("sec-fetch-site", "cross-site"))).await, 403);
    assert_eq!(send(Some(&token), Some(("origin", "https://evil.example"))).await, 403);
    assert_eq!(page(&web, "/ops", &cookie).await.0, 200, "none of these signed out");
    // A key that is put into a form by another site signs nobody in.
    let foreign = browser().post(format!("{}/ops/sign-in", web.base)).header("sec-fetch-site", "cross-site");
    assert_eq!(foreign.form(&[("key", KEY)]).send().await.unwrap().status(), 403);
    assert_eq!(send(Some(&token), Some(("sec-fetch-site", "same-origin"))).await, 200);
    assert_eq!(page(&web, "/ops", &cookie).await.0, 401);
}
