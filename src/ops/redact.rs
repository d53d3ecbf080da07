//! Showing what was sent without what could be a secret.

use serde_json::Value;

/// How much of a text is shown.
const MOST: usize = 16 * 1_024;
/// A field whose name holds one of these is not shown.
const SECRET: [&str; 9] =
    ["secret", "token", "signature", "password", "authorization", "api_key", "apikey", "card", "iban"];

/// The bytes as JSON for people, with the values of suspicious fields left out; as they are where they are no JSON,
/// and cut where they are very long.
#[must_use]
pub fn shown(bytes: &[u8]) -> String {
    let mut text = match serde_json::from_slice::<Value>(bytes) {
        Ok(mut value) => {
            hide(&mut value);
            serde_json::to_string_pretty(&value).unwrap_or_default()
        }
        // What is no JSON may hold anything: only how long it is can be told.
        Err(_) => format!("({} bytes that are not JSON)", bytes.len()),
    };
    if text.len() > MOST {
        text.truncate(text.floor_char_boundary(MOST));
        text.push('…');
    }
    text
}

fn hide(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let name = name.to_lowercase();
                if SECRET.iter().any(|word| name.contains(word)) {
                    *field = Value::String("(not shown)".to_owned());
                } else {
                    hide(field);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(hide),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn what_could_be_a_secret_is_not_shown_however_deep() {
        let sent = br#"{"data": [{"client_secret": "S3CRET", "amount": 1, "Card": {"number": "S3CRET"}}]}"#;
        let text = shown(sent);
        assert!(!text.contains("S3CRET") && text.contains("\"amount\": 1"), "{text}");
        assert!(!shown(b"key=S3CRET").contains("S3CRET"));
        assert!(shown(format!("[\"{}\"]", "x".repeat(100_000)).as_bytes()).len() < 17_000);
    }
}
