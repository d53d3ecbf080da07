//! Rows that do not fit: the first of them by line and reason, and how many there are.

/// The most bad rows that are named.
pub const MOST_NAMED: usize = 100;
/// The most faults that are named of one row.
const MOST_FAULTS: usize = 10;
/// The most characters that are said of one fault: a row can be a megabyte of names.
const MOST_CHARS: usize = 400;

/// A row that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    /// The physical line on which it begins, from 1.
    pub line: u64,
    /// What is wrong with it. Holds no control characters.
    pub reason: String,
}

/// Every row that does not fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadRows {
    /// The first [`MOST_NAMED`], by line.
    pub named: Vec<BadRow>,
    /// How many there are.
    pub count: u64,
}

impl BadRow {
    /// A row and everything that is wrong with it.
    pub(super) fn new(line: u64, faults: impl IntoIterator<Item = String>) -> Self {
        let mut said: Vec<String> = faults.into_iter().take(MOST_FAULTS + 1).map(|fault| printable(&fault)).collect();
        if said.len() > MOST_FAULTS {
            said[MOST_FAULTS] = "and more".to_owned();
        }
        Self { line, reason: said.join("; ") }
    }
}

impl BadRows {
    /// One more.
    pub(super) fn add(&mut self, row: BadRow) {
        self.count += 1;
        if self.named.len() < MOST_NAMED {
            self.named.push(row);
        }
    }

    /// These and those.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.count += other.count;
        self.named.extend(other.named);
        self.named.sort_by_key(|row| row.line);
        self.named.truncate(MOST_NAMED);
        self
    }
}

/// What a terminal can be shown: a file's text could hold what moves its cursor.
fn printable(text: &str) -> String {
    let mut shown = String::new();
    for (n, c) in text.chars().enumerate() {
        if n == MOST_CHARS {
            shown.push('…');
            break;
        }
        if c.is_control() { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}
