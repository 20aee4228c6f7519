//! Names clusters in the sentences of a status or an event, of many the first.

/// How many clusters are named.
const MAX_NAMED_CLUSTERS: usize = 5;

/// `a, b`, or `a, b, c, d, e and 2 more`.
pub(crate) fn cluster_names(names: &[&str]) -> String {
    let named = &names[..names.len().min(MAX_NAMED_CLUSTERS)];
    match names.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}
