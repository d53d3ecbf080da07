//! Assets over HTTP: put, read, deleted and listed; names and bodies that do not fit (cases L3, L4, L6, P2).

use onehold::db::Db;
use onehold::shops::Scope;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::served::{Served, answer, problem, shop_with_key};
use crate::support::database;

async fn served() -> (Db, Served) {
    let db = database().await.db;
    let served = Served::start(&db).await;
    (db, served)
}

async fn assets(db: &Db) -> i64 {
    sqlx::query_scalar("select count(*) from onehold.assets").fetch_one(db.pool()).await.unwrap()
}

fn pointers(problem: &Value) -> Vec<&str> {
    problem["errors"].as_array().unwrap().iter().map(|error| error["pointer"].as_str().unwrap()).collect()
}

fn a_box() -> Value {
    json!({"category": "box", "location": "BER"})
}

#[tokio::test]
async fn an_asset_is_put_read_described_anew_and_deleted() {
    let (_db, served) = served().await;
    let path = "/v1/assets/srv-1";
    let body = json!({"category": "dedicated-m", "location": "BER", "vendor": "Dell", "attributes": {"ram_gb": 128},
        "status": "ready", "rank": 3, "available_from": "2030-01-31T13:00:00+01:00"});

    let response = served.put(path).json(&body).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::CREATED);
    assert_eq!(response.headers()["location"], "/v1/assets/srv%2D1");
    let created: Value = response.json().await.unwrap();
    let mut expected = body.clone();
    expected["key"] = json!("srv-1");
    expected["available_from"] = json!("2030-01-31T12:00:00Z");
    (expected["held_by"], expected["bound_to"]) = (Value::Null, Value::Null);
    expected["updated_at"] = created["updated_at"].clone();
    assert_eq!(created, expected);
    assert_eq!(answer(served.get(path)).await, (200, created.clone()));
    assert_eq!(answer(served.get("/v1/assets/srv%2D1")).await, (200, created.clone()));

    // The same again, as JSON values, changes nothing: not even when it was last described.
    let same = json!({"category": "dedicated-m", "location": " BER ", "vendor": "Dell", "attributes": {"ram_gb": 128.0},
        "rank": 3, "available_from": "2030-01-31T12:00:00.0000001Z"});
    assert_eq!(answer(served.put(path).json(&same)).await, (200, created.clone()));

    // What is left out goes back to its default: a put says the whole.
    let (status, replaced) = answer(served.put(path).json(&a_box())).await;
    assert_eq!(status, 200);
    assert_ne!(replaced["updated_at"], created["updated_at"]);
    assert_eq!(
        (&replaced["vendor"], &replaced["attributes"], &replaced["status"], &replaced["rank"]),
        (&Value::Null, &json!({}), &json!("ready"), &json!(0))
    );
    assert_eq!(replaced["available_from"], Value::Null);
    assert_eq!(answer(served.get(path)).await, (200, replaced));

    assert_eq!(answer(served.delete(path)).await, (204, Value::Null));
    problem(served.delete(path), 404, "not_found").await;
    problem(served.get(path), 404, "not_found").await;
    assert_eq!(answer(served.put(path).json(&a_box())).await.0, 201);
}

#[tokio::test]
async fn an_asset_that_moves_takes_its_location_along() {
    let (db, served) = served().await;
    answer(served.put("/v1/assets/a").json(&a_box())).await;
    answer(served.put("/v1/assets/a").json(&json!({"category": "box", "location": "FRA"}))).await;
    let locations: Vec<String> =
        sqlx::query_scalar("select name from onehold.locations order by name").fetch_all(db.pool()).await.unwrap();
    assert_eq!(locations, ["BER", "FRA"]);
}

