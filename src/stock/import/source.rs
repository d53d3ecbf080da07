//! The bytes that are imported, with the line that is being read and how much has been.

use std::io::{self, BufRead, BufReader, Cursor, Read};

const BUFFER: usize = 256 << 10;
/// The byte order mark of UTF-8, which some programs write first. It is no part of the text.
const MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
/// How every gzip file begins.
const PACKED: [u8; 2] = [0x1f, 0x8b];
/// The most bytes of one row: as many as a request's body may have.
pub(super) const MOST_ROW_BYTES: usize = 1 << 20;

/// Where the rows come from.
pub(super) struct Source {
    reader: BufReader<Box<dyn Read + Send>>,
    bytes: u64,
    line: u64,
    before: u8,
}

impl Source {
    /// Reads from `reader`, without the byte order mark. What is packed is an error.
    pub(super) fn new(mut reader: Box<dyn Read + Send>) -> io::Result<Self> {
        let mut first = Vec::with_capacity(MARK.len());
        reader.by_ref().take(MARK.len() as u64).read_to_end(&mut first)?;
        if first.starts_with(&PACKED) {
            return Err(io::Error::other("this is packed with gzip; unpack it first: zcat FILE | onehold import -"));
        }
        let bytes = if first == MARK { MARK.len() as u64 } else { 0 };
        let rest: Box<dyn Read + Send> = if bytes > 0 { reader } else { Box::new(Cursor::new(first).chain(reader)) };
        Ok(Self { reader: BufReader::with_capacity(BUFFER, rest), bytes, line: 1, before: 0 })
    }

    /// The physical line on which the next byte stands, from 1.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// How many bytes have been read.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Some bytes that come next; none at the end.
    pub(super) fn fill(&mut self) -> io::Result<&[u8]> {
        while let Err(error) = self.reader.fill_buf() {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        self.reader.fill_buf()
    }

    /// Goes on by `count` of the bytes that [`Self::fill`] gave. A line ends with LF, CR LF or CR.
    pub(super) fn consume(&mut self, count: usize) {
        for &byte in self.reader.buffer().iter().take(count) {
            if byte == b'\r' || (byte == b'\n' && self.before != b'\r') {
                self.line += 1;
            }
            self.before = byte;
        }
        self.bytes += count as u64;
        self.reader.consume(count);
    }

    /// Passes over empty lines. False: nothing comes after them.
    pub(super) fn skip_empty_lines(&mut self) -> io::Result<bool> {
        loop {
            let buffer = self.fill()?;
            let (all, empty) = (buffer.len(), buffer.iter().take_while(|b| matches!(b, b'\n' | b'\r')).count());
            self.consume(empty);
            if empty < all {
                return Ok(true);
            }
            if all == 0 {
                return Ok(false);
            }
        }
    }
}
