//! The room `allocator`.
