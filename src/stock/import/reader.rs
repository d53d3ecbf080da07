//! Reads and checks an input on a thread of its own, and hands on what COPY takes, in pieces of bounded size.

use std::io::{self, Read};
use std::mem;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::mpsc;

use super::bad::{BadRow, BadRows};
use super::csv::Records;
use super::row::Reasons;
use super::source::{MOST_ROW_BYTES, Source};
use super::table::Table;
use super::{Format, Kind, row};
use crate::body;

/// How many bytes one piece has, more or less.
const PIECE_BYTES: usize = 1 << 20;
/// How long a piece is filled before it goes on as it is.
const PIECE_TIME: Duration = Duration::from_secs(5);
/// How many pieces may wait. Reading stops while the database is slower.
const PIECES: usize = 2;

/// What the thread hands on.
pub(super) enum Piece {
    /// Good rows, in the text format of COPY.
    Rows(Rows),
    /// There are no more. The bad rows that were found.
    End(BadRows),
    /// The input could not be read.
    Broken(io::Error),
}

/// Good rows.
pub(super) struct Rows {
    pub(super) kind: Kind,
    /// In the text format of COPY.
    pub(super) text: Vec<u8>,
    pub(super) count: u64,
    /// How many bytes of the input have been read so far.
    pub(super) bytes_read: u64,
}

/// Starts to read. The thread ends with its input, or when nobody listens any more; one that waits for a silent
/// input ends with the process.
pub(super) fn start(
    reader: Box<dyn Read + Send>,
    format: Format,
    kind: Option<Kind>,
) -> io::Result<mpsc::Receiver<Piece>> {
    let (pieces, receiver) = mpsc::channel(PIECES);
    std::thread::Builder::new().name("import".to_owned()).spawn(move || {
        let mut feed =
            Feed { pieces, kind, text: Vec::new(), count: 0, since: Instant::now(), bad: BadRows::default() };
        let read = Source::new(reader).and_then(|source| match format {
            Format::Csv => read_csv(source, &mut feed),
            Format::Ndjson => read_ndjson(source, &mut feed),
        });
        let last = match read {
            Ok(()) => Piece::End(mem::take(&mut feed.bad)),
            Err(error) => Piece::Broken(error),
        };
        // Nobody listens: then nobody needs to know.
        let _ = feed.pieces.blocking_send(last);
    })?;
    Ok(receiver)
}

/// What has been read and not been handed on yet.
struct Feed {
    pieces: mpsc::Sender<Piece>,
    kind: Option<Kind>,
    text: Vec<u8>,
    count: u64,
    since: Instant,
    bad: BadRows,
}

impl Feed {
    fn bad(&mut self, line: u64, reasons: Reasons) {
        self.bad.add(BadRow::new(line, reasons));
    }

    /// Takes a row as read.
    fn row(&mut self, kind: Kind, line: u64, body: Result<Value, Reasons>) {
        if let Err(reasons) = body.and_then(|body| row::write(kind, line, body, &mut self.text)) {
            self.bad(line, reasons);
        } else {
            self.count += 1;
        }
    }

    /// Hands on what is there, if it is enough.
    fn hand_on(&mut self, kind: Kind, source: &Source, all: bool) -> io::Result<()> {
        let enough = self.text.len() >= PIECE_BYTES || self.since.elapsed() >= PIECE_TIME;
        if self.text.is_empty() || !(enough || all) {
            return Ok(());
        }
        // The same size again, so that it does not grow step by step.
        let text = mem::replace(&mut self.text, Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 8));
        let rows = Rows { kind, text, count: mem::take(&mut self.count), bytes_read: source.bytes() };
        self.since = Instant::now();
        self.pieces.blocking_send(Piece::Rows(rows)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

fn too_long() -> Reasons {
    vec![format!("is longer than {MOST_ROW_BYTES} bytes; is a quotation mark left open?")]
}

fn read_csv(mut source: Source, feed: &mut Feed) -> io::Result<()> {
    let mut records = Records::new();
    let Some(header) = records.next(&mut source)? else {
        feed.bad(1, vec!["there is no header".to_owned()]);
        return Ok(());
    };
    let line = header.line;
    let table = match header.fields.ok_or_else(too_long).and_then(|names| Table::of(&names, feed.kind)) {
        Ok(table) => table,
        Err(reasons) => {
            // Without the header no row means anything.
            feed.bad(line, reasons);
            return Ok(());
        }
    };
    while let Some(record) = records.next(&mut source)? {
        let body = record.fields.ok_or_else(too_long).and_then(|cells| table.body(&cells));
        feed.row(table.kind, record.line, body);
        feed.hand_on(table.kind, &source, false)?;
    }
    feed.hand_on(table.kind, &source, true)
}

fn read_ndjson(mut source: Source, feed: &mut Feed) -> io::Result<()> {
    let mut text = Vec::new();
    while source.skip_empty_lines()? {
        let line = source.line();
        let whole = read_line(&mut source, &mut text)?;
        if text.iter().all(u8::is_ascii_whitespace) && whole {
            continue;
        }
        let body = if whole { body::parse(&text).map_err(|fault| vec![fault]) } else { Err(too_long()) };
        let told = body.as_ref().ok().and_then(Value::as_object);
        feed.kind = match (feed.kind, told) {
            (None, Some(fields)) => Kind::recognise(|name| fields.contains_key(name)),
            (kind, _) => kind,
        };
        match (feed.kind, body) {
            (Some(kind), body) => {
                feed.row(kind, line, body);
                feed.hand_on(kind, &source, false)?;
            }
            // What is no JSON tells nothing of the others.
            (None, Err(reasons)) => feed.bad(line, reasons),
            (None, Ok(_)) => {
                feed.bad(line, vec![Kind::UNKNOWN.to_owned()]);
                return Ok(());
            }
        }
    }
    match feed.kind {
        Some(kind) => feed.hand_on(kind, &source, true),
        None => Ok(()),
    }
}

/// Reads up to the line's end. False: it is longer than is looked at, and was passed over.
fn read_line(source: &mut Source, into: &mut Vec<u8>) -> io::Result<bool> {
    into.clear();
    let mut whole = true;
    loop {
        let buffer = source.fill()?;
        let end = buffer.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let length = end.unwrap_or(buffer.len());
        if into.len() + length > MOST_ROW_BYTES {
            whole = false;
            into.clear();
        } else if whole {
            into.extend_from_slice(&buffer[..length]);
        }
        source.consume(length);
        if end.is_some() || length == 0 {
            return Ok(whole);
        }
    }
}
