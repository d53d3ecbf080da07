//! The lines of an order: each asks for assets by requirements, or for units of a SKU.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::MOST_LINES;
use crate::body::{Faults, Fields};
use crate::stock::name;
use crate::stock::requirement::{Condition, Requirement};

/// The most assets of one line.
const MOST_ASSETS: i64 = 100;
/// The most units of one line. 100 lines of so many are far below 2^31, so no sum can wrap.
const MOST_UNITS: i64 = 10_000;
/// Bounds that the contract leaves open: each costs work per candidate.
const MOST_LOCATIONS: usize = 100;
const MOST_ATTRIBUTES: usize = 100;
const MOST_ALTERNATIVES: usize = 100;
const MOST_ATTRIBUTE_CHARS: usize = 200;

/// The lines of `value`, normalised as far as they fit.
pub(super) fn all(value: &Value, at: &str, faults: &mut Faults) -> Vec<Value> {
    let Some(items) = value.as_array() else {
        faults.add(at, "must be an array");
        return Vec::new();
    };
    if items.is_empty() || items.len() > MOST_LINES {
        faults.add(at, format!("must have 1 to {MOST_LINES} lines; there are {}", items.len()));
    }
    let items = items.iter().take(MOST_LINES).enumerate();
    items.filter_map(|(n, item)| one(item, &format!("{at}/{n}"), faults)).collect()
}

fn one(value: &Value, at: &str, faults: &mut Faults) -> Option<Value> {
    let has = |name: &str| value.get(name).is_some();
    match (has("asset"), has("sku")) {
        (true, false) => asset_line(value, at, faults),
        (false, true) => stock_line(value, at, faults),
        (both, _) => {
            faults.object(value, at, &["asset", "sku", "locations", "split", "quantity"])?;
            let detail = if both { "must have asset or sku, not both" } else { "must have asset or sku" };
            faults.add(at, detail);
            None
        }
    }
}

fn asset_line(value: &Value, at: &str, faults: &mut Faults) -> Option<Value> {
    let fields = faults.object(value, at, &["asset", "quantity"])?;
    let quantity = quantity(&fields, MOST_ASSETS, faults);
    let wanted = requirement(fields.get("asset")?, &fields.pointer("asset"), faults)?;
    Some(json!({ "asset": wanted, "quantity": quantity? }))
}

fn stock_line(value: &Value, at: &str, faults: &mut Faults) -> Option<Value> {
    let fields = faults.object(value, at, &["sku", "locations", "split", "quantity"])?;
    let quantity = quantity(&fields, MOST_UNITS, faults);
    let sku = checked_name(fields.get("sku")?, &fields.pointer("sku"), faults);
    let locations = locations(&fields, faults);
    let split = fields.get("split").unwrap_or(&Value::Bool(false));
    if !split.is_boolean() {
        faults.add(fields.pointer("split"), "must be true or false");
    }
    Some(json!({ "sku": sku?, "locations": locations, "split": split, "quantity": quantity? }))
}

fn quantity(fields: &Fields<'_>, most: i64, faults: &mut Faults) -> Option<i64> {
    match fields.get("quantity") {
        None => Some(1),
        Some(value) => faults.whole(value, &fields.pointer("quantity"), 1..=most),
    }
}

fn requirement(value: &Value, at: &str, faults: &mut Faults) -> Option<Requirement> {
    let fields = faults.object(value, at, &["category", "locations", "vendor", "attributes"])?;
    let category = fields.require("category", faults);
    let category = category.and_then(|value| checked_name(value, &fields.pointer("category"), faults));
    let locations = locations(&fields, faults);
    let vendor = fields.given("vendor").and_then(|value| checked_name(value, &fields.pointer("vendor"), faults));
    let attributes = match fields.get("attributes") {
        None => BTreeMap::new(),
        Some(value) => conditions(value, &fields.pointer("attributes"), faults),
    };
    Some(Requirement { category: category?, locations, vendor, attributes })
}

fn checked_name(value: &Value, at: &str, faults: &mut Faults) -> Option<String> {
    let Some(text) = value.as_str() else {
        faults.add(at, "must be a string");
        return None;
    };
    // U+0000 was named before.
    name::check(text)
        .map_err(|fault| {
            if !text.contains('\0') {
                faults.add(at, fault.to_string())
            }
        })
        .ok()
}

/// An order of preference; a location that stands there twice counts where it stands first.
fn locations(fields: &Fields<'_>, faults: &mut Faults) -> Option<Vec<String>> {
    let value = fields.get("locations")?;
    let at = fields.pointer("locations");
    let Some(items) = value.as_array().filter(|items| (1..=MOST_LOCATIONS).contains(&items.len())) else {
        faults.add(at, format!("must be an array of 1 to {MOST_LOCATIONS} locations; leave it out for any"));
        return None;
    };
    let mut names = Vec::with_capacity(items.len());
    for (n, item) in items.iter().enumerate() {
        if let Some(name) = checked_name(item, &format!("{at}/{n}"), faults)
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    Some(names)
}

fn conditions(value: &Value, at: &str, faults: &mut Faults) -> BTreeMap<String, Condition> {
    let mut conditions = BTreeMap::new();
    let Some(fields) = faults.map(value, at) else { return conditions };
    if fields.len() > MOST_ATTRIBUTES {
        faults.add(at, format!("must have at most {MOST_ATTRIBUTES} attributes"));
        return conditions;
    }
    for (name, value) in fields.iter() {
        let at = fields.pointer(name);
        // Counted no further than needed, and not gone into: the name would be copied for each fault below.
        if name.chars().nth(MOST_ATTRIBUTE_CHARS).is_some() {
            faults.add(at, format!("must have a name of at most {MOST_ATTRIBUTE_CHARS} characters"));
        } else if let Some(condition) = condition(value, &at, faults) {
            conditions.insert(name.clone(), condition);
        }
    }
    conditions
}

fn condition(value: &Value, at: &str, faults: &mut Faults) -> Option<Condition> {
    let fields = faults.object(value, at, &["eq", "in", "min", "max"])?;
    if fields.is_empty() {
        faults.add(at, "must have one of eq, in, min, max");
    }
    Some(Condition {
        eq: fields.get("eq").cloned(),
        one_of: fields.get("in").and_then(|value| alternatives(value, &fields.pointer("in"), faults)),
        min: bound(&fields, "min", faults),
        max: bound(&fields, "max", faults),
    })
}

fn alternatives(value: &Value, at: &str, faults: &mut Faults) -> Option<Vec<Value>> {
    let items = value.as_array().filter(|items| (1..=MOST_ALTERNATIVES).contains(&items.len()));
    if items.is_none() {
        faults.add(at, format!("must be an array of 1 to {MOST_ALTERNATIVES} values"));
    }
    items.cloned()
}

fn bound(fields: &Fields<'_>, name: &str, faults: &mut Faults) -> Option<Value> {
    let value = fields.get(name)?;
    if !value.is_number() && !value.is_string() {
        faults.add(fields.pointer(name), "must be a number or a string");
    }
    Some(value.clone())
}
