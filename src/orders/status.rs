//! The states of an order and of its payment. The codes are frozen: they stand in the database and on
//! the wire.

use serde::{Deserialize, Serialize};

macro_rules! coded {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$vdoc])* $variant),+
        }

        impl $name {
            /// Every state.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The frozen code.
            #[must_use]
            pub fn code(self) -> &'static str {
                match self { $(Self::$variant => $code),+ }
            }

            /// The state with this code.
            #[must_use]
            pub fn from_code(code: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|s| s.code() == code)
            }
        }
    };
}

coded! {
    /// Where an order stands.
    Status {
        /// Accepted; waits for its reservation.
        Placed = "placed",
        /// Everything is held until the deadline.
        Reserved = "reserved",
        /// An honest no.
        Refused = "refused",
        /// Sold.
        Converted = "converted",
        /// Nobody paid in time.
        Expired = "expired",
        /// Given up by a person or a provider.
        Cancelled = "cancelled",
        /// Sold, then given back.
        Released = "released",
    }
}

coded! {
    /// Where an order's money stands.
    PaymentState {
        /// No money was heard of.
        None = "none",
        /// Paid as expected.
        Paid = "paid",
        /// Money arrived after the hold lapsed and is being dealt with.
        Late = "late",
        /// Amount or currency differs; nothing was converted.
        Mismatch = "mismatch",
        /// Money for which there is nothing to sell.
        RefundDue = "refund_due",
        /// Given back.
        Refunded = "refunded",
    }
}
