//! What an asset is, as a request describes it: checked whole, with every fault named.

use std::ops::RangeInclusive;

use chrono::{DateTime, Datelike as _, Utc};
use serde::Serialize;
use serde_json::{Map, Value};

use super::name;
use crate::body::{BodyFault, Faults};

const FIELDS: [&str; 7] = ["category", "location", "vendor", "attributes", "status", "rank", "available_from"];
/// What the database can keep.
const RANKS: RangeInclusive<i64> = i32::MIN as i64..=i32::MAX as i64;

/// Whether an asset can be sold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It can.
    Ready,
    /// Not now.
    Maintenance,
    /// Never again.
    Retired,
}

impl Status {
    /// Every status there is.
    pub const ALL: [Self; 3] = [Self::Ready, Self::Maintenance, Self::Retired];
    /// What is said to who names another one.
    pub const MUST: &str = "must be one of ready, maintenance, retired";

    /// The frozen name, as it stands in JSON and in the database.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Maintenance => "maintenance",
            Self::Retired => "retired",
        }
    }

    /// The status of that name.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.code() == code)
    }
}

/// What an asset is. Names are normalised.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// What it is sold as.
    pub category: String,
    /// Where it stands.
    pub location: String,
    /// Whose it is.
    pub vendor: Option<String>,
    /// A JSON object without U+0000.
    pub attributes: Value,
    /// Whether it can be sold.
    pub status: Status,
    /// Lower is allocated first.
    pub rank: i32,
    /// Not to be sold before this instant.
    pub available_from: Option<DateTime<Utc>>,
}

/// The most that an asset's attributes may take as JSON text, in bytes: each candidate's are read by every search.
const MOST_ATTRIBUTE_BYTES: usize = 16 << 10;

/// Checks the body of a PUT: `{"category", "location", "vendor", "attributes", "status", "rank",
/// "available_from"}`, of which the first two are required.
///
/// # Errors
/// Every fault, not only the first.
pub fn check(body: &Value) -> Result<Description, Vec<BodyFault>> {
    let mut faults = Faults::of(body);
    let description = faults.object(body, "", &FIELDS).map(|fields| Description {
        category: fields
            .require("category", &mut faults)
            .and_then(|v| named(v, "/category", &mut faults))
            .unwrap_or_default(),
        location: fields
            .require("location", &mut faults)
            .and_then(|v| named(v, "/location", &mut faults))
            .unwrap_or_default(),
        vendor: fields.given("vendor").and_then(|value| named(value, "/vendor", &mut faults)),
        attributes: attributes(fields.get("attributes"), &mut faults),
        status: status(fields.get("status"), &mut faults),
        rank: rank(fields.get("rank"), &mut faults),
        available_from: fields.given("available_from").and_then(|value| instant(value, &mut faults)),
    });
    match description {
        Some(description) => faults.or(description),
        None => Err(faults.or(()).err().unwrap_or_default()),
    }
}

fn named(value: &Value, at: &str, faults: &mut Faults) -> Option<String> {
    let Some(text) = value.as_str() else {
        faults.add(at, "must be a string");
        return None;
    };
    // U+0000 is named already.
    name::check(text)
        .map_err(|fault| {
            if !text.contains('\0') {
                faults.add(at, fault.to_string())
            }
        })
        .ok()
}

fn attributes(value: Option<&Value>, faults: &mut Faults) -> Value {
    match value {
        None => Value::Object(Map::new()),
        Some(value) => {
            if faults.map(value, "/attributes").is_some() && value.to_string().len() > MOST_ATTRIBUTE_BYTES {
                faults.add("/attributes", format!("must not be larger than {MOST_ATTRIBUTE_BYTES} bytes of JSON"));
            }
            value.clone()
        }
    }
}

fn status(value: Option<&Value>, faults: &mut Faults) -> Status {
    let Some(value) = value else { return Status::Ready };
    value.as_str().and_then(Status::from_code).unwrap_or_else(|| {
        faults.add("/status", Status::MUST);
        Status::Ready
    })
}

fn rank(value: Option<&Value>, faults: &mut Faults) -> i32 {
    let rank = value.and_then(|value| faults.whole(value, "/rank", RANKS));
    rank.and_then(|n| n.try_into().ok()).unwrap_or_default()
}

fn instant(value: &Value, faults: &mut Faults) -> Option<DateTime<Utc>> {
    let at = value.as_str().and_then(|text| DateTime::parse_from_rfc3339(text).ok());
    // An offset can lead out of the years that can be written.
    let at = at.map(|at| at.to_utc()).filter(|at| (0..=9999).contains(&at.year()));
    if at.is_none() {
        faults.add("/available_from", "must be an RFC 3339 timestamp, such as 2030-01-31T12:00:00Z");
    }
    at
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Status, check};

    fn pointers(body: &serde_json::Value) -> Vec<String> {
        check(body).unwrap_err().into_iter().map(|fault| fault.pointer).collect()
    }

    #[test]
    fn category_and_location_are_enough() {
        let asset = check(&json!({"category": " server ", "location": "BER"})).unwrap();
        assert_eq!((asset.category.as_str(), asset.location.as_str()), ("server", "BER"));
        assert_eq!((asset.vendor, asset.status, asset.rank), (None, Status::Ready, 0));
        assert_eq!((asset.attributes, asset.available_from), (json!({}), None));
    }

    #[test]
    fn every_fault_is_named() {
        let body = json!({"category": "", "vendor": 5, "attributes": [], "status": "broken", "rank": 1.5,
            "available_from": "tomorrow", "extra/~": 1});
        let expected =
            ["/extra~1~0", "/category", "/location", "/vendor", "/attributes", "/status", "/rank", "/available_from"];
        assert_eq!(pointers(&body), expected);
        assert_eq!(pointers(&json!([])), [""]);
    }

    #[test]
    fn null_is_a_value_for_vendor_and_available_from_only() {
        let good = json!({"category": "c", "location": "l", "vendor": null, "available_from": null});
        assert!(check(&good).is_ok());
        let bad = json!({"category": null, "location": null, "attributes": null, "status": null, "rank": null});
        assert_eq!(pointers(&bad), ["/category", "/location", "/attributes", "/status", "/rank"]);
    }

    #[test]
    fn a_nul_is_named_once_wherever_it_stands() {
        let body = json!({"category": "c\u{0}", "location": "l", "attributes": {"a": ["x", {"b": "y\u{0}"}]}});
        assert_eq!(pointers(&body), ["/attributes/a/1/b", "/category"]);
    }

    #[test]
    fn attributes_have_a_bound_in_bytes() {
        let body = |text: String| json!({"category": "c", "location": "l", "attributes": {"a": text}});
        // {"a":""} are eight bytes, and é is two.
        assert!(check(&body("é".repeat(8_188))).is_ok());
        assert_eq!(pointers(&body(format!("{}x", "é".repeat(8_188)))), ["/attributes"]);
    }

    #[test]
    fn a_rank_is_what_the_database_can_keep() {
        let rank = |n: serde_json::Value| check(&json!({"category": "c", "location": "l", "rank": n})).map(|a| a.rank);
        assert_eq!(rank(json!(i32::MIN)), Ok(i32::MIN));
        assert_eq!(rank(json!(i32::MAX)), Ok(i32::MAX));
        assert_eq!(rank(json!(1e3)), Ok(1000));
        assert!(rank(json!(i64::from(i32::MAX) + 1)).is_err());
        assert!(rank(json!("1")).is_err());
    }
}
