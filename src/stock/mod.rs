//! What exists and where: assets, and what an order line asks of one; stock by the unit, its ledger and pools.

pub mod assets;
pub mod description;
pub mod import;
pub mod ledger;
pub mod movement;
pub mod name;
pub mod pools;
pub mod requirement;
mod sql;
