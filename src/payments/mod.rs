//! The room `payments`.
