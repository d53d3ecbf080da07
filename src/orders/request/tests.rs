//! Cases L1 to L4 and L6, as far as they need no database.

use serde_json::{Value, json};

use super::{BodyFault, check};

fn order(lines: Value) -> Value {
    json!({ "lines": lines })
}

fn line(field: &str, value: Value) -> Value {
    let mut line = json!({"asset": {"category": "box"}});
    line[field] = value;
    order(json!([line]))
}

fn wanting(field: &str, value: Value) -> Value {
    let mut asset = json!({"category": "box"});
    asset[field] = value;
    order(json!([{ "asset": asset }]))
}

fn with(field: &str, value: Value) -> Value {
    let mut body = line("quantity", json!(1));
    body[field] = value;
    body
}

fn faults(body: &Value) -> Vec<BodyFault> {
    match check(body) {
        Err(faults) => faults,
        other => panic!("{body} must not fit, but: {other:?}"),
    }
}

fn pointers(body: &Value) -> Vec<String> {
    faults(body).into_iter().map(|fault| fault.pointer).collect()
}

#[test]
fn lines_are_all_that_is_required() {
    assert_eq!(
        check(&order(json!([{"asset": {"category": "box"}}]))),
        Ok(json!([{"asset": {"category": "box"}, "quantity": 1}]))
    );
    assert_eq!(pointers(&json!({})), ["/lines"]);
    for bad in [json!([]), json!("x"), json!(1), Value::Null] {
        assert_eq!(pointers(&bad), [""], "{bad}");
    }
}

#[test]
fn the_contract_s_example_fits() {
    let body = json!({
        "reference": "R-1001",
        "lines": [
            {"asset": {"category": "dedicated-m", "locations": ["BER", "FRA"], "vendor": "Dell",
                       "attributes": {"ram_gb": {"min": 128}, "raid": {"eq": true}}}, "quantity": 1},
            {"sku": "PSU-750", "locations": ["BER"], "split": false, "quantity": 2}
        ],
        "hold_seconds": 900, "payment": {"amount": 19900, "currency": "EUR"}, "metadata": {"cart": "77"},
        "buyer": "b-1", "wait_seconds": 0
    });
    let lines = check(&body).unwrap();
    assert_eq!([&lines[0], &lines[1]], [&body["lines"][0], &body["lines"][1]]);
}

/// Case L1.
#[test]
fn a_quantity_is_a_whole_number_of_what_can_be_had() {
    for (good, n) in [("1", 1), ("100", 100), ("1e2", 100), ("2.0", 2)] {
        let body = line("quantity", serde_json::from_str(good).unwrap());
        assert_eq!(check(&body).unwrap()[0]["quantity"], json!(n), "{good}");
    }
    for bad in ["0", "-5", "2147483648", "1.5", "\"2\"", "null", "101", "1e3", "1e300", "true", "[1]"] {
        let body = line("quantity", serde_json::from_str(bad).unwrap());
        assert_eq!(pointers(&body), ["/lines/0/quantity"], "{bad}");
    }
    let stock = |quantity: i64| order(json!([{"sku": "S", "quantity": quantity}]));
    assert_eq!(check(&stock(10_000)).unwrap()[0]["quantity"], json!(10_000));
    assert_eq!(pointers(&stock(10_001)), ["/lines/0/quantity"]);
}

/// Case L2: each line is bounded, so that no sum can wrap.
#[test]
fn quantities_that_would_wrap_are_each_named() {
    let lines: Vec<_> = (0..100).map(|_| json!({"sku": "S", "quantity": 2_147_483_647})).collect();
    assert_eq!(pointers(&order(lines.into())).len(), 100);
}

/// Case L3.
#[test]
fn names_are_normalised_on_the_way_in() {
    let asset = json!({"category": " caf\u{65}\u{301} ", "vendor": "TEST ", "locations": ["BER", " BER", "ber"]});
    let wanted = check(&order(json!([{ "asset": asset }]))).unwrap();
    assert_eq!(wanted[0]["asset"], json!({"category": "caf\u{e9}", "vendor": "TEST", "locations": ["BER", "ber"]}));
    for bad in [json!(""), json!("  "), json!("a\u{7}"), json!("x".repeat(201)), json!(5), Value::Null] {
        assert_eq!(pointers(&wanting("category", bad.clone())), ["/lines/0/asset/category"], "{bad}");
    }
}

/// Case L4.
#[test]
fn a_nul_is_refused_in_any_string_and_named_once() {
    let nul = "a\u{0}b";
    assert_eq!(pointers(&with("metadata", json!({"k": [{ nul: 1 }]}))), ["/metadata/k/0/a\u{0}b"]);
    assert_eq!(pointers(&with("metadata", json!({ "k": nul }))), ["/metadata/k"]);
    assert_eq!(pointers(&with("reference", json!(nul))), ["/reference"]);
    assert_eq!(pointers(&with("buyer", json!(nul))), ["/buyer"]);
    assert_eq!(pointers(&wanting("category", json!(nul))), ["/lines/0/asset/category"]);
    assert_eq!(pointers(&wanting("attributes", json!({"x": {"eq": nul}}))), ["/lines/0/asset/attributes/x/eq"]);
    assert_eq!(pointers(&wanting("attributes", json!({nul: {"eq": 1}}))), ["/lines/0/asset/attributes/a\u{0}b"]);
}

