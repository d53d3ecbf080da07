//! Rows of a CSV file: fields separated by commas, quoted as RFC 4180 has it, lines ended by LF, CR LF or CR.

use std::io;

use csv_core::{ReadRecordResult, Reader};

use super::source::{MOST_ROW_BYTES, Source};

/// The most columns that a file may have.
const MOST_COLUMNS: usize = 1_000;

/// A row as it stands in the file.
pub(super) struct Record<'a> {
    /// The physical line on which it begins.
    pub(super) line: u64,
    /// Its fields; none where it is longer than is looked at.
    pub(super) fields: Option<Vec<&'a [u8]>>,
}

/// Reads row after row in bounded memory.
pub(super) struct Records {
    core: Reader,
    fields: Vec<u8>,
    ends: Vec<usize>,
}

impl Records {
    pub(super) fn new() -> Self {
        Self { core: Reader::new(), fields: vec![0; MOST_ROW_BYTES], ends: vec![0; MOST_COLUMNS + 1] }
    }

    /// The next row; none at the end. Empty lines are no rows.
    pub(super) fn next(&mut self, source: &mut Source) -> io::Result<Option<Record<'_>>> {
        if !source.skip_empty_lines()? {
            return Ok(None);
        }
        let line = source.line();
        let (mut length, mut count, mut too_long) = (0, 0, false);
        loop {
            let input = source.fill()?;
            let (result, read, written, ended) =
                self.core.read_record(input, &mut self.fields[length..], &mut self.ends[count..]);
            source.consume(read);
            length += written;
            count += ended;
            match result {
                ReadRecordResult::InputEmpty => {}
                // What is too long is read to its end all the same, so that the next row begins where it does.
                ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {
                    (length, count, too_long) = (0, 0, true);
                }
                ReadRecordResult::Record => break,
                ReadRecordResult::End => return Ok(None),
            }
        }
        let fields = (!too_long).then(|| self.split(count));
        Ok(Some(Record { line, fields }))
    }

    fn split(&self, count: usize) -> Vec<&[u8]> {
        let mut from = 0;
        let ends = self.ends.iter().take(count);
        ends.map(|&end| self.fields.get(std::mem::replace(&mut from, end)..end).unwrap_or_default()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Vec<(u64, Option<Vec<String>>)> {
        let mut source = Source::new(Box::new(io::Cursor::new(text.to_vec()))).unwrap();
        let mut records = Records::new();
        let mut rows = Vec::new();
        while let Some(record) = records.next(&mut source).unwrap() {
            let fields = record.fields.map(|f| f.iter().map(|f| String::from_utf8_lossy(f).into_owned()).collect());
            rows.push((record.line, fields));
        }
        rows
    }

    fn row(line: u64, fields: &[&str]) -> (u64, Option<Vec<String>>) {
        (line, Some(fields.iter().map(|field| (*field).to_owned()).collect()))
    }

    #[test]
    fn lines_are_counted_as_an_editor_counts_them_whatever_ends_them() {
        for end in ["\n", "\r\n", "\r"] {
            let text = ["a,b", "", "1,\"x", "y\"", "", "", "2,", "3,\"\"\"\""].join(end);
            let quoted = format!("x{end}y");
            let expected = [row(1, &["a", "b"]), row(3, &["1", &quoted]), row(7, &["2", ""]), row(8, &["3", "\""])];
            assert_eq!(read(text.as_bytes()), expected, "{end:?}");
            assert_eq!(read(format!("\u{feff}{text}{end}").as_bytes()), expected, "{end:?}");
        }
    }

    #[test]
    fn a_row_that_is_too_long_is_passed_over_whole() {
        let long = "x".repeat(3 * MOST_ROW_BYTES);
        let wide = ",".repeat(2 * MOST_COLUMNS);
        let rows = read(format!("a\n\"{long}\n\",2\n3\n{wide}\n4\n").as_bytes());
        assert_eq!(rows, [row(1, &["a"]), (2, None), row(4, &["3"]), (5, None), row(6, &["4"])]);
    }

    #[test]
    fn a_file_may_be_empty_or_end_anywhere() {
        assert!(read(b"").is_empty());
        assert!(read(b"\xef\xbb\xbf").is_empty());
        assert!(read(b"\r\n\n").is_empty());
        assert_eq!(read(b"a"), [row(1, &["a"])]);
        assert_eq!(read(b"a,\"b"), [row(1, &["a", "b"])]);
    }
}
