//! A request's JSON body, checked whole: every part that does not fit is named by its pointer, not only
//! the first.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

/// The most faults that are named. A body of 1 MiB can hold a hundred thousand.
pub const MOST_FAULTS: usize = 1_000;
/// The most bytes that their pointers take: names are the sender's, and can be as long as the body.
const MOST_POINTER_BYTES: usize = 2 << 20;

/// How deep a body may nest. The parser ends at 128; what is stored is shown again inside lists and
/// events, which must still be readable by a parser like ours.
pub const MOST_DEPTH: usize = 64;

/// A part of a body that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct BodyFault {
    /// Where, as a JSON Pointer (RFC 6901). Empty: the body itself.
    pub pointer: String,
    /// What is wrong there.
    pub detail: String,
}

/// The faults that were found so far.
#[derive(Debug)]
pub struct Faults {
    found: Vec<BodyFault>,
    pointer_bytes: usize,
}

/// One step down into a body.
enum Step<'a> {
    Field(&'a str),
    Item(usize),
}

/// The fields of one object of a body, and where it stands there.
#[derive(Debug)]
pub struct Fields<'a> {
    at: String,
    map: &'a Map<String, Value>,
}

/// Whether a text may hold control characters, such as line breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controls {
    /// It may.
    Allowed,
    /// It may not.
    Refused,
}

/// Reads a JSON text, in UTF-8. Numbers beyond 64 bits are kept as doubles; of a name that stands there twice
/// the last counts.
///
/// # Errors
/// What is wrong with it, as the end of a sentence that begins with what it is.
pub fn parse(bytes: &[u8]) -> Result<Value, String> {
    let text =
        std::str::from_utf8(bytes).map_err(|error| format!("is not UTF-8 from byte {} on", error.valid_up_to()))?;
    if text.is_empty() {
        return Err("is empty".to_owned());
    }
    // The parser's own words name line and column, and quote nothing of the body.
    let value: Value = serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
    if depth(&value) > MOST_DEPTH {
        return Err(format!("nests deeper than {MOST_DEPTH} levels"));
    }
    Ok(value)
}

/// How many arrays and objects stand within each other. The parser has bounded the recursion.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

impl Faults {
    /// Begins to check `body`: looks for U+0000, which the database can keep in no string, at once and
    /// everywhere, so that no check of a field has to think of it.
    #[must_use]
    pub fn of(body: &Value) -> Self {
        let mut faults = Self { found: Vec::new(), pointer_bytes: 0 };
        faults.find_nul(body, &mut Vec::new());
        faults
    }

    /// Names a fault.
    pub fn add(&mut self, pointer: impl Into<String>, detail: impl Into<String>) {
        let pointer = pointer.into();
        // The first is always named.
        if self.found.len() < MOST_FAULTS && self.pointer_bytes <= MOST_POINTER_BYTES {
            self.pointer_bytes += pointer.len();
            self.found.push(BodyFault { pointer, detail: detail.into() });
        }
    }

    /// `value` where nothing was found.
    ///
    /// # Errors
    /// Everything that was found.
    pub fn or<T>(self, value: T) -> Result<T, Vec<BodyFault>> {
        if self.found.is_empty() { Ok(value) } else { Err(self.found) }
    }

