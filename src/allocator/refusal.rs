//! An honest no: of what kind, for which line, and what would help.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How long a contended caller shall wait before it tries again, in seconds: the rival's transaction takes
/// milliseconds.
pub(super) const CONTENDED_RETRY_SECONDS: i64 = 1;

/// Of what kind a refusal is. The codes are frozen: clients act on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// There was something to sell, and someone was a moment faster, or the bounded search ended.
    Contended,
    /// Everything that fits is held by other orders; it may lapse.
    Held,
    /// Nothing that fits can be had.
    Unavailable,
    /// The buyer would hold more than the shop allows one buyer.
    Limit,
}

/// What ruled candidates out. The codes are frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It stands where the line does not want it.
    WrongLocation,
    /// It is another vendor's.
    WrongVendor,
    /// An attribute is missing or does not meet its condition.
    AttributeMismatch,
    /// In maintenance, retired, or available only later.
    NotReady,
    /// Held by another order.
    Held,
    /// Sold.
    Bound,
    /// The location has less of the SKU than the line asks for.
    InsufficientStock,
}

impl Reason {
    /// Every reason, in the order in which they are listed.
    pub const ALL: [Self; 7] = [
        Self::WrongLocation,
        Self::WrongVendor,
        Self::AttributeMismatch,
        Self::NotReady,
        Self::Held,
        Self::Bound,
        Self::InsufficientStock,
    ];

    /// The frozen code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::WrongLocation => "wrong_location",
            Self::WrongVendor => "wrong_vendor",
            Self::AttributeMismatch => "attribute_mismatch",
            Self::NotReady => "not_ready",
            Self::Held => "held",
            Self::Bound => "bound",
            Self::InsufficientStock => "insufficient_stock",
        }
    }
}

impl Kind {
    /// The frozen code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Contended => "contended",
            Self::Held => "held",
            Self::Unavailable => "unavailable",
            Self::Limit => "limit",
        }
    }
}

/// How many assets a reason rules out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// The reason.
    pub reason: Reason,
    /// How many assets of the category (or locations of the SKU) it rules out; one may count under several.
    pub count: i64,
}

/// A refusal, as it stands in the order for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Of what kind.
    pub kind: Kind,
    /// The line that could not be filled, from 1.
    pub line: i16,
    /// After how many seconds to try again; null where that cannot help.
    pub retry_after_seconds: Option<i64>,
    /// What ruled the assets of the category out, without those that rule out none.
    pub reasons: Vec<Count>,
}

impl Refusal {
    /// Someone was a moment faster; nothing was counted.
    #[must_use]
    pub fn contended(line: i16) -> Self {
        Self { kind: Kind::Contended, line, retry_after_seconds: Some(CONTENDED_RETRY_SECONDS), reasons: Vec::new() }
    }

    /// The buyer would hold too much, whatever is there: it is about the order, so it names its first line.
    #[must_use]
    pub fn limit() -> Self {
        Self { kind: Kind::Limit, line: 1, retry_after_seconds: None, reasons: Vec::new() }
    }

    /// The contract's JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        serde_json::json!({
            "kind": self.kind,
            "line": self.line,
            "retry_after_seconds": self.retry_after_seconds,
            "reasons": self.reasons,
        })
    }
}
