//! Validates ResourceRegistry. Does no I/O. Rules of Karmada's
//! `apis/search/validation`.

use machinery::FieldError;
use machinery::names::validate_dns1123_label;
use serde_json::Value;

use crate::unstructured::{get, index_path, items, report_invalid, text};
use crate::{cluster_affinity, url};

pub(crate) fn validate(registry: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let target = get(registry, "/spec/targetCluster");
    cluster_affinity::validate("spec.targetCluster", target, &mut errors);
    let selectors = items(registry, "/spec/resourceSelectors");
    for (i, selector) in selectors.iter().enumerate() {
        let field = index_path("spec.resourceSelectors", i);
        let version = text(selector, "/apiVersion");
        if version.matches('/').count() > 1 {
            let why = format!("unexpected GroupVersion string: {version}");
            let field = format!("{field}.apiVersion");
            errors.push(FieldError::invalid(field, &version.into(), why));
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
    let addresses = items(registry, "/spec/backendStore/openSearch/addresses");
    for (i, address) in addresses.iter().enumerate() {
        let parts = url::split_url(address.as_str().unwrap_or("")).unwrap_or_default();
        if parts.host.is_empty() || !matches!(parts.scheme, "http" | "https") {
            errors.push(FieldError::invalid(
                index_path("spec.backendStore.openSearch.addresses", i),
                address,
                "must be a valid http or https URL with non-empty scheme and host",
            ));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(spec: Value, expected: &[&str]) {
        let errors = validate(&json!({ "spec": spec }));
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
        let why = validate_dns1123_label("N").unwrap_err();
        check(
            selects("v1", "N"),
            &[&format!(
                r#"spec.resourceSelectors[0].namespace: Invalid value: "N": {why}"#
            )],
        );
        check(registry("https://a:9200"), &[]);
        for bad in ["ftp://a", "a:9200", "http://"] {
            check(
                registry(bad),
                &[&format!(
                    "spec.backendStore.openSearch.addresses[0]: Invalid value: {bad:?}: must be a valid http or https URL with non-empty scheme and host"
                )],
            );
        }
    }
}
