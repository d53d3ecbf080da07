//! The one table of a reservation's states. The database holds the same table in its guard
//! (`guard_reservation`) and in the predicates of its partial indexes; tests compare them.

/// The state of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Keeps its asset for its order until the deadline. The only state that holds.
    Held,
    /// Became a sale.
    Converted,
    /// Lapsed: nobody paid in time.
    Expired,
    /// Given up before the deadline, by a person or a provider.
    Cancelled,
}

/// Every state, what it is called in the database, and what it may become.
pub const STATES: [(State, &str, &[State]); 4] = [
    (State::Held, "held", &[State::Converted, State::Expired, State::Cancelled]),
    (State::Converted, "converted", &[]),
    (State::Expired, "expired", &[]),
    (State::Cancelled, "cancelled", &[]),
];

impl State {
    /// Every state.
    pub fn all() -> impl Iterator<Item = Self> {
        STATES.iter().map(|(state, _, _)| *state)
    }

    /// Whether a reservation in this state keeps its asset from every other order.
    #[must_use]
    pub fn holds(self) -> bool {
        match self {
            Self::Held => true,
            Self::Converted | Self::Expired | Self::Cancelled => false,
        }
    }

    /// The name in the database and on the wire.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Converted => "converted",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }
}
