//! The room `orders`.
