//! Behaviour tests: one module per behaviour, one binary, one PostgreSQL server for all of them.

mod http;
mod queue_support;
mod scene;
mod served;
mod support;

mod allocator;
mod allocator_races;
mod assets;
mod assets_in_use;
mod combiner;
mod convert;
mod endings;
mod fleet;
mod guards;
mod hostage;
mod http_auth;
mod http_body;
mod http_endings;
mod http_errors;
mod http_orders;
mod http_wait;
mod migrations;
mod payments_inbox;
mod payments_webhooks;
mod plans;
mod queue_catalogue;
mod queue_failures;
mod queue_fetch;
mod queue_recovery;
mod queue_schedule;
mod queue_shutdown;
mod server;
mod sql_api;
mod transactions;
mod up;
