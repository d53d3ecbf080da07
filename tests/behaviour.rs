//! Behaviour tests: one module per behaviour, one binary, one PostgreSQL server for all of them.

mod support;

mod transactions;
