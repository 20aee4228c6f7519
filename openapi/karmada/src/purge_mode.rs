//! Parses Karmada's `PurgeMode`, which decides how an evicted resource leaves its cluster.

pub const PURGE_MODE_DIRECTLY: &str = "Directly";

pub const PURGE_MODE_GRACEFULLY: &str = "Gracefully";

pub const PURGE_MODE_NEVER: &str = "Never";
