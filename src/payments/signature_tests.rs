use super::*;

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(HeaderName::from_static(name), value.parse().unwrap());
    }
    map
}

fn secrets(all: &[&str]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

/// The vector that Stripe publishes with its library for .NET (stripe-dotnet, EventUtilityTest, its fixture
/// event_test_signature.json): the body, the secret, the timestamp and the signatures `v1` and `v0`.
mod published {
    pub(super) const SECRET: &str = "webhook_secret";
    pub(super) const AT: i64 = 1_533_204_620;
    pub(super) const V1: &str = "2220f87ef101a04665f11cdf770523143f875572008577fa0f20882ddb9cc3c7";
    pub(super) const V0: &str = "63f3a72374a733066c4be69ed7f8e5ac85c22c9f0a6a612ab9a025a9e4ee7eef";
    pub(super) const BODY: &str = r#"{
  "id": "evt_123",
  "object": "event",
  "account": "acct_123",
  "api_version": "2017-05-25",
  "created": 1533204620,
  "data": {
    "object": {
      "id": "cus_123",
      "object": "customer",
      "created": 123456789,
      "email": "test@stripe.com",
      "livemode": false,
      "metadata": {}
    }
  },
  "livemode": false,
  "pending_webhooks": 1,
  "request": {
    "id": "req_123",
    "idempotency_key": "idempotency-key-123"
  },
  "type": "customer.created"
}
"#;
}

fn stripe(at: i64, header: &str, body: &str, all: &[&str]) -> Result<(), SignatureFault> {
    verify_stripe_at(at, &headers(&[(STRIPE_HEADER, header)]), body.as_bytes(), &secrets(all))
}

#[test]
fn the_vector_that_stripe_publishes_is_believed_under_its_secret_only() {
    use published::{AT, BODY, SECRET, V0, V1};
    let header = format!("t={AT},v1={V1},v0={V0}");
    assert_eq!(stripe(AT + 100, &header, BODY, &[SECRET]), Ok(()));
    assert_eq!(stripe(AT + 100, &header, BODY, &["older", SECRET]), Ok(()));
    assert_eq!(stripe(AT + 100, &header, BODY, &["older"]), Err(SignatureFault::Mismatch));
    assert_eq!(stripe(AT + 100, &header, BODY, &[]), Err(SignatureFault::Mismatch));
    assert_eq!(stripe(AT + 100, &header, BODY.trim_end(), &[SECRET]), Err(SignatureFault::Mismatch));
    let later = format!("t={},v1={V1}", AT + 1);
    assert_eq!(stripe(AT + 100, &later, BODY, &[SECRET]), Err(SignatureFault::Mismatch));
}

#[test]
fn one_fitting_v1_among_others_is_enough_and_no_other_scheme_counts() {
    use published::{AT, BODY, SECRET, V1};
    let other = "00".repeat(32);
    for header in [
        format!("t={AT},v1={other},v1={V1}"),
        format!("t={AT},v1={V1},v1=potato,v1="),
        format!("v1={V1},t={AT}"),
        format!("t={AT},v1={}", V1.to_uppercase()),
    ] {
        assert_eq!(stripe(AT, &header, BODY, &[SECRET]), Ok(()), "{header}");
    }
    for header in [format!("t={AT},v0={V1}"), format!("t={AT}"), format!("t={AT},v1={}", &V1[..62])] {
        assert_eq!(stripe(AT, &header, BODY, &[SECRET]), Err(SignatureFault::Mismatch), "{header}");
    }
}

#[test]
fn an_empty_secret_verifies_nothing() {
    let mut mac = Hmac::<Sha256>::new_from_slice(b"").unwrap();
    mac.update(b"5.{}");
    let header = format!("t=5,v1={}", hex::encode(mac.finalize().into_bytes()));
    assert_eq!(stripe(5, &header, "{}", &[""]), Err(SignatureFault::Mismatch));
}

#[test]
fn three_hundred_seconds_are_tolerated_both_ways_and_not_one_more() {
    use published::{AT, BODY, SECRET, V1};
    let header = format!("t={AT},v1={V1}");
    for at in [AT - 300, AT, AT + 300] {
        assert_eq!(stripe(at, &header, BODY, &[SECRET]), Ok(()));
    }
    for at in [AT - 301, AT + 301] {
        assert_eq!(stripe(at, &header, BODY, &[SECRET]), Err(SignatureFault::Stale));
    }
}

