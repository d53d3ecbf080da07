//! What exists and where: assets, and what an order line asks of one.

pub mod assets;
pub mod description;
pub mod name;
pub mod requirement;
mod sql;
