//! Money: whose word is believed (signatures), what was said (events), and the inbox that keeps it.

pub mod event;
pub mod inbox;
mod lenient;
pub mod signature;
mod sql;
mod standard;
mod stripe;

/// Who tells us about payments, and by which scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// Stripe's events, signed as `Stripe-Signature`.
    Stripe,
    /// Anyone's events in the Standard Webhooks scheme.
    Standard,
}

impl Provider {
    /// The frozen name, as it stands in the database, in URLs and in jobs.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Stripe => "stripe",
            Self::Standard => "standard",
        }
    }
}

/// What an event means to an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Money is there: convert.
    Succeeded,
    /// An attempt to pay failed; buyers try again, so the hold stays.
    Failed,
    /// Money went back.
    Refunded,
    /// The buyer's bank has taken a payment up: nothing is given up without a person.
    Disputed,
    /// The buyer will not pay any more: the hold can go.
    Abandoned,
    /// Nothing that concerns an order.
    None,
}

impl Effect {
    /// The frozen name, as it stands in the database.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Refunded => "refunded",
            Self::Disputed => "disputed",
            Self::Abandoned => "abandoned",
            Self::None => "none",
        }
    }

    fn from_code(code: &str) -> Option<Self> {
        [Self::Succeeded, Self::Failed, Self::Refunded, Self::Disputed, Self::Abandoned, Self::None]
            .into_iter()
            .find(|effect| effect.code() == code)
    }
}
