//! The one table of the money's states. Each payment of an order moves along it, and the order's word follows from
//! its payments. The database holds the same table in its guard (`guard_payment`); a test compares them.

use super::PaymentState;

/// Every state of a payment, and what it may become.
pub const STATES: [(PaymentState, &[PaymentState]); 6] = [
    (PaymentState::None, &[PaymentState::Paid, PaymentState::Late, PaymentState::Mismatch, PaymentState::RefundDue]),
    (PaymentState::Late, &[PaymentState::Paid, PaymentState::RefundDue]),
    (PaymentState::Mismatch, &[PaymentState::Paid, PaymentState::RefundDue, PaymentState::Refunded]),
    (PaymentState::Paid, &[PaymentState::Refunded]),
    (PaymentState::RefundDue, &[PaymentState::Refunded]),
    (PaymentState::Refunded, &[]),
];

impl PaymentState {
    /// Whether a payment may stay in this state once its order has ended: it became a sale, is owed back, or is back.
    #[must_use]
    pub fn is_final(self) -> bool {
        match self {
            Self::Paid | Self::RefundDue | Self::Refunded => true,
            Self::None | Self::Late | Self::Mismatch => false,
        }
    }

    /// Whether a payment in this state may become `next`.
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        STATES.iter().any(|(state, after)| *state == self && after.contains(&next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_stands_in_the_table_once_and_every_way_ends_in_a_final_one() {
        for state in PaymentState::ALL {
            assert_eq!(STATES.iter().filter(|(of, _)| of == state).count(), 1, "{state:?}");
        }
        for (state, next) in STATES {
            assert!(state.is_final() || next.iter().any(|n| n.is_final()), "{state:?}");
            assert!(!state.may_become(state), "{state:?} is no step");
            assert!(!next.contains(&PaymentState::None), "what was heard is not unsaid");
            // From a final state the only way is back to the buyer.
            assert!(!state.is_final() || next.iter().all(|n| *n == PaymentState::Refunded), "{state:?}");
        }
    }
}
