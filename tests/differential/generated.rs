//! Compares the two servers on generated schemas, objects and requests.

/// Whether a known difference is a seed of the generator.
pub(crate) fn is_seed(name: &str) -> bool {
    name.strip_prefix("seed-")
        .is_some_and(|seed| seed.parse::<u64>().is_ok())
}