#[tokio::test]
async fn keys_are_one_name_however_they_are_spelt_and_case_counts() {
    let (db, served) = served().await;
    let puts = [
        ("test", 201),
        ("TEST", 201),
        ("test%20", 200),
        ("%20%C2%A0test", 200),
        ("caf%C3%A9", 201),
        ("cafe%CC%81", 200),
        ("a%2Fb%25", 201),
        ("%F0%9F%98%80", 201),
        (&"x".repeat(200), 201),
    ];
    for (key, status) in puts {
        let (got, body) = answer(served.put(&format!("/v1/assets/{key}")).json(&a_box())).await;
        assert_eq!(got, status, "{key}: {body}");
    }
    let (_, asset) = answer(served.get("/v1/assets/cafe%CC%81%20")).await;
    assert_eq!(asset["key"], "caf\u{e9}");
    assert_eq!(answer(served.get("/v1/assets/a%2Fb%25")).await.1["key"], "a/b%");
    problem(served.get("/v1/assets/Test"), 404, "not_found").await;
    assert_eq!(assets(&db).await, 6);
    assert_eq!(answer(served.delete("/v1/assets/test%20%20")).await.0, 204);
    assert_eq!(assets(&db).await, 5);

    for key in ["a%00b", "a%0Ab", "%20", "%7F", "%FF", "%C3", &"x".repeat(201)] {
        let path = format!("/v1/assets/{key}");
        problem(served.put(&path).json(&a_box()), 422, "invalid_body").await;
        problem(served.get(&path), 404, "not_found").await;
        problem(served.delete(&path), 404, "not_found").await;
    }
    assert_eq!(assets(&db).await, 5);
}

#[tokio::test]
async fn names_in_a_body_follow_the_same_rule_on_write_and_in_filters() {
    let (_db, served) = served().await;
    let body = json!({"category": " cafe\u{301} ", "location": "test ", "vendor": "Dell\u{a0}"});
    let (_, asset) = answer(served.put("/v1/assets/a").json(&body)).await;
    assert_eq!((&asset["category"], &asset["location"]), (&json!("caf\u{e9}"), &json!("test")));
    assert_eq!(asset["vendor"], "Dell");
    for (query, found) in [
        ("category=caf%C3%A9", 1),
        ("category=cafe%CC%81%20&location=test%20", 1),
        ("location=TEST", 0),
        ("category=cafe", 0),
    ] {
        let (status, page) = answer(served.get(&format!("/v1/assets?{query}"))).await;
        assert_eq!((status, page["data"].as_array().unwrap().len()), (200, found), "{query}");
    }
}

#[tokio::test]
async fn a_body_that_does_not_fit_is_refused_with_every_fault_named_and_changes_nothing() {
    let (db, served) = served().await;
    let path = "/v1/assets/a";
    let body = json!({"category": "", "location": "a\u{7}", "vendor": 5, "attributes": [], "status": "sold",
        "rank": 2_147_483_648_u32, "available_from": "soon", "colour": "red", "held_by": null});
    let refused = problem(served.put(path).json(&body), 422, "invalid_body").await;
    let expected = [
        "/colour",
        "/held_by",
        "/category",
        "/location",
        "/vendor",
        "/attributes",
        "/status",
        "/rank",
        "/available_from",
    ];
    assert_eq!(pointers(&refused), expected);
    for (body, expected) in [
        (json!([]), vec![""]),
        (json!("text"), vec![""]),
        (json!({}), vec!["/category", "/location"]),
        (
            json!({"category": "c\u{0}", "location": "l", "attributes": {"a": [{"b\u{0}": "c\u{0}"}]}}),
            vec!["/attributes/a/0/b\u{0}", "/attributes/a/0/b\u{0}", "/category"],
        ),
        (json!({"category": "x".repeat(201), "location": null}), vec!["/category", "/location"]),
    ] {
        let refused = problem(served.put(path).json(&body), 422, "invalid_body").await;
        assert_eq!(pointers(&refused), expected, "{body}");
    }
    for broken in [
        String::new(),
        "{".to_owned(),
        r#"{"category": "\ud800", "location": "l"}"#.to_owned(),
        format!(
            r#"{{"category": "c", "location": "l", "attributes": {{"a": {}1{}}}}}"#,
            "[".repeat(200),
            "]".repeat(200)
        ),
        r#"{"category": "c", "location": "l", "attributes": {"a": 1e999}}"#.to_owned(),
    ] {
        problem(served.put(path).body(broken), 400, "invalid_json").await;
    }
    problem(served.put(path).body(vec![0xff]), 400, "invalid_json").await;
    let huge = json!({"category": "c", "location": "l", "attributes": {"a": "x".repeat(1 << 20)}});
    problem(served.put(path).json(&huge), 413, "body_too_large").await;
    assert_eq!(assets(&db).await, 0);

    // {"a":"…"} of 16 KiB is the largest, one byte more is too large.
    let described =
        |bytes: usize| json!({"category": "c", "location": "l", "attributes": {"a": "x".repeat(bytes - 8)}});
    let refused = problem(served.put(path).json(&described((16 << 10) + 1)), 422, "invalid_body").await;
    assert_eq!(pointers(&refused), ["/attributes"]);
    assert_eq!(answer(served.put(path).json(&described(16 << 10))).await.0, 201);
    problem(served.put(path).json(&json!({"category": "other"})), 422, "invalid_body").await;
    assert_eq!(answer(served.get(path)).await.1["category"], "c");
}

