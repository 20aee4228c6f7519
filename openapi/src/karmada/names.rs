//! Generated names (Karmada's `pkg/util/names/names.go`): they must be equal to
//! the letter, since clients compute them too.

/// What every execution space begins with.
pub const EXECUTION_SPACE_PREFIX: &str = "karmada-es-";

const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// FNV-1a in 32 bits over the bytes of a text.
pub fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |h: u32, b| {
        (h ^ u32::from(b)).wrapping_mul(0x0100_0193)
    })
}

/// [`fnv1a`], its decimal digits spelled in the alphabet of names.
pub fn hash(text: &str) -> String {
    fnv1a(text)
        .to_string()
        .bytes()
        .map(|digit| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()]))
        .collect()
}

fn dotted(name: &str) -> String {
    name.replace(':', ".")
}

/// The namespace of a cluster's works.
pub fn execution_space(cluster: &str) -> String {
    format!("{EXECUTION_SPACE_PREFIX}{cluster}")
}

/// The cluster of an execution space.
pub fn cluster_of_space(namespace: &str) -> Option<&str> {
    namespace.strip_prefix(EXECUTION_SPACE_PREFIX)
}

/// The binding of a template.
pub fn binding(kind: &str, name: &str) -> String {
    format!("{}-{kind}", dotted(name)).to_lowercase()
}

/// The work of a manifest; `namespace` is empty for cluster-scoped kinds.
pub fn work(kind: &str, name: &str, namespace: &str) -> String {
    let name = dotted(name).to_lowercase();
    let full = if namespace.is_empty() {
        format!("{name}-{kind}")
    } else {
        format!("{namespace}-{name}-{kind}")
    };
    format!("{name}-{}", hash(&full.to_lowercase()))
}

/// A policy that a command makes for one resource; `gvk` is the kind as text.
pub fn policy(namespace: &str, name: &str, gvk: &str) -> String {
    let hash = hash(&format!("{namespace}{gvk}"));
    format!("{}-{hash}", dotted(name)).to_lowercase()
}

/// The secret with which the control plane acts for others in a cluster.
pub fn impersonation_secret(cluster: &str) -> String {
    format!("{cluster}-impersonator")
}

/// The Service that stands for a ServiceImport in a cluster.
pub fn derived_service(import: &str) -> String {
    format!("derived-{import}")
}

/// The key by which a binding is referred to in labels.
pub fn reference_key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        hash(name)
    } else {
        hash(&format!("{namespace}/{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: NAM-work, NAM-work-wide
    #[test]
    fn works_are_called_by_a_hash_of_what_they_hold() {
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
            assert_eq!(work(kind, name, namespace), expected);
        }
        let dotted = work("ClusterRole", "System:X", "");
        assert_eq!(dotted, work("ClusterRole", "system.x", ""));
        assert!(dotted.starts_with("system.x-"), "{dotted}");
    }

    // proves: NAM-hash
    #[test]
    fn hashes_are_decimals_in_letters_that_form_no_words() {
        // FNV-1a of nothing is 2166136261, and of "a" 3826002220.
        assert_eq!(hash(""), "65bb57b6b5");
        assert_eq!(hash("a"), "7d6b446664");
    }

    // proves: NAM-binding
    #[test]
    fn bindings_are_called_after_their_template_and_its_kind() {
        assert_eq!(binding("Deployment", "nginx"), "nginx-deployment");
        assert_eq!(binding("ClusterRole", "System:X"), "system.x-clusterrole");
    }

    // proves: NAM-reference
    #[test]
    fn bindings_are_referred_to_by_a_hash() {
        assert_eq!(reference_key("default", "nginx-deployment"), "5bdc5c4dcf");
        assert_eq!(reference_key("", "x"), hash("x"));
    }

    // proves: NAM-policy
    #[test]
    fn policies_of_commands_are_called_by_a_hash_of_what_they_are_for() {
        assert_eq!(policy("ns-foo", "foo", "rand"), "foo-b4978784");
        assert_eq!(policy("n", "A:b", "x"), format!("a.b-{}", hash("nx")));
    }

    // proves: NAM-space, NAM-impersonation
    #[test]
    fn what_is_a_clusters_is_called_after_it() {
        assert_eq!(execution_space("m1"), "karmada-es-m1");
        assert_eq!(cluster_of_space("karmada-es-m1"), Some("m1"));
        assert_eq!(cluster_of_space("default"), None);
        assert_eq!(impersonation_secret("m1"), "m1-impersonator");
        assert_eq!(derived_service("web"), "derived-web");
    }
}
