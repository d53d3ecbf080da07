//! Source files as the rules look at them: the text, the code in it, and the texts inside the code.

use std::fs;
use std::path::Path;

/// One file below the package's root.
pub(crate) struct File {
    /// From the package's root, with `/` between.
    pub(crate) path: String,
    /// All of it.
    pub(crate) text: String,
    /// Without comments and without what stands between quotes; line by line as in `text`.
    pub(crate) code: String,
    /// Only what stands between quotes.
    pub(crate) strings: String,
}

impl File {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (code, strings) = if path.ends_with(".rs") { take_apart(text) } else { (text.to_owned(), String::new()) };
        Self { path: path.to_owned(), text: text.to_owned(), code, strings }
    }

    /// Its name without its folders.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Whether it is one of these files, or stands in one of these folders.
    pub(crate) fn is_below(&self, paths: &[&str]) -> bool {
        paths.iter().any(|p| self.path == *p || self.path.starts_with(&format!("{p}/")))
    }

    /// The room it belongs to: the first folder or file below `src`.
    pub(crate) fn room(&self) -> Option<String> {
        let inside = self.path.strip_prefix("src/")?;
        let room = inside.split('/').next()?.trim_end_matches(".rs");
        (room != "lib").then(|| room.to_owned())
    }

    /// The lines of one of its texts, numbered from 1.
    pub(crate) fn numbered<'a>(&self, text: &'a str) -> impl Iterator<Item = (usize, &'a str)> + use<'a> {
        (1..).zip(text.lines())
    }

    /// One breach, with the place.
    pub(crate) fn at(&self, number: usize, line: &str) -> String {
        format!("{}:{number}: {}", self.path, line.trim())
    }

    /// The lines whose code has one of `needles`.
    pub(crate) fn lines_of_code_with(&self, needles: &[&str]) -> Vec<String> {
        let has = |line: &&str| needles.iter().any(|needle| line.contains(needle));
        let text: Vec<&str> = self.text.lines().collect();
        self.numbered(&self.code).filter(|(_, line)| has(line)).map(|(n, _)| self.at(n, text[n - 1])).collect()
    }

    /// The rooms that its code names, with the line: `crate::room` and `crate::{room, …}`.
    pub(crate) fn rooms_used(&self) -> Vec<(usize, String)> {
        let mut used = Vec::new();
        for (at, _) in self.code.match_indices("crate::") {
            let line = self.code[..at].matches('\n').count() + 1;
            let rest = &self.code[at + "crate::".len()..];
            let is_path = self.code[..at].ends_with('$');
            match rest.strip_prefix('{') {
                _ if is_path => {}
                Some(group) => used.extend(heads_of_group(group).map(|room| (line, room))),
                None => used.extend(words(rest).next().map(|room| (line, room.to_owned()))),
            }
        }
        used
    }

    /// Its functions: (line, name, lines from `fn` to the closing brace).
    pub(crate) fn functions(&self) -> Vec<(usize, String, usize)> {
        let mut found = Vec::new();
        for (at, _) in self.code.match_indices("fn ") {
            let begins_word = !self.code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let rest = &self.code[at..];
            let Some(body) = rest.find(['{', ';']).filter(|body| begins_word && rest[*body..].starts_with('{')) else {
                continue;
            };
            let mut depth = 0usize;
            for (end, c) in rest.char_indices().skip_while(|(end, _)| *end < body) {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ => continue,
                }
                if depth == 0 {
                    let line = self.code[..at].matches('\n').count() + 1;
                    let name = words(&rest[3..]).next().unwrap_or_default().to_owned();
                    found.push((line, name, rest[..end].matches('\n').count() + 1));
                    break;
                }
            }
        }
        found
    }
}

/// The first name of every path in `a::b, {c, d}, e}…`, up to the brace that closes the group.
fn heads_of_group(group: &str) -> impl Iterator<Item = String> {
    let mut depth = 0i32;
    let mut heads = vec![String::new()];
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => heads.push(String::new()),
            _ => {}
        }
        if let Some(head) = heads.last_mut() {
            head.push(c);
        }
    }
    heads.into_iter().filter_map(|head| words(&head).next().map(str::to_owned))
}

/// The words of a text: runs of letters, digits and `_`.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The text of one file below the package's root.
pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Every text file at or below `paths`.
pub(crate) fn files(paths: &[&str]) -> Vec<File> {
    let mut found = Vec::new();
    for path in paths {
        collect(path, &mut found);
        assert!(!found.is_empty(), "{path}: there is nothing");
    }
    found
}

fn collect(path: &str, found: &mut Vec<File>) {
    let full = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if full.is_dir() {
        for entry in fs::read_dir(full).unwrap() {
            collect(&format!("{path}/{}", entry.unwrap().file_name().to_str().unwrap()), found);
        }
    } else {
        found.push(File::new(path, &read(path)));
    }
}

/// Splits Rust's text into its code and the texts inside, each line by line where it was.
fn take_apart(text: &str) -> (String, String) {
    let bytes = text.as_bytes();
    let (mut code, mut strings) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < bytes.len() {
        let (kind, length) = next_piece(&text[at..], bytes[..at].last().copied());
        for &byte in &bytes[at..at + length] {
            let blank = if byte == b'\n' { b'\n' } else { b' ' };
            code.push(if kind == Piece::Code { byte } else { blank });
            strings.push(if kind == Piece::Text { byte } else { blank });
        }
        at += length;
    }
    (String::from_utf8(code).unwrap(), String::from_utf8(strings).unwrap())
}

#[derive(PartialEq, Clone, Copy)]
enum Piece {
    Code,
    Comment,
    Text,
}

/// The kind and length of the piece that `rest` begins with, given the byte before it.
fn next_piece(rest: &str, before: Option<u8>) -> (Piece, usize) {
    let all = rest.len();
    let first = rest.chars().next().map_or(1, char::len_utf8);
    if rest.starts_with("//") {
        return (Piece::Comment, rest.find('\n').unwrap_or(all));
    }
    if rest.starts_with("/*") {
        return (Piece::Comment, rest.find("*/").map_or(all, |end| end + 2));
    }
    let in_word = before.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    if let Some(raw) = rest.strip_prefix('r').filter(|_| !in_word || before == Some(b'b')) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let from = 1 + hashes + 1;
            return (Piece::Text, rest[from..].find(&close).map_or(all, |end| from + end + close.len()));
        }
    }
    if rest.starts_with('"') {
        return (Piece::Text, quoted(rest, '"'));
    }
    // A quote that a lifetime begins with has no partner two or three characters on.
    let is_char = rest.starts_with("'\\") || (rest.starts_with('\'') && rest.chars().nth(2) == Some('\''));
    if is_char {
        return (Piece::Text, quoted(rest, '\''));
    }
    (Piece::Code, first)
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

#[test]
fn code_and_texts_are_told_apart() {
    let text = "let a = \"x // y\"; // \"z\"\nlet b = r#\"q \" }\"#; let c = '\"'; fn f<'a>() { '\\'' }";
    let file = File::new("src/a.rs", text);
    assert!(!file.code.contains('x') && !file.code.contains('z') && !file.code.contains('q'));
    assert!(file.code.contains("fn f<'a>() {") && file.strings.contains("x // y") && file.strings.contains("q \" }"));
    assert_eq!(file.code.lines().count(), 2);
    let file = File::new("src/a.rs", "use crate::{db::{self, Db}, stock::asset as a};\nfn g() { crate::web::run() }");
    assert_eq!(file.rooms_used(), [(1, "db".to_owned()), (1, "stock".to_owned()), (2, "web".to_owned())]);
}