    /// Whether nothing was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The fields of the object `value`, which stands at `at` and may have the fields `known` only.
    pub fn object<'a>(&mut self, value: &'a Value, at: &str, known: &[&str]) -> Option<Fields<'a>> {
        let fields = self.map(value, at)?;
        for name in fields.map.keys().filter(|name| !known.contains(&name.as_str())) {
            self.add(fields.pointer(name), format!("is not a known field; known are {}", known.join(", ")));
        }
        Some(fields)
    }

    /// The fields of the object `value`, whose names are the sender's own.
    pub fn map<'a>(&mut self, value: &'a Value, at: &str) -> Option<Fields<'a>> {
        let map = value.as_object();
        if map.is_none() {
            self.add(at, "must be an object");
        }
        map.map(|map| Fields { at: at.to_owned(), map })
    }

    /// A string of so many characters.
    pub fn text(
        &mut self,
        value: &Value,
        at: &str,
        chars: RangeInclusive<usize>,
        controls: Controls,
    ) -> Option<String> {
        let Some(text) = value.as_str() else {
            self.add(at, "must be a string");
            return None;
        };
        // Counted no further than needed: the text can be a megabyte.
        let count = text.chars().take(chars.end() + 1).count();
        if !chars.contains(&count) {
            self.add(at, format!("must have {} to {} characters", chars.start(), chars.end()));
            return None;
        }
        // U+0000 was named before.
        if controls == Controls::Refused && text.chars().any(|c| c.is_control() && c != '\0') {
            self.add(at, "must not contain control characters");
            return None;
        }
        Some(text.to_owned())
    }

    /// A whole number. `1e3` is 1000 and `2.0` is 2, as JSON knows one kind of number.
    pub fn whole(&mut self, value: &Value, at: &str, range: RangeInclusive<i64>) -> Option<i64> {
        let number = value.as_i64().or_else(|| value.as_f64().and_then(whole));
        let number = number.filter(|n| range.contains(n));
        if number.is_none() {
            self.add(at, format!("must be a whole number from {} to {}", range.start(), range.end()));
        }
        number
    }

    /// The way down is kept as steps and written out only for a fault: written out at each step, a long
    /// name with many items below it would be copied once for each of them.
    fn find_nul<'a>(&mut self, value: &'a Value, way: &mut Vec<Step<'a>>) {
        const DETAIL: &str = "must not contain U+0000";
        match value {
            Value::String(text) if text.contains('\0') => self.add(written(way), DETAIL),
            Value::Array(items) => {
                for (n, item) in items.iter().enumerate() {
                    way.push(Step::Item(n));
                    self.find_nul(item, way);
                    way.pop();
                }
            }
            Value::Object(fields) => {
                for (name, item) in fields {
                    way.push(Step::Field(name));
                    if name.contains('\0') {
                        self.add(written(way), DETAIL);
                    }
                    self.find_nul(item, way);
                    way.pop();
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

fn written(way: &[Step<'_>]) -> String {
    way.iter()
        .map(|step| match step {
            Step::Field(name) => format!("/{}", escape(name)),
            Step::Item(n) => format!("/{n}"),
        })
        .collect()
}

impl<'a> Fields<'a> {
    /// The field, if it is there.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name)
    }

    /// The field, if it is there and not null: for fields that answers show as null.
    #[must_use]
    pub fn given(&self, name: &str) -> Option<&'a Value> {
        self.get(name).filter(|value| !value.is_null())
    }

    /// The field, which must be there.
    pub fn require(&self, name: &str, faults: &mut Faults) -> Option<&'a Value> {
        let value = self.get(name);
        if value.is_none() {
            faults.add(self.pointer(name), "is missing");
        }
        value
    }

    /// Every field.
    pub fn iter(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.map.iter()
    }

    /// How many fields there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Where the field stands in the body.
    #[must_use]
    pub fn pointer(&self, name: &str) -> String {
        format!("{}/{}", self.at, escape(name))
    }
}

/// A name as a part of a JSON Pointer.
#[must_use]
pub fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The whole number that `number` is exactly; 2^53 is where doubles begin to skip some.
fn whole(number: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and far below 2^63")]
    (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Controls, Faults, MOST_FAULTS};

    fn pointers(faults: Faults) -> Vec<String> {
        faults.or(()).err().unwrap_or_default().into_iter().map(|fault| fault.pointer).collect()
    }

    #[test]
    fn pointers_are_escaped() {
        let body = json!({"a/b": 1, "c~d": 2});
        let mut faults = Faults::of(&body);
        faults.object(&body, "/x", &["known"]);
        assert_eq!(pointers(faults), ["/x/a~1b", "/x/c~0d"]);
    }

    #[test]
    fn a_nul_is_found_at_any_depth_in_names_and_values() {
        let body = json!({"a": ["x", {"b": "y\u{0}"}], "c\u{0}": 1, "d": "fine"});
        assert_eq!(pointers(Faults::of(&body)), ["/a/1/b", "/c\u{0}"]);
    }

    #[test]
    fn whole_numbers_come_in_several_spellings() {
        let read = |text: &str| {
            let body: serde_json::Value = serde_json::from_str(text).unwrap();
            Faults::of(&body).whole(&body, "", 1..=10_000)
        };
        assert_eq!(read("1e3"), Some(1_000));
        assert_eq!(read("2.0"), Some(2));
        assert_eq!(read("10000"), Some(10_000));
        for bad in ["0", "-5", "2147483648", "1.5", "\"2\"", "null", "10001", "1e300", "18446744073709551615", "true"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn characters_are_counted_not_bytes() {
        let read = |text: &str, controls| Faults::of(&json!(text)).text(&json!(text), "", 1..=3, controls);
        assert!(read("äöü", Controls::Refused).is_some());
        assert!(read("äöüß", Controls::Refused).is_none());
        assert!(read("", Controls::Refused).is_none());
        assert!(read("a\nb", Controls::Refused).is_none());
        assert!(read("a\nb", Controls::Allowed).is_some());
    }

    #[test]
    fn the_number_of_faults_is_bounded() {
        let body: serde_json::Map<_, _> = (0..5_000).map(|n| (n.to_string(), json!(n))).collect();
        let body = body.into();
        let mut faults = Faults::of(&body);
        faults.object(&body, "", &[]);
        assert_eq!(pointers(faults).len(), MOST_FAULTS);
    }
}
