//! Computes the names of bindings and Works by a second implementation of the rules, so that
//! the test does not depend on the code under test.

/// FNV-1a over the bytes, in decimal, with each digit's character code mapped to an alphabet
/// without vowels (Karmada `pkg/util/names`, `k8s.io/apimachinery/pkg/util/rand`).
fn safe_encoded_hash(text: &str) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let step = |h: u32, b: u8| (h ^ u32::from(b)).wrapping_mul(16_777_619);
    let hash = text.bytes().fold(2_166_136_261, step);
    let letter = |c: u8| char::from(LETTERS[usize::from(c) % LETTERS.len()]);
    hash.to_string().bytes().map(letter).collect()
}

/// The name of the binding of a template.
pub(crate) fn binding_name(kind: &str, name: &str) -> String {
    format!("{}-{kind}", name.replace(':', ".")).to_lowercase()
}

/// The name of the Work of a template.
pub(crate) fn work_name(kind: &str, namespace: &str, name: &str) -> String {
    let lower = name.replace(':', ".").to_lowercase();
    let mut key = format!("{lower}-{kind}");
    if !namespace.is_empty() {
        key = format!("{namespace}-{key}");
    }
    format!("{lower}-{}", safe_encoded_hash(&key.to_lowercase()))
}

/// The hash of a binding in the `depended-by` labels of attached bindings.
pub(crate) fn binding_reference_key(namespace: &str, name: &str) -> String {
    safe_encoded_hash(&format!("{namespace}/{name}"))
}

#[test]
fn hashes_are_those_of_the_specification() {
    assert_eq!(
        work_name("Deployment", "default", "nginx"),
        "nginx-687f7fb96f"
    );
    assert_eq!(
        work_name("ClusterRole", "", "karmada-impersonator"),
        "karmada-impersonator-7cbb6bd5c9"
    );
    assert_eq!(
        binding_reference_key("default", "nginx-deployment"),
        "5bdc5c4dcf"
    );
}