#[tokio::test]
async fn a_rank_and_an_instant_at_the_edge_are_kept() {
    let (_db, served) = served().await;
    for rank in [i64::from(i32::MIN), i64::from(i32::MAX)] {
        let body = json!({"category": "c", "location": "l", "rank": rank});
        assert_eq!(answer(served.put("/v1/assets/a").json(&body)).await.1["rank"], rank);
    }
    let put = async |at: &str| {
        let body = json!({"category": "c", "location": "l", "available_from": at});
        answer(served.put("/v1/assets/a").json(&body)).await
    };
    for (at, kept) in [
        ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
        ("2030-06-30T23:59:60Z", "2030-07-01T00:00:00Z"),
        ("2030-06-30T12:00:00-02:30", "2030-06-30T14:30:00Z"),
    ] {
        let (status, asset) = put(at).await;
        assert_eq!((status, &asset["available_from"]), (200, &json!(kept)), "{at}: {asset}");
    }
    for at in
        ["0000-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "10000-01-01T00:00:00Z", "2030-02-30T00:00:00Z", ""]
    {
        assert_eq!(put(at).await.0, 422, "{at}");
    }
}

#[tokio::test]
async fn the_list_goes_in_key_order_a_page_at_a_time() {
    let (_db, served) = served().await;
    for (key, category, location, status) in [
        ("e", "box", "BER", "ready"),
        ("d", "box", "FRA", "maintenance"),
        ("c", "seat", "BER", "ready"),
        ("b", "box", "BER", "retired"),
        ("a", "box", "BER", "ready"),
    ] {
        let body = json!({"category": category, "location": location, "status": status});
        answer(served.put(&format!("/v1/assets/{key}")).json(&body)).await;
    }
    let list = async |query: &str| {
        let (status, page) = answer(served.get(&format!("/v1/assets{query}"))).await;
        assert_eq!(status, 200, "{page}");
        let keys: String = page["data"].as_array().unwrap().iter().map(|a| a["key"].as_str().unwrap()).collect();
        (keys, page["next_cursor"].as_str().map(str::to_owned))
    };
    assert_eq!(list("").await, ("abcde".to_owned(), None));
    let (first, cursor) = list("?limit=2").await;
    let (second, next) = list(&format!("?limit=2&cursor={}", cursor.unwrap())).await;
    let (third, last) = list(&format!("?limit=2&cursor={}", next.unwrap())).await;
    assert_eq!((first.as_str(), second.as_str(), third.as_str(), last), ("ab", "cd", "e", None));
    for (query, keys) in [
        ("?category=box", "abde"),
        ("?location=BER", "abce"),
        ("?status=ready", "ace"),
        ("?category=box&location=BER&status=ready", "ae"),
        ("?category=none", ""),
        ("?limit=5&category=box", "abde"),
    ] {
        assert_eq!(list(query).await, (keys.to_owned(), None), "{query}");
    }
    let (first, cursor) = list("?category=box&limit=3").await;
    let (rest, _) = list(&format!("?category=box&limit=3&cursor={}", cursor.unwrap())).await;
    assert_eq!((first.as_str(), rest.as_str()), ("abd", "e"));

    answer(served.delete("/v1/assets/c")).await;
    assert_eq!(list("").await.0, "abde");
    for query in [
        "limit=0",
        "limit=201",
        "limit=x",
        "cursor=zz",
        "cursor=00",
        "status=sold",
        "colour=red",
        "category=%00",
        "location=%0A",
        "category=%20",
        "limit=1&limit=2",
    ] {
        problem(served.get(&format!("/v1/assets?{query}")), 400, "invalid_query").await;
    }
}

#[tokio::test]
async fn an_asset_in_use_is_not_taken_away_and_the_answer_names_the_order() {
    let (db, served) = served().await;
    for key in ["held", "bound"] {
        answer(served.put(&format!("/v1/assets/{key}")).json(&a_box())).await;
    }
    sqlx::raw_sql(
        "insert into onehold.orders (shop_id, idempotency_key, status) values (1, 'held', 'reserved'), (1, 'bound', 'reserved');
         insert into onehold.reservations (shop_id, order_id, asset_id, location, expires_at)
         select 1, o.id, a.id, 'BER', now() + interval '1 hour'
         from onehold.orders o join onehold.assets a on a.key = o.idempotency_key;
         update onehold.reservations r set state = 'converted'
         from onehold.orders o where o.id = r.order_id and o.idempotency_key = 'bound';
         insert into onehold.bindings (shop_id, reservation_id, asset_id)
         select 1, id, asset_id from onehold.reservations where state = 'converted'",
    )
    .execute(db.pool())
    .await
    .unwrap();
    for (key, member, other) in [("held", "held_by", "bound_to"), ("bound", "bound_to", "held_by")] {
        let order: String = sqlx::query_scalar("select id::text from onehold.orders where idempotency_key = $1")
            .bind(key)
            .fetch_one(db.pool())
            .await
            .unwrap();
        let path = format!("/v1/assets/{key}");
        let (_, before) = answer(served.get(&path)).await;
        assert_eq!((&before[member], &before[other]), (&json!(order), &Value::Null));
        let mut refusals = vec![problem(served.delete(&path), 409, "asset_in_use").await];
        for (field, value) in [("category", "seat"), ("location", "FRA"), ("status", "retired")] {
            let mut body = a_box();
            body[field] = json!(value);
            refusals.push(problem(served.put(&path).json(&body), 409, "asset_in_use").await);
        }
        for refusal in refusals {
            assert_eq!(refusal["order"], json!(order));
            assert!(refusal["detail"].as_str().unwrap().contains(&order), "{refusal}");
        }
        assert_eq!(answer(served.get(&path)).await, (200, before));
        let mut body = a_box();
        body["status"] = json!("maintenance");
        let (status, asset) = answer(served.put(&path).json(&body)).await;
        assert_eq!((status, &asset["status"], &asset[member]), (200, &json!("maintenance"), &json!(order)));
    }
}

#[tokio::test]
async fn assets_need_a_key_with_the_scope_stock_and_are_those_of_its_shop() {
    let (db, served) = served().await;
    answer(served.put("/v1/assets/a").json(&a_box())).await;
    let (_, stranger) = shop_with_key(&db, "other", &[Scope::Stock]).await;
    let (_, buyer) = shop_with_key(&db, "third", &[Scope::Orders, Scope::Ops]).await;
    let url = |path: &str| served.base.clone() + path;
    for (method, path) in
        [("GET", "/v1/assets"), ("GET", "/v1/assets/a"), ("PUT", "/v1/assets/a"), ("DELETE", "/v1/assets/a")]
    {
        let request = || served.client.request(method.parse().unwrap(), url(path)).json(&a_box());
        problem(request(), 401, "unauthorized").await;
        problem(request().bearer_auth("wrong"), 401, "unauthorized").await;
        problem(request().bearer_auth(&buyer), 403, "forbidden").await;
    }
    problem(served.client.get(url("/v1/assets/a")).bearer_auth(&stranger), 404, "not_found").await;
    problem(served.client.delete(url("/v1/assets/a")).bearer_auth(&stranger), 404, "not_found").await;
    let (_, page) = answer(served.client.get(url("/v1/assets")).bearer_auth(&stranger)).await;
    assert_eq!(page["data"], json!([]));
    // The same key in another shop is another asset.
    assert_eq!(answer(served.client.put(url("/v1/assets/a")).bearer_auth(&stranger).json(&a_box())).await.0, 201);
    assert_eq!(assets(&db).await, 2);
}
