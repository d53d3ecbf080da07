//! The room `reservations`.
