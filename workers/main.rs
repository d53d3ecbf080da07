//! The executable `onehold`: the command line.
#![warn(clippy::unwrap_used)]

fn main() {}
