//! Names that are computed: written here a second time, from the rule alone, so that
//! the code under test is not asked whether it is right.

/// FNV-1a over the bytes, in decimal, each character by its code in an alphabet
/// without vowels (`pkg/util/names`, `k8s.io/apimachinery/pkg/util/rand`).
fn encoded(text: &str) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let step = |h: u32, b: u8| (h ^ u32::from(b)).wrapping_mul(16_777_619);
    let hash = text.bytes().fold(2_166_136_261, step);
    let letter = |c: u8| char::from(LETTERS[usize::from(c) % LETTERS.len()]);
    hash.to_string().bytes().map(letter).collect()
}

/// Of the binding of a template.
pub(crate) fn binding(kind: &str, name: &str) -> String {
    format!("{}-{kind}", name.replace(':', ".")).to_lowercase()
}

/// Of the work of a template.
pub(crate) fn work(kind: &str, namespace: &str, name: &str) -> String {
    let lower = name.replace(':', ".").to_lowercase();
    let mut key = format!("{lower}-{kind}");
    if !namespace.is_empty() {
        key = format!("{namespace}-{key}");
    }
    format!("{lower}-{}", encoded(&key.to_lowercase()))
}

/// What labels of dependents call a binding by.
pub(crate) fn reference(namespace: &str, name: &str) -> String {
    encoded(&format!("{namespace}/{name}"))
}

#[test]
fn hashes_are_those_of_the_specification() {
    assert_eq!(work("Deployment", "default", "nginx"), "nginx-687f7fb96f");
    assert_eq!(
        work("ClusterRole", "", "karmada-impersonator"),
        "karmada-impersonator-7cbb6bd5c9"
    );
    assert_eq!(reference("default", "nginx-deployment"), "5bdc5c4dcf");
}
