//! The columns of a CSV file: its header, and how a row's cells make the body that the API would get.

use serde_json::{Map, Number, Value};

use super::Kind;
use super::row::Reasons;
use crate::body;

const ASSET_COLUMNS: [&str; 8] =
    ["key", "category", "location", "vendor", "status", "rank", "available_from", ATTRIBUTES];
const STOCK_COLUMNS: [&str; 5] = ["sku", "location", "delta", "kind", "reference"];
const ATTRIBUTES: &str = "attributes";
const ONE_ATTRIBUTE: &str = "attributes.";
/// The columns whose cells are numbers.
const NUMBERS: [&str; 2] = ["rank", "delta"];

/// The header of a file, understood.
pub(super) struct Table {
    pub(super) kind: Kind,
    columns: Vec<String>,
}

impl Table {
    /// Understands a header as one of `asked`, or of what its columns tell.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(super) fn of(header: &[&[u8]], asked: Option<Kind>) -> Result<Self, Reasons> {
        let columns: Option<Vec<String>> =
            header.iter().map(|name| std::str::from_utf8(name).ok().map(|name| name.trim().to_owned())).collect();
        let columns = columns.ok_or_else(|| vec!["the header is not UTF-8".to_owned()])?;
        if let [only] = columns.as_slice()
            && only.contains([';', '\t'])
        {
            return Err(vec![
                "the header has no comma: columns are separated by commas, not by semicolons or tabs".to_owned(),
            ]);
        }
        let has = |name: &str| columns.iter().any(|column| column == name);
        let Some(kind) = asked.or_else(|| Kind::recognise(has)) else {
            return Err(vec![Kind::UNKNOWN.to_owned()]);
        };
        let known: &[&str] = match kind {
            Kind::Assets => &ASSET_COLUMNS,
            Kind::Stock => &STOCK_COLUMNS,
        };
        let mut reasons = Reasons::new();
        for (n, column) in columns.iter().enumerate() {
            let attribute = kind == Kind::Assets && column.strip_prefix(ONE_ATTRIBUTE).is_some_and(|n| !n.is_empty());
            if !attribute && !known.contains(&column.as_str()) {
                reasons.push(format!("the column {column:?} is not known; known are {}", known.join(", ")));
            } else if columns.iter().take(n).any(|earlier| earlier == column) {
                reasons.push(format!("the column {column:?} stands there twice"));
            }
        }
        if reasons.is_empty() { Ok(Self { kind, columns }) } else { Err(reasons) }
    }

    /// The body that a row stands for. An empty cell is a field left out.
    ///
    /// # Errors
    /// Everything that cannot be read.
    pub(super) fn body(&self, cells: &[&[u8]]) -> Result<Value, Reasons> {
        if cells.len() != self.columns.len() {
            return Err(vec![format!("has {} fields, and the header has {}", cells.len(), self.columns.len())]);
        }
        let (mut body, mut attributes, mut reasons) = (Map::new(), Map::new(), Reasons::new());
        for (column, cell) in self.columns.iter().zip(cells).filter(|(_, cell)| !cell.is_empty()) {
            let Ok(text) = std::str::from_utf8(cell) else {
                reasons.push(format!("{column} is not UTF-8"));
                continue;
            };
            if column == ATTRIBUTES {
                match body::parse(cell) {
                    Ok(value) => _ = body.insert(column.clone(), value),
                    Err(fault) => reasons.push(format!("{column} {fault}")),
                }
            } else if let Some(name) = column.strip_prefix(ONE_ATTRIBUTE) {
                attributes.insert(name.to_owned(), attribute(text));
            } else if NUMBERS.contains(&column.as_str()) {
                body.insert(column.clone(), number(text));
            } else {
                body.insert(column.clone(), text.into());
            }
        }
        reasons.extend(join(&mut body, attributes));
        if reasons.is_empty() { Ok(body.into()) } else { Err(reasons) }
    }
}

/// Puts the attributes that have columns of their own beside the others. What is no object is told by the check.
fn join(body: &mut Map<String, Value>, attributes: Map<String, Value>) -> Reasons {
    if attributes.is_empty() {
        return Reasons::new();
    }
    let all = body.entry(ATTRIBUTES).or_insert_with(|| Map::new().into());
    let Value::Object(all) = all else { return Reasons::new() };
    let mut twice = Reasons::new();
    for (name, value) in attributes {
        if all.insert(name.clone(), value).is_some() {
            twice.push(format!("the attribute {name:?} is given twice"));
        }
    }
    twice
}

/// What is JSON is that value, and anything else is the text itself.
fn attribute(text: &str) -> Value {
    body::parse(text.as_bytes()).unwrap_or_else(|_| text.into())
}

/// A number, or the text as it is, which the check then names.
fn number(text: &str) -> Value {
    text.trim().parse::<Number>().map_or_else(|_| text.into(), Value::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table(header: &[&str]) -> Result<Table, Reasons> {
        let header: Vec<&[u8]> = header.iter().map(|name| name.as_bytes()).collect();
        Table::of(&header, None)
    }

    fn body(header: &[&str], cells: &[&str]) -> Result<Value, Reasons> {
        let cells: Vec<&[u8]> = cells.iter().map(|cell| cell.as_bytes()).collect();
        table(header).unwrap().body(&cells)
    }

    #[test]
    fn a_header_tells_what_it_is_of_and_is_understood_whole() {
        assert_eq!(table(&["sku", "location"]).map(|t| t.kind), Ok(Kind::Stock));
        assert_eq!(table(&[" key ", "attributes.ram"]).map(|t| t.kind), Ok(Kind::Assets));
        assert_eq!(table(&["location"]).map(|t| t.kind), Err(vec![Kind::UNKNOWN.to_owned()]));
        assert_eq!(table(&["sku", "key"]).map(|t| t.kind), Err(vec![Kind::UNKNOWN.to_owned()]));
        assert_eq!(table(&["key", "key", "x", "attributes."]).map(|t| t.kind).unwrap_err().len(), 3);
        assert!(Table::of(&[b"sku\xff"], Some(Kind::Stock)).is_err());
    }

    #[test]
    fn a_cell_becomes_the_value_that_the_api_would_get() {
        let header = ["key", "rank", "vendor", "attributes.ram", "attributes.raid", "attributes.no", "attributes"];
        let made = body(&header, &["a", " 7 ", "", "256", "true", "007", r#"{"x": [1]}"#]).unwrap();
        let attributes = json!({"ram": 256, "raid": true, "no": "007", "x": [1]});
        assert_eq!(made, json!({"key": "a", "rank": 7, "attributes": attributes}));
        assert_eq!(body(&["sku", "delta"], &["a", "1e3"]).unwrap(), json!({"sku": "a", "delta": 1e3}));
        assert_eq!(body(&["sku", "delta"], &["a", "x"]).unwrap(), json!({"sku": "a", "delta": "x"}));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        assert!(body(&["sku", "delta"], &["a"]).unwrap_err()[0].contains("1 fields"));
        let header = ["key", "attributes.a", "attributes"];
        assert!(body(&header, &["k", "1", r#"{"a": 1}"#]).unwrap_err()[0].contains("twice"));
        assert!(body(&header, &["k", "", "{"]).unwrap_err()[0].contains("not JSON"));
        // The API's own check says what an attributes must be.
        assert_eq!(body(&header, &["k", "1", "5"]).unwrap()["attributes"], json!(5));
    }
}
