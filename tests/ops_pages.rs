//! The pages of the dashboard (cases P1, P3, P4).

/// Every page that needs no name of a thing.
pub(crate) const PAGES: &[&str] = &["/ops"];
