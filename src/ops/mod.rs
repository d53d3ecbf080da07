//! For operators: whether what must always hold does hold.

mod sql;
pub mod verify;
