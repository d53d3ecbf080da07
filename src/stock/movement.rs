//! A movement of stock, as a request asks for it: checked whole, with every fault named.

use std::ops::RangeInclusive;

use serde_json::Value;

use super::name;
use crate::body::{BodyFault, Controls, Faults, Fields};

const FIELDS: [&str; 6] = ["sku", "location", "delta", "kind", "reference", "force"];
/// A thousand million units either way: far from what the database's numbers can keep, and more is a slip.
const DELTAS: RangeInclusive<i64> = -1_000_000_000..=1_000_000_000;
const MOST_REFERENCE_CHARS: usize = 255;
/// How the references begin by which sales and releases count once.
pub const OWN_PREFIX: &str = "onehold:";

/// Why stock moves by hand. Sales and releases move it too, but nobody asks for those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Goods came in.
    Receipt,
    /// A count, a loss, a find: either way.
    Adjustment,
    /// A buyer sent it back.
    Return,
}

impl Kind {
    /// Every kind there is.
    pub const ALL: [Self; 3] = [Self::Receipt, Self::Adjustment, Self::Return];
    /// What is said to who names another one.
    pub const MUST: &str = "must be one of receipt, adjustment, return";

    /// The frozen name, as it stands in JSON and in the database.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Receipt => "receipt",
            Self::Adjustment => "adjustment",
            Self::Return => "return",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Whether stock can become less by it.
    #[must_use]
    pub fn may_take(self) -> bool {
        match self {
            Self::Adjustment => true,
            Self::Receipt | Self::Return => false,
        }
    }
}

/// A movement that fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMovement {
    /// What moves (a checked name).
    pub sku: String,
    /// Where (a checked name).
    pub location: String,
    /// How many units come (positive) or go (negative); never 0.
    pub delta: i32,
    /// Why.
    pub kind: Kind,
    /// Makes it count once in its shop.
    pub reference: String,
    /// Whether it shall be posted even where more is then held than there is.
    pub force: bool,
}

/// Checks the body of a movement: `{"sku", "location", "delta", "kind", "reference", "force"}`, of which only
/// the last may be left out.
///
/// # Errors
/// Every fault, not only the first.
pub fn check(body: &Value) -> Result<NewMovement, Vec<BodyFault>> {
    let mut faults = Faults::of(body);
    let Some(fields) = faults.object(body, "", &FIELDS) else {
        return Err(faults.or(()).err().unwrap_or_default());
    };
    let sku = named(&fields, "sku", &mut faults);
    let location = named(&fields, "location", &mut faults);
    let kind = kind(&fields, &mut faults);
    let delta = delta(&fields, kind, &mut faults);
    let reference = reference(&fields, &mut faults);
    let force = force(&fields, &mut faults);
    match (sku, location, delta, kind, reference) {
        (Some(sku), Some(location), Some(delta), Some(kind), Some(reference)) => {
            faults.or(NewMovement { sku, location, delta, kind, reference, force })
        }
        // Whatever is missing was named.
        _ => Err(faults.or(()).err().unwrap_or_default()),
    }
}

fn named(fields: &Fields<'_>, field: &str, faults: &mut Faults) -> Option<String> {
    let value = fields.require(field, faults)?;
    let Some(text) = value.as_str() else {
        faults.add(fields.pointer(field), "must be a string");
        return None;
    };
    // U+0000 is named already.
    name::check(text)
        .map_err(|fault| {
            if !text.contains('\0') {
                faults.add(fields.pointer(field), fault.to_string());
            }
        })
        .ok()
}

fn kind(fields: &Fields<'_>, faults: &mut Faults) -> Option<Kind> {
    let kind = fields.require("kind", faults)?.as_str().and_then(Kind::from_code);
    if kind.is_none() {
        faults.add("/kind", Kind::MUST);
    }
    kind
}