#[test]
fn an_absurd_stripe_header_is_malformed() {
    use published::{AT, BODY, SECRET, V1};
    let long = format!("t={AT},v1={V1}{}", format!(",v1={V1}").repeat(60));
    for header in [
        "",
        "t",
        ",,",
        "t=",
        "t=,v1=",
        "t=x,v1=00",
        "t=-1,v1=00",
        "t=+5,v1=00",
        "t= 5,v1=00",
        "v1=00",
        "t=9223372036854775808,v1=00",
        "t=-9223372036854775808,v1=00",
        "t=5,t=5,v1=00",
        "bad_header",
        &long,
    ] {
        assert_eq!(stripe(AT, header, BODY, &[SECRET]), Err(SignatureFault::Malformed(STRIPE_HEADER)), "{header}");
    }
    assert_eq!(stripe(AT, "t=9223372036854775807,v1=00", BODY, &[SECRET]), Err(SignatureFault::Stale));
    assert_eq!(verify_stripe(&HeaderMap::new(), b"", &[]), Err(SignatureFault::Missing(STRIPE_HEADER)));
    let good = format!("t={AT},v1={V1}");
    let twice = headers(&[(STRIPE_HEADER, &good), (STRIPE_HEADER, &good)]);
    assert_eq!(
        verify_stripe_at(AT, &twice, BODY.as_bytes(), &secrets(&[SECRET])),
        Err(SignatureFault::Repeated(STRIPE_HEADER))
    );
    let mut latin = HeaderMap::new();
    latin.insert(STRIPE_HEADER, http::HeaderValue::from_bytes(b"t=5,v1=\xe9").unwrap());
    assert_eq!(verify_stripe(&latin, b"", &[]), Err(SignatureFault::Malformed(STRIPE_HEADER)));
}

const STANDARD_SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

fn standard_headers(id: &str, at: &str, signature: &str) -> HeaderMap {
    headers(&[(HEADER_WEBHOOK_ID, id), (HEADER_WEBHOOK_TIMESTAMP, at), (HEADER_WEBHOOK_SIGNATURE, signature)])
}

/// The vector that the Standard Webhooks libraries publish (test_sign).
#[test]
fn the_vector_that_standard_webhooks_publishes_is_made_by_the_library_in_use() {
    let body = br#"{"email":"test@example.com","username":"test_user"}"#;
    let signature = Webhook::new(STANDARD_SECRET).unwrap().sign("msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", 1_649_367_553, body);
    assert_eq!(signature.unwrap(), "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=");
}

#[test]
fn a_standard_signature_is_believed_under_any_current_secret_while_fresh() {
    let body = b"{}";
    let sign = |at: i64| {
        let signature = Webhook::new(STANDARD_SECRET).unwrap().sign("msg_1", at, body).unwrap();
        standard_headers("msg_1", &at.to_string(), &signature)
    };
    let other = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let all = secrets(&[other, "not base64", STANDARD_SECRET]);
    assert_eq!(verify_standard(&sign(now()), body, &all).as_deref(), Ok("msg_1"));
    assert_eq!(verify_standard(&sign(now()), body, &secrets(&[other])), Err(SignatureFault::Mismatch));
    let keyless = Webhook::from_bytes(Vec::new()).unwrap().sign("msg_1", now(), body).unwrap();
    let keyless = standard_headers("msg_1", &now().to_string(), &keyless);
    assert_eq!(verify_standard(&keyless, body, &secrets(&["", "whsec_"])), Err(SignatureFault::Mismatch));
    assert_eq!(verify_standard(&sign(now()), b"{ }", &all), Err(SignatureFault::Mismatch));
    assert_eq!(verify_standard(&sign(now() - 301), body, &all), Err(SignatureFault::Stale));
    assert_eq!(verify_standard(&sign(now() + 302), body, &all), Err(SignatureFault::Stale));
}

#[test]
fn an_absurd_standard_header_is_malformed_and_never_a_panic() {
    let all = secrets(&[STANDARD_SECRET]);
    let ts = now().to_string();
    for at in ["", "x", "-9223372036854775808", "-1", "+5", "1.5", "9223372036854775808", " "] {
        let got = verify_standard(&standard_headers("msg_1", at, "v1,AA=="), b"{}", &all);
        assert_eq!(got, Err(SignatureFault::Malformed(HEADER_WEBHOOK_TIMESTAMP)), "{at}");
    }
    let far = verify_standard(&standard_headers("msg_1", "9223372036854775807", "v1,AA=="), b"{}", &all);
    assert_eq!(far, Err(SignatureFault::Stale));
    for id in [String::new(), "x".repeat(256)] {
        let got = verify_standard(&standard_headers(&id, &ts, "v1,AA=="), b"{}", &all);
        assert_eq!(got, Err(SignatureFault::Malformed(HEADER_WEBHOOK_ID)));
    }
    let long = verify_standard(&standard_headers("msg_1", &ts, &"v1,AA== ".repeat(600)), b"{}", &all);
    assert_eq!(long, Err(SignatureFault::Malformed(HEADER_WEBHOOK_SIGNATURE)));
    for missing in [HEADER_WEBHOOK_ID, HEADER_WEBHOOK_TIMESTAMP, HEADER_WEBHOOK_SIGNATURE] {
        let mut map = standard_headers("msg_1", &ts, "v1,AA==");
        map.remove(missing);
        assert_eq!(verify_standard(&map, b"{}", &all), Err(SignatureFault::Missing(missing)));
        map.append(missing, "a".parse().unwrap());
        map.append(missing, "b".parse().unwrap());
        assert_eq!(verify_standard(&map, b"{}", &all), Err(SignatureFault::Repeated(missing)));
    }
    for signature in ["", "v1,", "v1", "v2,AA==", "v1,AA==,"] {
        let got = verify_standard(&standard_headers("msg_1", &ts, signature), b"{}", &all);
        assert_eq!(got, Err(SignatureFault::Mismatch), "{signature}");
    }
}
