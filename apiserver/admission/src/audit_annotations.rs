//! The audit annotations that admission adds to the events of a request.

use std::collections::BTreeMap;

use machinery::names::validate_qualified_name;
use parking_lot::Mutex;

/// Annotations by key. The first value of a key stays.
#[derive(Debug, Default)]
pub struct AuditAnnotations(Mutex<BTreeMap<String, AuditAnnotation>>);

#[derive(Debug)]
struct AuditAnnotation {
    value: String,
    /// Whether only events with the body of the request have it.
    shows_request: bool,
}

impl AuditAnnotations {
    /// Adds an annotation. One whose key is no qualified name with a prefix is dropped, as in
    /// Kubernetes.
    pub fn add(&self, key: String, value: String) {
        self.insert(key, value, false);
    }

    /// Adds an annotation that shows parts of the request: events below the level `Request` do
    /// not have it.
    pub fn add_request_content(&self, key: String, value: String) {
        self.insert(key, value, true);
    }

    fn insert(&self, key: String, value: String, shows_request: bool) {
        if !key.contains('/') || validate_qualified_name(&key).is_err() {
            tracing::warn!(
                key,
                "an audit annotation has a malformed key and is dropped"
            );
            return;
        }
        let annotation = AuditAnnotation {
            value,
            shows_request,
        };
        self.0.lock().entry(key).or_insert(annotation);
    }

    /// The annotations so far, of events with the body of the request or without it.
    pub fn to_map(&self, with_request: bool) -> BTreeMap<String, String> {
        let annotations = self.0.lock();
        let entries = annotations
            .iter()
            .filter(|(_, annotation)| with_request || !annotation.shows_request);
        entries
            .map(|(key, annotation)| (key.clone(), annotation.value.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_have_qualified_keys_and_keep_their_first_value() {
        let annotations = AuditAnnotations::default();
        for (key, value) in [
            ("a.b/c", "1"),
            ("a.b/c", "2"),
            ("c", "3"),
            ("a/b/c", "4"),
            ("a b/c", "5"),
        ] {
            annotations.add(key.to_owned(), value.to_owned());
        }
        annotations.add_request_content("a.b/patch".into(), "{}".into());
        let listed = |with_request: bool| Vec::from_iter(annotations.to_map(with_request));
        let owned = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(listed(false), [owned("a.b/c", "1")]);
        assert_eq!(
            listed(true),
            [owned("a.b/c", "1"), owned("a.b/patch", "{}")]
        );
    }
}
