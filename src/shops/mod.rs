//! The room `shops`.
