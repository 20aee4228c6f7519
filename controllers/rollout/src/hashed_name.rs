//! Names of objects by the hash of what they are for.

/// The beginning of a name, and a hash in hexadecimal digits.
pub(crate) fn hashed_name(name: &str, max_prefix_chars: usize, hash: &[u8]) -> String {
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let prefix: String = name.chars().take(max_prefix_chars).collect();
    format!("{}-{hash}", prefix.trim_end_matches(['-', '.']))
}
