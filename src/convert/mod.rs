//! The room `convert`.
