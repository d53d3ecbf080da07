//! For operators: whether what must always hold does hold, and the numbers that tell how it goes.

pub mod jobs;
pub mod metrics;
pub mod minutes;
pub mod orders;
pub mod redact;
mod sql;
pub mod standing;
pub mod stock;
pub mod top;
pub mod verify;
mod watch;
pub mod words;

pub use watch::Watch;
