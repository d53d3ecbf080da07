//! One row: the JSON body that it stands for, checked as the API checks it, and written as COPY reads it.

use chrono::{DateTime, Datelike as _, Utc};
use serde_json::{Map, Value};

use super::{Kind, copy};
use crate::body::BodyFault;
use crate::stock::{description, movement, name};

/// What is wrong with a row.
pub(super) type Reasons = Vec<String>;

/// Checks the row on `line` and appends it to `into`.
///
/// # Errors
/// Everything that is wrong with it; then nothing was appended.
pub(super) fn write(kind: Kind, line: u64, body: Value, into: &mut Vec<u8>) -> Result<(), Reasons> {
    let Value::Object(body) = body else { return Err(vec!["must be an object".to_owned()]) };
    match kind {
        Kind::Assets => write_asset(line, body, into),
        Kind::Stock => write_movement(line, body, into),
    }
}

fn write_asset(line: u64, mut body: Map<String, Value>, into: &mut Vec<u8>) -> Result<(), Reasons> {
    // Over HTTP the key stands in the path.
    let key = match body.remove("key") {
        None => Err("key is missing".to_owned()),
        Some(Value::String(text)) => name::check(&text).map_err(|fault| format!("key {fault}")),
        Some(_) => Err("key must be a string".to_owned()),
    };
    let (key, asset) = match (key, description::check(&body.into())) {
        (Ok(key), Ok(asset)) => (key, asset),
        (key, asset) => {
            return Err(key.err().into_iter().chain(asset.err().into_iter().flatten().map(said)).collect());
        }
    };
    let fields = [
        Some(line.to_string()),
        Some(key),
        Some(asset.category),
        Some(asset.location),
        asset.vendor,
        Some(asset.attributes.to_string()),
        Some(asset.status.code().to_owned()),
        Some(asset.rank.to_string()),
        asset.available_from.map(instant),
    ];
    copy::write_row(into, fields.each_ref().map(Option::as_deref));
    Ok(())
}

fn write_movement(line: u64, mut body: Map<String, Value>, into: &mut Vec<u8>) -> Result<(), Reasons> {
    const ONE_BY_ONE: &str = "delta must be positive in an import; post what takes away one by one, \
        so that it can be checked against what is held";
    if body.contains_key("force") {
        return Err(vec!["force has no meaning in an import, which only adds".to_owned()]);
    }
    body.entry("kind").or_insert_with(|| movement::Kind::Receipt.code().into());
    let movement = movement::check(&body.into()).map_err(|faults| faults.into_iter().map(said).collect::<Reasons>())?;
    if movement.delta < 0 {
        return Err(vec![ONE_BY_ONE.to_owned()]);
    }
    let (line, delta) = (line.to_string(), movement.delta.to_string());
    let fields =
        [&line, &movement.sku, &movement.location, &delta, movement.kind.code(), &movement.reference].map(Some);
    copy::write_row(into, fields);
    Ok(())
}

fn said(fault: BodyFault) -> String {
    format!("{} {}", fault.pointer.trim_start_matches('/'), fault.detail)
}

/// As PostgreSQL reads it, to the microsecond, which is what it keeps. Its years have no 0.
fn instant(at: DateTime<Utc>) -> String {
    let (year, era) = if at.year() == 0 { (1, " BC") } else { (at.year(), "") };
    format!("{year:04}-{}+00{era}", at.format("%m-%d %H:%M:%S%.6f"))
}
