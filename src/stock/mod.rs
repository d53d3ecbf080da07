//! What exists and where: assets, movements of stock, and what an order line asks of one.

pub mod assets;
pub mod description;
pub mod import;
pub mod movement;
pub mod name;
pub mod requirement;
mod sql;
