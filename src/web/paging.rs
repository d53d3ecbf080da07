//! Lists, a page at a time: `{"data": […], "next_cursor": "…" or null}`.

use axum::Json;
use serde::Serialize;

use super::input::Params;
use super::problem::Problem;

/// The most rows of a page, and how many there are unless the request says otherwise.
const MOST: i64 = 200;
const USUAL: i64 = 50;
/// The most characters of a cursor: the hexadecimal digits of a key of 200 characters, and some room.
const MOST_CURSOR_CHARS: usize = 2_048;

/// The parameters `limit` and `cursor` of a list.
#[derive(Debug)]
pub(crate) struct Paging {
    limit: i64,
    /// The key of the last row of the page before.
    pub(crate) after: Option<String>,
}

/// One page of a list.
#[derive(Debug, Serialize)]
pub(crate) struct Page<T> {
    data: Vec<T>,
    next_cursor: Option<String>,
}

impl Paging {
    /// Reads them from a query.
    pub(crate) fn of(params: &Params) -> Result<Self, Problem> {
        let limit = match params.text("limit") {
            None => USUAL,
            Some(text) => text
                .parse()
                .ok()
                .filter(|limit| (1..=MOST).contains(limit))
                .ok_or_else(|| Params::unfit("limit", "must be a whole number from 1 to 200"))?,
        };
        let after = match params.text("cursor") {
            None => None,
            Some(text) => Some(decode(text).ok_or_else(Self::bad_cursor)?),
        };
        Ok(Self { limit, after })
    }

    /// The problem of a cursor that is none of this list's.
    pub(crate) fn bad_cursor() -> Problem {
        Params::unfit("cursor", "must be the next_cursor of a page of this list")
    }

    /// How many rows to ask for: one more than are shown, to see whether there are more.
    pub(crate) fn rows(&self) -> i64 {
        self.limit + 1
    }

    /// The page of `rows`, which are at most [`Paging::rows`]; `key` is what the next page begins after.
    pub(crate) fn page<T>(&self, rows: Vec<T>, key: impl Fn(&T) -> String) -> Json<Page<T>> {
        self.page_of(rows, false, key)
    }

    /// As [`Paging::page`], of rows that may have been `cut` short before there were as many as asked for.
    pub(crate) fn page_of<T>(&self, mut rows: Vec<T>, cut: bool, key: impl Fn(&T) -> String) -> Json<Page<T>> {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let more = cut || rows.len() > limit;
        rows.truncate(limit);
        let next_cursor = rows.last().filter(|_| more).map(|row| hex::encode(key(row)));
        Json(Page { data: rows, next_cursor })
    }
}

/// Hexadecimal, so that nobody takes a cursor for something to be made by hand.
fn decode(cursor: &str) -> Option<String> {
    if cursor.len() > MOST_CURSOR_CHARS {
        return None;
    }
    let key = String::from_utf8(hex::decode(cursor).ok()?).ok()?;
    (!key.contains('\0')).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_whether_there_is_another() {
        let paging = Paging { limit: 2, after: None };
        let page = |rows: Vec<i32>| paging.page(rows, ToString::to_string).0;
        let full = page(vec![1, 2, 3]);
        assert_eq!(full.data, [1, 2]);
        assert_eq!(decode(&full.next_cursor.unwrap()).as_deref(), Some("2"));
        let last = page(vec![1, 2]);
        assert_eq!((last.data, last.next_cursor), (vec![1, 2], None));
        assert_eq!(page(vec![]).next_cursor, None);
    }

    #[test]
    fn a_cursor_is_one_of_ours() {
        assert_eq!(decode(&hex::encode("é/1")).as_deref(), Some("é/1"));
        for bad in ["x", "f", "ff", "00", &"61".repeat(1_025)] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
