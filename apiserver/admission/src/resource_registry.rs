//! Validates ResourceRegistry. Does no I/O. Rules of Karmada's `apis/search/validation`, and TLS
//! for its backend.

use karmada_api::well_known_keys::INSECURE_BACKEND_STORE;
use machinery::FieldError;
use machinery::names::validate_dns1123_label;
use serde_json::Value;

use crate::secret_access::{SecretReferenceFields, is_changed};
use crate::unstructured::{entries, get, index_path, items, report_invalid, text};
use crate::{cluster_affinity, url};

const ADDRESSES: &str = "/spec/backendStore/openSearch/addresses";
const ADDRESSES_FIELD: &str = "spec.backendStore.openSearch.addresses";

/// The Secret of a ResourceRegistry, and where its content is sent.
pub(crate) const SECRETS: SecretReferenceFields = SecretReferenceFields {
    references: &[(
        "/spec/backendStore/openSearch/secretRef",
        "spec.backendStore.openSearch.secretRef",
    )],
    connection: &[ADDRESSES],
    sent_to: ADDRESSES_FIELD,
};

/// `old` is the stored registry, whose addresses may stay as they are.
pub(crate) fn validate(registry: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let target = get(registry, "/spec/targetCluster");
    cluster_affinity::validate("spec.targetCluster", target, &mut errors);
    let selectors = items(registry, "/spec/resourceSelectors");
    for (i, selector) in selectors.iter().enumerate() {
        let field = index_path("spec.resourceSelectors", i);
        let version = text(selector, "/apiVersion");
        if version.matches('/').count() > 1 {
            let detail = format!("unexpected GroupVersion string: {version}");
            let field = format!("{field}.apiVersion");
            errors.push(FieldError::invalid(field, &version.into(), detail));
        }
        let namespace = text(selector, "/namespace");
        if !namespace.is_empty() {
            let field = format!("{field}.namespace");
            report_invalid(
                field,
                namespace,
                validate_dns1123_label(namespace),
                &mut errors,
            );
        }
    }
    let is_unencrypted_allowed = allows_unencrypted(registry)
        || old.is_some_and(|old| !is_changed(registry, old, ADDRESSES) && !allows_unencrypted(old));
    for (i, address) in items(registry, ADDRESSES).iter().enumerate() {
        let parts = url::split_url(address.as_str().unwrap_or("")).unwrap_or_default();
        if parts.host.is_empty() || !matches!(parts.scheme, "http" | "https") {
            errors.push(FieldError::invalid(
                index_path(ADDRESSES_FIELD, i),
                address,
                "must be a valid http or https URL with non-empty scheme and host",
            ));
        } else if parts.scheme == "http" && !is_unencrypted_allowed {
            let detail = format!(
                "must be an https URL; the annotation {INSECURE_BACKEND_STORE}: \"true\" permits http"
            );
            errors.push(FieldError::invalid(
                index_path(ADDRESSES_FIELD, i),
                &"http".into(),
                detail,
            ));
        }
    }
    errors
}

/// Whether credentials and objects may be sent without encryption.
fn allows_unencrypted(registry: &Value) -> bool {
    entries(registry, "/metadata/annotations")
        .any(|(key, value)| key == INSECURE_BACKEND_STORE && value == "true")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(spec: Value, expected: &[&str]) {
        let errors = validate(&json!({ "spec": spec }), None);
        let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(messages, expected, "{spec}");
    }

    #[test]
    fn resource_registries_are_validated() {
        let selects = |version: &str, namespace: &str| json!({"resourceSelectors": [{"apiVersion": version, "kind": "X", "namespace": namespace}]});
        let registry =
            |address: &str| json!({"backendStore": {"openSearch": {"addresses": [address]}}});
        let fields = json!({"fieldSelector": {"matchExpressions": [{"key": "x", "operator": "In", "values": ["y"]}]}});
        check(json!({"targetCluster": {}}), &[]);
        check(
            json!({ "targetCluster": fields }),
            &[
                r#"spec.targetCluster.fieldSelector: Invalid value: {"matchExpressions":[{"key":"x","operator":"In","values":["y"]}]}: unsupported key "x", must be provider, region, or zone"#,
            ],
        );
        check(selects("apps/v1", "n"), &[]);
        check(selects("v1", ""), &[]);
        check(
            selects("a/b/c", ""),
            &[
                r#"spec.resourceSelectors[0].apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c"#,
            ],
        );
        let detail = validate_dns1123_label("N").unwrap_err();
        check(
            selects("v1", "N"),
            &[&format!(
                r#"spec.resourceSelectors[0].namespace: Invalid value: "N": {detail}"#
            )],
        );
        check(registry("https://a:9200"), &[]);
        for invalid in ["ftp://a", "a:9200", "http://"] {
            check(
                registry(invalid),
                &[&format!(
                    "spec.backendStore.openSearch.addresses[0]: Invalid value: {invalid:?}: must be a valid http or https URL with non-empty scheme and host"
                )],
            );
        }
    }

    #[test]
    fn a_backend_is_reached_by_https_unless_its_registry_says_otherwise() {
        let registry = |address: &str, insecure: &str| {
            json!({"metadata": {"annotations": {INSECURE_BACKEND_STORE: insecure}},
                "spec": {"backendStore": {"openSearch": {"addresses": [address]}}}})
        };
        let unencrypted = registry("http://a:9200", "");
        let permitted = registry("http://a:9200", "true");
        let encrypted = registry("https://a:9200", "");
        for (new, old, valid) in [
            (&encrypted, None, true),
            (&unencrypted, None, false),
            (&permitted, None, true),
            (&unencrypted, Some(&encrypted), false),
            (&unencrypted, Some(&permitted), false),
            (&permitted, Some(&encrypted), true),
            // It was stored before this rule.
            (&unencrypted, Some(&unencrypted), true),
        ] {
            let errors = validate(new, old);
            assert_eq!(errors.is_empty(), valid, "{new} {old:?}: {errors:?}");
            let is_named = |error: &FieldError| error.to_string().contains(INSECURE_BACKEND_STORE);
            assert!(errors.iter().all(is_named), "{errors:?}");
        }
    }

    #[test]
    fn secrets_are_authorized_when_they_are_named_or_sent_elsewhere() {
        let registry = |address: &str, name: &str| {
            json!({"spec": {"backendStore": {"openSearch": {"addresses": [address],
                "secretRef": {"namespace": "n", "name": name}}}}})
        };
        let old = registry("https://a", "s");
        for (new, expected) in [
            (registry("https://a", "s"), None),
            (registry("https://a", "t"), Some("t")),
            (registry("https://b", "s"), Some("s")),
            (json!({"spec": {}}), None),
        ] {
            let secrets = SECRETS.to_authorize(&new, Some(&old));
            let names: Vec<&str> = secrets.iter().map(|secret| secret.name).collect();
            assert_eq!(names, Vec::from_iter(expected), "{new}");
        }
        let secret = SECRETS.to_authorize(&old, None).swap_remove(0);
        assert_eq!(secret.field, "spec.backendStore.openSearch.secretRef");
        assert_eq!((secret.namespace, secret.name), ("n", "s"));
    }
}
