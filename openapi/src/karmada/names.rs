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

    // proves: NAM-binding, NAM-work, NAM-work-wide, NAM-reference
    #[test]
    fn names_are_karmadas_to_the_letter() {
        assert_eq!(work("Deployment", "nginx", "default"), "nginx-687f7fb96f");
        assert_eq!(work("Namespace", "test", ""), "test-69fd499b4c");
        assert_eq!(
            work("ClusterRole", "karmada-impersonator", ""),
            "karmada-impersonator-7cbb6bd5c9"
        );
        assert_eq!(policy("ns-foo", "foo", "rand"), "foo-b4978784");
        assert_eq!(impersonation_secret("m1"), "m1-impersonator");
        assert_eq!(reference_key("default", "nginx-deployment"), "5bdc5c4dcf");
        assert_eq!(binding("ClusterRole", "System:X"), "system.x-clusterrole");
        assert_eq!(derived_service("web"), "derived-web");
        assert_eq!(cluster_of_space(&execution_space("m1")), Some("m1"));
    }
}
