//! Names of fields as CEL identifiers (`k8s.io/apiserver/pkg/cel/escaping.go`).

use crate::syntax::RESERVED;

/// Literals and operators, which the grammar reads before it looks for identifiers.
const LITERALS: [&str; 4] = ["true", "false", "null", "in"];

/// Whether a word of CEL's grammar has this name, so that nothing else can have it.
pub fn is_reserved_name(name: &str) -> bool {
    LITERALS.contains(&name) || RESERVED.contains(&name)
}

/// The identifier by which expressions name a field; `None` when the field has a character
/// that identifiers cannot spell.
pub(crate) fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if is_reserved_name(name) {
        return Some(format!("__{name}__"));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    if !name.chars().all(allowed) {
        return None;
    }
    let escaped = name
        .replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__");
    Some(escaped)
}

/// Whether a word of the grammar may be written as it is where a field is selected.
pub(crate) fn is_reserved(name: &str) -> bool {
    is_reserved_name(name)
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn fields_become_identifiers() {
        for (name, escaped) in [
            ("replicas", Some("replicas")),
            ("namespace", Some("__namespace__")),
            ("a__b", Some("a__underscores__b")),
            ("a.b-c/d", Some("a__dot__b__dash__c__slash__d")),
            ("x_y", Some("x_y")),
            ("1st", None),
            ("", None),
            ("a$b", None),
            ("é", None),
        ] {
            assert_eq!(escape(name).as_deref(), escaped, "{name}");
        }
    }
}
