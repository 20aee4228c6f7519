//! How an evicted resource leaves its cluster (Karmada's `PurgeMode`).

pub const PURGE_MODE_DIRECTLY: &str = "Directly";

pub const PURGE_MODE_GRACEFULLY: &str = "Gracefully";

pub const PURGE_MODE_NEVER: &str = "Never";
