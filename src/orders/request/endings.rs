//! What a request to end or prolong an order may say.

use serde_json::Value;

use super::super::AfterRelease;
use super::{BodyFault, MOST_HOLD_SECONDS};
use crate::body::{Controls, Faults, Fields};

const MOST_REASON_CHARS: usize = 1_000;

/// `{"reason": "…"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancel {
    /// A person's words, for the history.
    pub reason: Option<String>,
}

/// `{"hold_seconds": 600}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extend {
    /// The deadline shall be so many seconds from now.
    pub seconds: i32,
}

/// `{"reason": "…", "assets": "ready"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// A person's words, for the history.
    pub reason: Option<String>,
    /// What the assets become; sellable at once unless the request says otherwise.
    pub assets: AfterRelease,
}

/// Checks the body of a cancellation.
///
/// # Errors
/// Every fault.
pub fn cancel(body: &Value) -> Result<Cancel, Vec<BodyFault>> {
    let mut faults = Faults::of(body);
    let fields = faults.object(body, "", &["reason"]);
    let reason = fields.and_then(|fields| reason(&fields, &mut faults));
    faults.or(Cancel { reason })
}

/// Checks the body of a prolongation.
///
/// # Errors
/// Every fault.
pub fn extend(body: &Value) -> Result<Extend, Vec<BodyFault>> {
    let mut faults = Faults::of(body);
    let seconds = faults.object(body, "", &["hold_seconds"]).and_then(|fields| {
        let value = fields.require("hold_seconds", &mut faults)?;
        faults.whole(value, &fields.pointer("hold_seconds"), 1..=MOST_HOLD_SECONDS)
    });
    let seconds = seconds.and_then(|seconds| i32::try_from(seconds).ok());
    faults.or(Extend { seconds: seconds.unwrap_or_default() })
}

/// Checks the body of a release.
///
/// # Errors
/// Every fault.
pub fn release(body: &Value) -> Result<Release, Vec<BodyFault>> {
    let mut faults = Faults::of(body);
    let mut release = Release { reason: None, assets: AfterRelease::Ready };
    if let Some(fields) = faults.object(body, "", &["reason", "assets"]) {
        release.reason = reason(&fields, &mut faults);
        match fields.get("assets").map(|value| value.as_str()) {
            None | Some(Some("ready")) => {}
            Some(Some("maintenance")) => release.assets = AfterRelease::Maintenance,
            Some(_) => faults.add(fields.pointer("assets"), "must be ready or maintenance"),
        }
    }
    faults.or(release)
}

fn reason(fields: &Fields<'_>, faults: &mut Faults) -> Option<String> {
    let value = fields.given("reason")?;
    faults.text(value, &fields.pointer("reason"), 1..=MOST_REASON_CHARS, Controls::Allowed)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pointers<T: std::fmt::Debug>(result: Result<T, Vec<BodyFault>>) -> Vec<String> {
        result.unwrap_err().into_iter().map(|fault| fault.pointer).collect()
    }

    #[test]
    fn a_reason_may_be_left_out_and_may_have_lines() {
        assert_eq!(cancel(&json!({})).unwrap().reason, None);
        assert_eq!(cancel(&json!({"reason": null})).unwrap().reason, None);
        assert_eq!(cancel(&json!({"reason": "a\nb"})).unwrap().reason.as_deref(), Some("a\nb"));
        assert_eq!(pointers(cancel(&json!({"reason": "", "why": 1}))), ["/why", "/reason"]);
        assert_eq!(pointers(cancel(&json!({"reason": "x".repeat(1_001)}))), ["/reason"]);
        assert_eq!(pointers(cancel(&json!({"reason": "a\u{0}"}))), ["/reason"]);
        assert_eq!(pointers(cancel(&json!([]))), [""]);
    }

    #[test]
    fn an_extension_says_how_long() {
        assert_eq!(extend(&json!({"hold_seconds": 600})).unwrap().seconds, 600);
        for bad in [json!(0), json!(86_401), json!("600"), Value::Null, json!(1.5)] {
            assert_eq!(pointers(extend(&json!({ "hold_seconds": bad }))), ["/hold_seconds"]);
        }
        assert_eq!(pointers(extend(&json!({}))), ["/hold_seconds"]);
    }

    #[test]
    fn a_release_says_what_the_assets_become() {
        assert_eq!(release(&json!({})).unwrap().assets, AfterRelease::Ready);
        assert_eq!(release(&json!({"assets": "maintenance"})).unwrap().assets, AfterRelease::Maintenance);
        for bad in [json!("retired"), json!(1), Value::Null] {
            assert_eq!(pointers(release(&json!({ "assets": bad }))), ["/assets"]);
        }
    }
}
