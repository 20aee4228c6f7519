//! Generated names (Karmada's `pkg/util/names/names.go`). They must be identical to
//! Karmada's, since clients compute them too.

use machinery::names::validate_dns1123_subdomain;

/// The prefix of every execution namespace.
pub const EXECUTION_SPACE_PREFIX: &str = "karmada-es-";

const SAFE_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// FNV-1a with 32 bits.
pub fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |h: u32, b| {
        (h ^ u32::from(b)).wrapping_mul(0x0100_0193)
    })
}

/// [`fnv1a`] with its decimal digits encoded in a safe alphabet (`rand.SafeEncodeString`).
pub fn safe_encoded_hash(text: &str) -> String {
    fnv1a(text)
        .to_string()
        .bytes()
        .map(|digit| char::from(SAFE_ALPHABET[usize::from(digit) % SAFE_ALPHABET.len()]))
        .collect()
}

fn colons_to_dots(name: &str) -> String {
    name.replace(':', ".")
}

/// The execution namespace of a cluster, which contains its Works.
pub fn execution_space_name(cluster: &str) -> String {
    format!("{EXECUTION_SPACE_PREFIX}{cluster}")
}

/// The cluster of an execution namespace; `None` for other namespaces.
pub fn cluster_of_execution_space(namespace: &str) -> Option<&str> {
    namespace.strip_prefix(EXECUTION_SPACE_PREFIX)
}

/// The name of the binding of a template.
pub fn binding_name(kind: &str, name: &str) -> String {
    format!("{}-{kind}", colons_to_dots(name)).to_lowercase()
}

/// The name of the Work of a manifest; `namespace` is empty for cluster-scoped kinds.
pub fn work_name(kind: &str, name: &str, namespace: &str) -> String {
    let name = colons_to_dots(name).to_lowercase();
    let full_name = if namespace.is_empty() {
        format!("{name}-{kind}")
    } else {
        format!("{namespace}-{name}-{kind}")
    };
    format!("{name}-{}", safe_encoded_hash(&full_name.to_lowercase()))
}

/// Why an object of a kind cannot be propagated because of its name: the names of its binding
/// and its Works, which contain it, would be too long or otherwise invalid.
pub fn template_name_error(kind: &str, name: &str, namespace: &str) -> Option<String> {
    let derived = [
        ("binding", binding_name(kind, name)),
        ("Work", work_name(kind, name, namespace)),
    ];
    derived.into_iter().find_map(|(derived_kind, derived)| {
        let message = validate_dns1123_subdomain(&derived).err()?;
        let length = derived.len();
        Some(format!(
            "its name does not allow it to be propagated: that of its {derived_kind} would be {derived:?} ({length} characters): {message}"
        ))
    })
}

/// The name of a policy that a command creates for one resource; `gvk` is the kind as text.
pub fn policy_name(namespace: &str, name: &str, gvk: &str) -> String {
    let hash = safe_encoded_hash(&format!("{namespace}{gvk}"));
    format!("{}-{hash}", colons_to_dots(name)).to_lowercase()
}

/// The name of the Secret with the token for impersonating users in a cluster.
pub fn impersonation_secret_name(cluster: &str) -> String {
    format!("{cluster}-impersonator")
}

/// The name of the Service that is derived from a ServiceImport in a cluster.
pub fn derived_service_name(import: &str) -> String {
    format!("derived-{import}")
}

/// The name in the control plane of an EndpointSlice that comes from a cluster.
pub fn imported_endpoint_slice_name(cluster: &str, slice: &str) -> String {
    format!("imported-{cluster}-{slice}")
}

/// The reference key of a binding, used in labels.
pub fn binding_reference_key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        safe_encoded_hash(name)
    } else {
        safe_encoded_hash(&format!("{namespace}/{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: NAM-work, NAM-work-wide
    #[test]
    fn work_names_contain_a_hash() {
        for (kind, name, namespace, expected) in [
            ("Deployment", "nginx", "default", "nginx-687f7fb96f"),
            ("Namespace", "test", "", "test-69fd499b4c"),
            (
                "ClusterRole",
                "karmada-impersonator",
                "",
                "karmada-impersonator-7cbb6bd5c9",
            ),
        ] {
            assert_eq!(work_name(kind, name, namespace), expected);
        }
        let dotted = work_name("ClusterRole", "System:X", "");
        assert_eq!(dotted, work_name("ClusterRole", "system.x", ""));
        assert!(dotted.starts_with("system.x-"), "{dotted}");
    }

    // proves: NAM-hash
    #[test]
    fn hashes_are_safe_encoded() {
        // FNV-1a of the empty text is 2166136261, and of "a" 3826002220.
        assert_eq!(safe_encoded_hash(""), "65bb57b6b5");
        assert_eq!(safe_encoded_hash("a"), "7d6b446664");
    }

    // proves: NAM-binding
    #[test]
    fn binding_names_contain_the_kind() {
        assert_eq!(binding_name("Deployment", "nginx"), "nginx-deployment");
        assert_eq!(
            binding_name("ClusterRole", "System:X"),
            "system.x-clusterrole"
        );
    }

    // proves: DET-name
    #[test]
    fn a_name_that_is_too_long_for_binding_or_work_is_named() {
        let error = |kind: &str, length: usize| template_name_error(kind, &"a".repeat(length), "n");
        assert_eq!(error("Deployment", 242), None);
        let message = error("Deployment", 243).unwrap();
        assert!(
            message.contains("binding") && message.contains("(254 characters)"),
            "{message}"
        );
        // The hash of a Work may be longer than a kind.
        let message = error("Pod", 249).unwrap();
        assert!(
            message.contains("Work") && message.contains("no more than 253"),
            "{message}"
        );
        let role = |name: &str| template_name_error("ClusterRole", name, "");
        assert_eq!(role("system:Node"), None);
        assert!(role("a_b").unwrap().contains("\"a_b-clusterrole\""));
    }

    // proves: NAM-reference
    #[test]
    fn reference_keys_are_hashes() {
        assert_eq!(
            binding_reference_key("default", "nginx-deployment"),
            "5bdc5c4dcf"
        );
        assert_eq!(binding_reference_key("", "x"), safe_encoded_hash("x"));
    }

    // proves: NAM-policy
    #[test]
    fn policy_names_of_commands_contain_a_hash() {
        assert_eq!(policy_name("ns-foo", "foo", "rand"), "foo-b4978784");
        assert_eq!(
            policy_name("n", "A:b", "x"),
            format!("a.b-{}", safe_encoded_hash("nx"))
        );
    }

    // proves: NAM-space, NAM-impersonation
    #[test]
    fn names_that_derive_from_a_cluster_or_service() {
        assert_eq!(execution_space_name("m1"), "karmada-es-m1");
        assert_eq!(cluster_of_execution_space("karmada-es-m1"), Some("m1"));
        assert_eq!(cluster_of_execution_space("default"), None);
        assert_eq!(impersonation_secret_name("m1"), "m1-impersonator");
        assert_eq!(derived_service_name("web"), "derived-web");
        assert_eq!(
            imported_endpoint_slice_name("m1", "web-x"),
            "imported-m1-web-x"
        );
    }
}
