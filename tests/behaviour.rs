//! Behaviour tests: one module per behaviour, one binary, one PostgreSQL server for all of them.

mod scene;
mod served;
mod support;

mod allocator;
mod allocator_races;
mod assets;
mod assets_in_use;
mod convert;
mod endings;
mod guards;
mod hostage;
mod payments_inbox;
mod payments_webhooks;
mod plans;
mod sql_api;
mod transactions;
