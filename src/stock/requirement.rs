//! What an asset line asks for.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// What an asset must be to fill a line. Names are normalised: NFC, trimmed, 1 to 200 characters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Requirement {
    /// The category: the only thing that every candidate has in common.
    pub category: String,
    /// Where it may be, most preferred first. `None`: anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locations: Option<Vec<String>>,
    /// Whose it must be. `None`: anyone's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// Conditions on attributes, all of which must hold. A missing attribute meets none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, Condition>,
}

impl Requirement {
    /// How many conditions it makes beside the category: how picky it is.
    #[must_use]
    pub fn conditions(&self) -> usize {
        usize::from(self.locations.is_some()) + usize::from(self.vendor.is_some()) + self.attributes.len()
    }
}

/// What one attribute must be; every bound that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// Equal to this JSON value.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub eq: Option<Value>,
    /// Equal to one of these.
    #[serde(default, rename = "in", skip_serializing_if = "Option::is_none")]
    pub one_of: Option<Vec<Value>>,
    /// At least this number (or string, in the database's order).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Value>,
    /// At most this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Value>,
}

/// A bound that is given as null is a bound: the attribute must be there and null.
fn given<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(value).map(Some)
}
