//! For operators: whether what must always hold does hold, and the numbers that tell how it goes.

pub mod metrics;
mod sql;
pub mod verify;
mod watch;

pub use watch::Watch;
