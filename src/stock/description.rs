//! What an asset is, as a request describes it: checked whole, with every fault named.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Map, Value};

use super::name;

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

/// A part of a body that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyFault {
    /// Where, as a JSON Pointer (RFC 6901).
    pub pointer: String,
    /// What is wrong there.
    pub detail: String,
}

impl BodyFault {
    fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }
}

/// Checks the body of a PUT: `{"category", "location", "vendor", "attributes", "status", "rank",
/// "available_from"}`, of which the first two are required.
///
/// # Errors
/// Every fault, not only the first.
pub fn check(body: &Value) -> Result<Description, Vec<BodyFault>> {
    let Some(fields) = body.as_object() else {
        return Err(vec![BodyFault::new("", "must be an object")]);
    };
    let mut faults = Vec::new();
    let description = Description {
        category: required_name(fields, "category", &mut faults),
        location: required_name(fields, "location", &mut faults),
        vendor: match fields.get("vendor") {
            None | Some(Value::Null) => None,
            Some(value) => Some(read_name(value, "vendor", &mut faults)),
        },
        attributes: attributes(fields.get("attributes"), &mut faults),
        status: status(fields.get("status"), &mut faults),
        rank: rank(fields.get("rank"), &mut faults),
        available_from: available_from(fields.get("available_from"), &mut faults),
    };
    let known = ["category", "location", "vendor", "attributes", "status", "rank", "available_from"];
    for unknown in fields.keys().filter(|name| !known.contains(&name.as_str())) {
        faults.push(BodyFault::new(format!("/{}", escape(unknown)), "is not a field of an asset"));
    }
    if faults.is_empty() { Ok(description) } else { Err(faults) }
}

fn required_name(fields: &Map<String, Value>, field: &str, faults: &mut Vec<BodyFault>) -> String {
    match fields.get(field) {
        None => {
            faults.push(BodyFault::new(format!("/{field}"), "is missing"));
            String::new()
        }
        Some(value) => read_name(value, field, faults),
    }
}

fn read_name(value: &Value, field: &str, faults: &mut Vec<BodyFault>) -> String {
    let checked = match value.as_str() {
        None => Err("must be a string".to_owned()),
        Some(text) => name::check(text).map_err(|fault| fault.to_string()),
    };
    checked.unwrap_or_else(|detail| {
        faults.push(BodyFault::new(format!("/{field}"), detail));
        String::new()
    })
}

fn attributes(value: Option<&Value>, faults: &mut Vec<BodyFault>) -> Value {
    match value {
        None => Value::Object(Map::new()),
        Some(value @ Value::Object(_)) => {
            find_nul(value, "/attributes", faults);
            value.clone()
        }
        Some(_) => {
            faults.push(BodyFault::new("/attributes", "must be an object"));
            Value::Null
        }
    }
}

/// The database cannot keep U+0000 in JSON. As deep as the JSON parser went, which is 128.
fn find_nul(value: &Value, at: &str, faults: &mut Vec<BodyFault>) {
    const DETAIL: &str = "must not contain U+0000";
    match value {
        Value::String(text) if text.contains('\0') => faults.push(BodyFault::new(at, DETAIL)),
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                find_nul(item, &format!("{at}/{n}"), faults);
            }
        }
        Value::Object(fields) => {
            for (name, item) in fields {
                let inner = format!("{at}/{}", escape(name));
                if name.contains('\0') {
                    faults.push(BodyFault::new(inner.as_str(), DETAIL));
                }
                find_nul(item, &inner, faults);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn status(value: Option<&Value>, faults: &mut Vec<BodyFault>) -> Status {
    let Some(value) = value else { return Status::Ready };
    value.as_str().and_then(Status::from_code).unwrap_or_else(|| {
        faults.push(BodyFault::new("/status", "must be one of ready, maintenance, retired"));
        Status::Ready
    })
}

fn rank(value: Option<&Value>, faults: &mut Vec<BodyFault>) -> i32 {
    let Some(value) = value else { return 0 };
    value.as_i64().and_then(|n| n.try_into().ok()).unwrap_or_else(|| {
        faults.push(BodyFault::new("/rank", format!("must be a whole number from {} to {}", i32::MIN, i32::MAX)));
        0
    })
}

fn available_from(value: Option<&Value>, faults: &mut Vec<BodyFault>) -> Option<DateTime<Utc>> {
    let value = value.filter(|v| !v.is_null())?;
    let at = value.as_str().and_then(|text| DateTime::parse_from_rfc3339(text).ok());
    if at.is_none() {
        faults.push(BodyFault::new("/available_from", "must be an RFC 3339 timestamp, such as 2030-01-31T12:00:00Z"));
    }
    at.map(|at| at.to_utc())
}

fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
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
            ["/category", "/location", "/vendor", "/attributes", "/status", "/rank", "/available_from", "/extra~1~0"];
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
    fn a_nul_is_found_at_any_depth_in_names_and_values() {
        let body = json!({"category": "c", "location": "l",
            "attributes": {"a": ["x", {"b": "y\u{0}"}], "c\u{0}": 1}});
        assert_eq!(pointers(&body), ["/attributes/a/1/b", "/attributes/c\u{0}"]);
    }

    #[test]
    fn a_rank_is_what_the_database_can_keep() {
        let rank = |n: serde_json::Value| check(&json!({"category": "c", "location": "l", "rank": n})).map(|a| a.rank);
        assert_eq!(rank(json!(i32::MIN)), Ok(i32::MIN));
        assert_eq!(rank(json!(i32::MAX)), Ok(i32::MAX));
        assert!(rank(json!(i64::from(i32::MAX) + 1)).is_err());
        assert!(rank(json!("1")).is_err());
    }
}