/// Case L6.
#[test]
fn every_fault_is_named_not_only_the_first() {
    let body = json!({
        "reference": "", "buyer": 5, "hold_seconds": 0, "wait_seconds": -1, "metadata": [], "extra/field": 1,
        "payment": {"amount": 1.5, "currency": "eur", "tip": 1},
        "lines": [
            {"quantity": 0, "colour": "red", "asset": {"locations": [], "size": 1, "attributes": {"a/b": {"gt": 1}}}},
            {"asset": {"category": "box"}, "sku": "S"},
            {},
            7,
            {"sku": "S", "split": "no", "locations": ["BER", ""], "vendor": "x"}
        ]
    });
    let mut expected = vec![
        "/extra~1field",
        "/reference",
        "/buyer",
        "/hold_seconds",
        "/wait_seconds",
        "/metadata",
        "/payment/tip",
        "/payment/amount",
        "/payment/currency",
        "/lines/0/colour",
        "/lines/0/quantity",
        "/lines/0/asset/size",
        "/lines/0/asset/category",
        "/lines/0/asset/locations",
        "/lines/0/asset/attributes/a~1b/gt",
        "/lines/1",
        "/lines/2",
        "/lines/3",
        "/lines/4/vendor",
        "/lines/4/locations/1",
        "/lines/4/split",
    ];
    let mut found = pointers(&body);
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
    assert!(faults(&body).iter().all(|fault| !fault.detail.is_empty()));
}

#[test]
fn an_order_has_1_to_100_lines() {
    let lines = |n: usize| order(vec![json!({"asset": {"category": "box"}}); n].into());
    assert_eq!(check(&lines(100)).unwrap().as_array().unwrap().len(), 100);
    for bad in [lines(0), lines(101), order(json!({})), order(Value::Null)] {
        assert_eq!(pointers(&bad), ["/lines"]);
    }
}

#[test]
fn conditions_are_eq_in_min_max() {
    let good = json!({"a": {"eq": null}, "b": {"in": [1, "x", null]}, "c": {"min": 1, "max": 2.5}, "d": {"min": "a"}});
    let wanted = check(&wanting("attributes", good.clone())).unwrap();
    assert_eq!(wanted[0]["asset"]["attributes"], good);
    let bad = [
        (json!({}), ""),
        (json!(5), ""),
        (json!({"in": []}), "/in"),
        (json!({"in": 1}), "/in"),
        (json!({"in": vec![1; 101]}), "/in"),
        (json!({"min": true}), "/min"),
        (json!({"max": null}), "/max"),
        (json!({"eq": 1, "like": "x"}), "/like"),
    ];
    for (condition, at) in bad {
        let body = wanting("attributes", json!({ "a": condition }));
        assert_eq!(pointers(&body), [format!("/lines/0/asset/attributes/a{at}")], "{body}");
    }
    let many: serde_json::Map<_, _> = (0..101).map(|n| (n.to_string(), json!({"eq": 1}))).collect();
    assert_eq!(pointers(&wanting("attributes", many.into())), ["/lines/0/asset/attributes"]);
}

#[test]
fn the_header_s_fields_have_their_bounds() {
    let good = [
        ("reference", json!("x".repeat(255))),
        ("reference", Value::Null),
        ("buyer", json!("ä".repeat(200))),
        ("hold_seconds", json!(86_400)),
        ("wait_seconds", json!(0)),
        ("metadata", json!({})),
        ("payment", json!({"amount": 1_000_000_000_000_000_i64, "currency": "EUR"})),
    ];
    for (field, value) in good {
        assert!(check(&with(field, value.clone())).is_ok(), "{field}: {value}");
    }
    let bad = [
        ("reference", json!("x".repeat(256))),
        ("reference", json!("a\nb")),
        ("buyer", json!("")),
        ("buyer", json!("x".repeat(201))),
        ("hold_seconds", json!(86_401)),
        ("hold_seconds", Value::Null),
        ("wait_seconds", json!(86_401)),
        ("metadata", Value::Null),
        ("payment", Value::Null),
    ];
    for (field, value) in bad {
        assert_eq!(pointers(&with(field, value.clone())), [format!("/{field}")], "{field}: {value}");
    }
    let payment = |amount: Value, currency: Value| with("payment", json!({"amount": amount, "currency": currency}));
    assert_eq!(pointers(&payment(json!(-1), json!("EUR"))), ["/payment/amount"]);
    assert_eq!(
        pointers(&payment(json!(1_000_000_000_000_001_i64), json!("EURO"))),
        ["/payment/amount", "/payment/currency"]
    );
    assert_eq!(pointers(&with("payment", json!({}))), ["/payment/amount", "/payment/currency"]);
}
