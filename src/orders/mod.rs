//! Orders: placing, reading, and the endings that a person asks for.

mod endings;
pub mod money;
mod place;
mod read;
mod refunded;
pub mod request;
mod sql;
mod status;

pub use endings::{AfterRelease, Ending, cancel, extend, release};
pub use place::{Placed, Placing, place};
pub use read::{Event, Filter, Order, Reading, events, list, read};
pub use refunded::mark_refunded;
pub use status::{PaymentState, Status};
