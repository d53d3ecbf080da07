//! What exists and where: assets, and what an order line asks of one.

pub mod requirement;
