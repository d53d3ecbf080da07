//! PostgreSQL's text format of COPY: fields separated by tabs, `\N` for none.

/// Appends the fields of one row.
pub(super) fn write_row<const N: usize>(into: &mut Vec<u8>, fields: [Option<&str>; N]) {
    for (n, field) in fields.into_iter().enumerate() {
        if n > 0 {
            into.push(b'\t');
        }
        match field {
            None => into.extend(b"\\N"),
            Some(text) => text.bytes().for_each(|byte| write_byte(into, byte)),
        }
    }
    into.push(b'\n');
}

fn write_byte(into: &mut Vec<u8>, byte: u8) {
    match byte {
        b'\\' => into.extend(b"\\\\"),
        b'\t' => into.extend(b"\\t"),
        b'\n' => into.extend(b"\\n"),
        b'\r' => into.extend(b"\\r"),
        other => into.push(other),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_separates_is_escaped() {
        let mut row = Vec::new();
        super::write_row(&mut row, [Some("a\tb\\\n\r"), None, Some(""), Some("ü")]);
        assert_eq!(row, "a\\tb\\\\\\n\\r\t\\N\t\tü\n".as_bytes());
    }
}
