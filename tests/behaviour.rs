//! Behaviour tests: one module per behaviour, one binary, one PostgreSQL server for all of them.

mod queue_support;
mod scene;
mod support;

mod allocator;
mod allocator_races;
mod convert;
mod endings;
mod guards;
mod hostage;
mod plans;
mod queue_catalogue;
mod queue_failures;
mod queue_fetch;
mod queue_recovery;
mod queue_schedule;
mod queue_shutdown;
mod sql_api;
mod transactions;
