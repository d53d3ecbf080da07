//! The embedded PostgreSQL server.
