//! Whether a version of etcd has reliable responses to progress requests. Pure.

/// From 3.4.31 in 3.4 and from 3.5.13 on a progress response never overtakes the events
/// before it (`apiserver/pkg/storage/feature/feature_support_checker.go`).
pub(super) fn has_reliable_progress(version: &str) -> bool {
    let core = version.split(['-', '+']).next().unwrap_or_default();
    let mut parts = core.split('.').map(|part| part.parse::<u32>().ok());
    let mut part = || parts.next().flatten();
    match (part(), part(), part()) {
        (Some(3), Some(4), Some(patch)) => patch >= 31,
        (Some(major), Some(minor), Some(patch)) => (major, minor, patch) >= (3, 5, 13),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::has_reliable_progress;

    #[test]
    fn known_versions() {
        for (version, trusted) in [
            ("3.4.23", false),
            ("3.4.30", false),
            ("3.4.31", true),
            ("3.4.37", true),
            ("3.5.0", false),
            ("3.5.12", false),
            ("3.5.13", true),
            ("3.5.30", true),
            ("3.6.0-alpha.0", true),
            ("3.6.1+build", true),
            ("4.0.0", true),
            ("3.3.27", false),
            ("2.3.8", false),
            ("", false),
            ("3.5", false),
            ("v3.5.30", false),
        ] {
            assert_eq!(has_reliable_progress(version), trusted, "{version}");
        }
    }
}
