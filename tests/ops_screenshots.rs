//! Every page as people see it: in light and dark, on a phone and on a desktop, written below `target/screenshots`
//! for whoever looks at them; and what a machine can judge of that. Where no Chromium is installed this says so.

use std::path::Path;

use base64::Engine as _;
use onehold::queue::catalogue::CONVERT;
use serde_json::{Value, json};

use crate::ops_browser::{chromium, sign_in};
use crate::ops_pages::PAGES;
use crate::queue_support::put;
use crate::scene::Scene;
use crate::served::Served;
use crate::support::chromium::Chromium;

const DEVICES: [(&str, i64, i64, bool); 2] = [("desktop", 1280, 900, false), ("phone", 360, 740, true)];

/// A shop in which there is something to see on every page; gives the paths of its pages.
async fn stage(scene: &Scene) -> Vec<String> {
    let (sold, held) = (scene.reserved("sold").await, scene.reserved("held").await);
    scene.pay(sold, "evt-1").await;
    let none =
        json!({"reference": "R-<b>7", "lines": [{"asset": {"category": "box", "vendor": "HPE"}, "quantity": 1}]});
    let refused = scene.place("refused", none).await;
    scene.reserve(refused).await;
    put(&scene.db, CONVERT, "dead", "{\"v\": 1, \"secret\": \"S3CRET\"}", 3).await;
    let text = "a long text of a failure that is made of many words and must be read ".repeat(4);
    scene
        .run(&format!(
            "update apalis.jobs set status = 'Killed', done_at = now(), last_result = jsonb_build_object('Err', '{text}')
             where idempotency_key = 'dead';
             insert into onehold.minutes (shop_id, minute, kind, n, p50, p99)
             select 1, date_trunc('minute', now()) - make_interval(mins => m), kind, m * 7 % 20, 0.02, 0.4
             from generate_series(2, 300) m, unnest(array['placed', 'reserved', 'converted', 'refused:held']) kind;
             select onehold.post_movement(1, 'RAM-64-DDR5-ECC-REGISTERED', 'BER', 2500, 'receipt', 'PO-1', 'test', false)"
        ))
        .await;
    let job: String = sqlx::query_scalar("select id from apalis.jobs where idempotency_key = 'dead'")
        .fetch_one(scene.db.pool())
        .await
        .unwrap();
    let mut paths: Vec<String> = PAGES.iter().map(|path| (*path).to_owned()).collect();
    paths.extend([sold, held, refused].map(|id| format!("/ops/orders/{id}")));
    paths.extend(["/ops/orders?q=unknown", "/ops/orders/nonsense", "/ops/queues/convert"].map(str::to_owned));
    paths.extend(["/ops/inventory?sku=RAM-64-DDR5-ECC-REGISTERED".to_owned(), format!("/ops/jobs/{job}")]);
    paths
}

async fn shoot(browser: &mut Chromium, file: &Path) {
    let shot = browser.call("Page.captureScreenshot", json!({"format": "png", "captureBeyondViewport": true})).await;
    let image = base64::engine::general_purpose::STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
    assert!(image.len() > 2_000, "{} shows nothing", file.display());
    std::fs::write(file, image).unwrap();
}

#[tokio::test]
async fn every_page_is_shown_in_light_and_dark_on_a_phone_and_a_desktop() {
    let Some(mut browser) = chromium("every_page_is_shown").await else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("screenshots");
    std::fs::create_dir_all(&folder).unwrap();
    let scene = Scene::with_machines(4).await;
    let paths = stage(&scene).await;
    let web = Served::start(&scene.db).await;
    sign_in(&mut browser, &web).await;
    for (device, width, height, mobile) in DEVICES {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile});
        browser.call("Emulation.setDeviceMetricsOverride", metrics).await;
        for (n, path) in paths.iter().enumerate() {
            browser.open(&format!("{}{path}", web.base)).await;
            let wide = browser.value("document.documentElement.scrollWidth").await.as_i64().unwrap();
            assert!(wide <= width, "{path} is {wide} wide on a {device}");
            // What scrolls sideways is reached by the keyboard; and no column is squeezed until words fall apart.
            let unreachable = "[...document.querySelectorAll('.scroll')]
                .filter(box => box.scrollWidth > box.clientWidth && box.tabIndex !== 0).length";
            assert_eq!(browser.value(unreachable).await, json!(0), "{path} on a {device}");
            let squeezed = "[...document.querySelectorAll('td')]
                .filter(cell => cell.innerText.trim().length > 3 && cell.getBoundingClientRect().width < 34).length";
            assert_eq!(browser.value(squeezed).await, json!(0), "{path} on a {device}");
            let name = path.trim_start_matches('/').replace(|c: char| !c.is_ascii_alphanumeric(), "-");
            // Ids differ from run to run; their place does not.
            let name = if name.len() > 30 { format!("{n:02}-{}", &name[..12]) } else { format!("{n:02}-{name}") };
            for scheme in ["light", "dark"] {
                let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
                browser.call("Emulation.setEmulatedMedia", media).await;
                shoot(&mut browser, &folder.join(format!("{name}-{device}-{scheme}.png"))).await;
            }
        }
    }
    let tabs = "document.querySelector('nav').getBoundingClientRect().height < 60";
    assert_eq!(browser.value(tabs).await, Value::Bool(true), "the tabs fit one line on a phone");
}
