//! What Onehold reads of a provider's body, and nothing else of it. A provider may send in the rest what our JSON
//! library refuses (a lone surrogate, a number beyond every double, any depth): that is no reason to refuse an event.

use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::event::EventFault;

/// Every field that is read, of either provider, wherever it stands.
const READ: [&str; 16] = [
    "id",
    "type",
    "data",
    "object",
    "metadata",
    "onehold_order",
    "client_reference_id",
    "payment_intent",
    "payment_status",
    "amount",
    "amount_received",
    "amount_total",
    "amount_refunded",
    "currency",
    "order_id",
    "payment_id",
];

/// How deep an object may stand in which something is read: `data.object.metadata` is the deepest.
const DEPTH: usize = 4;

/// The fields of `body`, a JSON object, that are read: strings with U+FFFD where they cannot be read, arrays without
/// their items, numbers beyond doubles as the largest double, which fits nowhere.
pub(super) fn read(body: &str) -> Result<Map<String, Value>, EventFault> {
    if let Some(fields) = object(body, DEPTH) {
        return Ok(fields);
    }
    let json = serde_json::from_str::<IgnoredAny>(body).is_ok();
    Err(if json { EventFault::NotAnObject } else { EventFault::NotJson })
}

fn object(text: &str, depth: usize) -> Option<Map<String, Value>> {
    let mut parser = serde_json::Deserializer::from_str(text);
    let fields = parser.deserialize_map(Object { depth }).ok()?;
    parser.end().ok()?;
    Some(fields)
}

/// `text` is JSON, as it was cut out of a body by the parser.
fn value(text: &str, depth: usize) -> Value {
    match text.as_bytes().first() {
        Some(b'{') => Value::Object(if depth == 0 { Map::new() } else { object(text, depth - 1).unwrap_or_default() }),
        Some(b'[') => Value::Array(Vec::new()),
        Some(b'"') => Value::String(string(text)),
        // Only a number beyond doubles is not read.
        _ => serde_json::from_str(text).unwrap_or_else(|_| Value::from(f64::MAX)),
    }
}

/// Bytes may hold what a string may not: half a surrogate pair.
fn string(text: &str) -> String {
    let bytes = serde_json::Deserializer::from_str(text).deserialize_byte_buf(Bytes).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

struct Bytes;

impl Visitor<'_> for Bytes {
    type Value = Vec<u8>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_vec())
    }
}

struct Object {
    depth: usize,
}

/// A field's name, if it is one that is read.
struct Name(Option<&'static str>);

impl<'de> serde::Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = deserializer.deserialize_bytes(Bytes)?;
        Ok(Self(READ.into_iter().find(|read| read.as_bytes() == name)))
    }
}

impl<'de> Visitor<'de> for Object {
    type Value = Map<String, Value>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Map<String, Value>, A::Error> {
        let mut fields = Map::new();
        while let Some(Name(name)) = map.next_key()? {
            let raw = map.next_value::<&RawValue>()?;
            if let Some(name) = name {
                fields.insert(name.to_owned(), value(raw.get(), self.depth));
            }
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::read;
    use crate::payments::event::EventFault;

    #[test]
    fn only_what_is_read_must_be_readable() {
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        let body = format!(
            r#"{{"id": "evt_1", "\ud800": "\udfff", "x": -1e400, "deep": {deep}, "type": "a\ud800b",
                "data": {{"object": {{"amount": 1e400, "metadata": {{"onehold_order": 5}}, "items": {deep}}}}}}} "#
        );
        let read = Value::Object(read(&body).unwrap());
        let kind = read["type"].as_str().unwrap();
        assert!(kind.starts_with("a\u{fffd}") && kind.ends_with('b'), "{kind}");
        assert_eq!(read["id"], "evt_1");
        let object = &read["data"]["object"];
        assert_eq!(object["metadata"], json!({"onehold_order": 5}));
        assert!(object["amount"].is_f64() && object.get("items").is_none());
        assert!(read.get("x").is_none() && read.get("deep").is_none());
    }

    #[test]
    fn what_is_no_object_or_not_whole_is_refused() {
        for no_object in ["[1]", "5", "null", "\"a\""] {
            assert_eq!(read(no_object).unwrap_err(), EventFault::NotAnObject, "{no_object}");
        }
        for no_json in ["", "{", r#"{"id": 1"#, r#"{"id": 1}}"#, r#"{"x": 01}"#, r#"{"x": tru}"#, r#"{x: 1}"#] {
            assert_eq!(read(no_json).unwrap_err(), EventFault::NotJson, "{no_json}");
        }
    }
}