fn delta(fields: &Fields<'_>, kind: Option<Kind>, faults: &mut Faults) -> Option<i32> {
    let value = fields.require("delta", faults)?;
    let delta = faults.whole(value, "/delta", DELTAS)?;
    if delta == 0 {
        faults.add("/delta", "must not be 0: nothing would move");
        return None;
    }
    if delta < 0 && kind.is_some_and(|kind| !kind.may_take()) {
        faults.add("/delta", "must be positive, unless it is an adjustment");
        return None;
    }
    i32::try_from(delta).ok()
}

fn reference(fields: &Fields<'_>, faults: &mut Faults) -> Option<String> {
    let value = fields.require("reference", faults)?;
    let reference = faults.text(value, "/reference", 1..=MOST_REFERENCE_CHARS, Controls::Refused)?;
    if reference.starts_with(OWN_PREFIX) {
        faults.add("/reference", format!("must not begin with {OWN_PREFIX}, which names sales and releases"));
        return None;
    }
    Some(reference)
}

fn force(fields: &Fields<'_>, faults: &mut Faults) -> bool {
    let Some(value) = fields.get("force") else { return false };
    value.as_bool().unwrap_or_else(|| {
        faults.add("/force", "must be true or false");
        false
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Kind, check};

    fn pointers(body: &Value) -> Vec<String> {
        check(body).unwrap_err().into_iter().map(|fault| fault.pointer).collect()
    }

    fn body(field: &str, value: Value) -> Value {
        let mut body = json!({"sku": "PSU", "location": "BER", "delta": 5, "kind": "receipt", "reference": "PO-1"});
        body[field] = value;
        body
    }

    #[test]
    fn every_fault_is_named() {
        assert_eq!(pointers(&json!({})), ["/sku", "/location", "/kind", "/delta", "/reference"]);
        assert_eq!(pointers(&json!([])), [""]);
        let bad =
            json!({"sku": "", "location": 5, "delta": 0, "kind": "sale", "reference": "", "force": "yes", "x": 1});
        assert_eq!(pointers(&bad), ["/x", "/sku", "/location", "/kind", "/delta", "/reference", "/force"]);
        assert_eq!(pointers(&body("sku", json!("a\u{0}"))), ["/sku"]);
        assert_eq!(pointers(&body("reference", json!("a\u{0}"))), ["/reference"]);
    }

    #[test]
    fn a_delta_is_a_whole_number_that_is_not_0_and_goes_its_kinds_way() {
        for bad in ["0", "-5", "1.5", "\"2\"", "null", "true", "2147483648", "1000000001", "1e300", "[]"] {
            let delta = serde_json::from_str(bad).unwrap();
            assert_eq!(pointers(&body("delta", delta)), ["/delta"], "{bad}");
        }
        for (good, delta) in [("1e3", 1_000), ("2.0", 2), ("1000000000", 1_000_000_000)] {
            assert_eq!(check(&body("delta", serde_json::from_str(good).unwrap())).unwrap().delta, delta);
        }
        let mut taken = body("delta", json!(-1_000_000_000));
        assert_eq!(pointers(&taken), ["/delta"]);
        taken["kind"] = json!("return");
        assert_eq!(pointers(&taken), ["/delta"]);
        taken["kind"] = json!("adjustment");
        let movement = check(&taken).unwrap();
        assert_eq!((movement.delta, movement.kind, movement.force), (-1_000_000_000, Kind::Adjustment, false));
    }

    #[test]
    fn a_reference_is_the_callers_own() {
        assert_eq!(check(&body("reference", json!(" PO é "))).unwrap().reference, " PO é ");
        assert!(check(&body("reference", json!("x".repeat(255)))).is_ok());
        for bad in [json!("x".repeat(256)), json!("onehold:sale:1"), json!("a\nb"), json!(7), json!(null)] {
            assert_eq!(pointers(&body("reference", bad.clone())), ["/reference"], "{bad}");
        }
    }
}
