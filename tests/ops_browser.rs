//! The dashboard in a real browser: by the keyboard alone, live, on a phone, in the dark, and without scripts
//! (case P3). Where no Chromium is installed this says so and tests nothing.

use std::io::Write as _;

use onehold::queue::catalogue::RESERVE;
use onehold::queue::operate;
use serde_json::{Value, json};

use crate::ops_pages::PAGES;
use crate::scene::Scene;
use crate::served::{KEY, Served};
use crate::support::chromium::Chromium;

pub(crate) async fn chromium(test: &str) -> Option<Chromium> {
    let browser = Chromium::start().await;
    if browser.is_none() {
        // Past the capture of the test's output: a skip is to be seen.
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: no `chromium` is installed");
    }
    browser
}

/// Signs in as a person without a mouse does: the field has the focus.
pub(crate) async fn sign_in(browser: &mut Chromium, web: &Served) {
    browser.open(&format!("{}/ops", web.base)).await;
    browser.until("document.activeElement?.id === 'key'").await;
    browser.write(KEY).await;
    browser.press("Enter", "\r").await;
    browser.until("document.querySelector('h1')?.innerText === 'Overview' && document.readyState === 'complete'").await;
}

/// What the browser asked for, and what it complained about.
fn asked_and_complained(told: &[Value]) -> (Vec<String>, Vec<String>) {
    let of = |method: &str, at: &[&str]| -> Vec<String> {
        let events = told.iter().filter(|event| event["method"] == method);
        events.map(|e| at.iter().fold(&e["params"], |v, name| &v[*name]).to_string()).collect()
    };
    let mut complaints = of("Log.entryAdded", &["entry"]);
    // The page without a session is 401, and the browser notes that; its recommendations are no complaints.
    complaints.retain(|text| !text.contains("401") && !text.contains("\"level\":\"verbose\""));
    complaints.extend(of("Runtime.exceptionThrown", &["exceptionDetails"]));
    (of("Network.requestWillBeSent", &["request", "url"]), complaints)
}

#[tokio::test]
async fn the_dashboard_is_live_and_used_by_the_keyboard() {
    let Some(mut browser) = chromium("the_dashboard_is_live_and_used_by_the_keyboard").await else { return };
    let scene = Scene::with_machines(1).await;
    let id = scene.reserved("a").await;
    let web = Served::start(&scene.db).await;
    sign_in(&mut browser, &web).await;
    // The page changes while it is looked at.
    browser.until("document.querySelector('[data-live]').dataset.state === 'live'").await;
    assert_eq!(browser.value("document.body.innerText.includes('is paused')").await, json!(false));
    operate::pause(&scene.db, RESERVE, "test").await.unwrap();
    browser.until("document.body.innerText.includes('The queue reserve is paused.')").await;

    // The first stop of Tab is the link past the navigation, and one sees where one is.
    browser.open(&format!("{}/ops/orders/{id}", web.base)).await;
    browser.press("Tab", "").await;
    assert_eq!(browser.value("document.activeElement.className").await, "skip");
    let outline = "getComputedStyle(document.activeElement).outlineStyle !== 'none'";
    assert_eq!(browser.value(outline).await, json!(true));
    // Cancelling asks first: the form opens by Enter, its fields follow by Tab.
    for _ in 0..30 {
        if browser.value("document.activeElement.innerText === 'Cancel…'").await == json!(true) {
            break;
        }
        browser.press("Tab", "").await;
    }
    assert_eq!(browser.value("document.activeElement.innerText").await, "Cancel…");
    assert_eq!(browser.value("document.activeElement.parentElement.open").await, json!(false));
    browser.press("Enter", "\r").await;
    browser.until("document.activeElement.parentElement.open").await;
    browser.press("Tab", "").await;
    browser.write("by the keyboard").await;
    browser.press("Enter", "\r").await;
    browser.until("document.body.textContent.includes('by the keyboard') && document.readyState === 'complete'").await;
    assert_eq!(scene.order(id).await.status.code(), "cancelled");
    let (asked, complaints) = asked_and_complained(&browser.told);
    assert!(asked.len() > 5 && complaints.is_empty(), "{complaints:?}");
    for url in asked {
        assert!(url.starts_with(&format!("\"{}/", web.base)) || url == "\"about:blank\"", "{url} was asked for");
    }
}

#[tokio::test]
async fn every_page_fits_a_phone_has_a_dark_dress_and_is_read_without_scripts() {
    let Some(mut browser) = chromium("every_page_fits_a_phone").await else { return };
    let scene = Scene::with_machines(3).await;
    let id = scene.reserved("a").await;
    scene.pay(id, "evt-1").await;
    let web = Served::start(&scene.db).await;
    sign_in(&mut browser, &web).await;
    let mut paths: Vec<String> = PAGES.iter().map(|path| (*path).to_owned()).collect();
    paths.push(format!("/ops/orders/{id}"));
    let phone = json!({"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": true});
    browser.call("Emulation.setDeviceMetricsOverride", phone).await;
    let ground = "getComputedStyle(document.body).backgroundColor";
    for path in &paths {
        browser.open(&format!("{}{path}", web.base)).await;
        let width = browser.value("document.documentElement.scrollWidth").await;
        assert!(width.as_i64().unwrap() <= 360, "{path} is {width} wide");
    }
    let mut dresses = Vec::new();
    for scheme in ["light", "dark"] {
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        browser.call("Emulation.setEmulatedMedia", media).await;
        dresses.push(browser.value(ground).await);
    }
    assert_ne!(dresses[0], dresses[1], "light and dark look alike");
    browser.call("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
    for path in &paths {
        browser.open(&format!("{}{path}", web.base)).await;
        let said = browser.value("document.querySelector('main').innerText.length > 60").await;
        assert_eq!(said, json!(true), "{path} says nothing without scripts");
    }
    let live = browser.value("document.querySelector('[data-state]')").await;
    assert_eq!(live, Value::Null);
}
