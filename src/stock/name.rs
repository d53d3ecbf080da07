//! The one rule for the names of things: SKUs, asset keys, locations, categories and vendors, on every way in.

use unicode_normalization::UnicodeNormalization as _;

/// The most characters of a name, counted after normalisation.
pub const MOST_CHARS: usize = 200;

/// Why a text is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// Nothing, or nothing but white space.
    #[error("must not be empty")]
    Empty,
    /// More than [`MOST_CHARS`].
    #[error("must have at most {MOST_CHARS} characters")]
    TooLong,
    /// Control characters (Unicode's category Cc) hide in lists and logs, and U+0000 cannot be stored.
    #[error("must not contain control characters")]
    Control,
}

/// Gives `text` as it is kept and compared: normalised to NFC and trimmed, case untouched, 1 to
/// [`MOST_CHARS`] characters.
///
/// # Errors
/// What is wrong with it. A control character is refused wherever it stands, even where trimming would
/// remove it.
pub fn check(text: &str) -> Result<String, NameFault> {
    if text.chars().any(char::is_control) {
        return Err(NameFault::Control);
    }
    let composed: String = text.trim().nfc().collect();
    match composed.chars().count() {
        0 => Err(NameFault::Empty),
        n if n > MOST_CHARS => Err(NameFault::TooLong),
        _ => Ok(composed),
    }
}

#[cfg(test)]
mod tests {
    use super::{NameFault, check};

    #[test]
    fn a_name_is_trimmed_and_composed_and_keeps_its_case() {
        assert_eq!(check("test").as_deref(), Ok("test"));
        assert_eq!(check(" test \u{a0}\u{3000}").as_deref(), Ok("test"));
        assert_eq!(check("TEST").as_deref(), Ok("TEST"));
        assert_eq!(check("a  b").as_deref(), Ok("a  b"));
        assert_eq!(check("caf\u{65}\u{301}").as_deref(), Ok("caf\u{e9}"));
        assert_eq!(check("caf\u{e9}").as_deref(), Ok("caf\u{e9}"));
    }

    #[test]
    fn a_name_is_its_own_name() {
        for text in [" x ", "e\u{301}", "\u{2000}a\u{2001}b", "\u{1e9b}\u{323}", "각"] {
            let name = check(text).unwrap();
            assert_eq!(check(&name), Ok(name.clone()));
        }
    }

    #[test]
    fn characters_are_counted_after_normalisation() {
        assert!(check(&"e\u{301}".repeat(200)).is_ok());
        assert_eq!(check(&"x".repeat(201)), Err(NameFault::TooLong));
        assert_eq!(check(""), Err(NameFault::Empty));
        assert_eq!(check(" \u{a0} "), Err(NameFault::Empty));
    }

    #[test]
    fn control_characters_are_refused_wherever_they_stand() {
        for text in ["a\0b", "\ttest", "test\n", "a\u{7f}", "\u{85}"] {
            assert_eq!(check(text), Err(NameFault::Control), "{text:?}");
        }
    }
}
