//! Rules for kinds of which controllers of a member fill in fields: the rules of ClusterRoles that
//! aggregate others, and the CA bundles that an injector writes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::rules::{NativeRules, retain_field};
use crate::error::Error;

/// The annotations by which injectors find the objects whose CA bundles they write: those of
/// cert-manager's cainjector, and of OpenShift's service CA operator.
const INJECTOR_ANNOTATIONS: [&str; 4] = [
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
    "cert-manager.io/inject-apiserver-ca",
    "service.beta.openshift.io/inject-cabundle",
];
const PEM_CERTIFICATE: &[u8] = b"-----BEGIN ";

pub(crate) struct NativeClusterRoleRules;

impl NativeRules for NativeClusterRoleRules {
    fn retain(&self, desired: &mut Value, observed: &Value) -> Result<(), Error> {
        if desired["aggregationRule"].is_object() {
            retain_field(desired, "rules", observed.get("rules"));
        }
        Ok(())
    }
}

/// The rules of MutatingWebhookConfigurations and ValidatingWebhookConfigurations.
pub(crate) struct NativeWebhookConfigurationRules;

impl NativeRules for NativeWebhookConfigurationRules {
    fn retain(&self, desired: &mut Value, observed: &Value) -> Result<(), Error> {
        let injected = is_injected(desired);
        let webhooks = observed["webhooks"].as_array();
        let desired = desired.get_mut("webhooks").and_then(Value::as_array_mut);
        for webhook in desired.into_iter().flatten() {
            let mut observed = webhooks.into_iter().flatten();
            if let Some(observed) = observed.find(|o| o["name"] == webhook["name"]) {
                retain_ca_bundle(webhook, observed, "/clientConfig", injected);
            }
        }
        Ok(())
    }
}

pub(crate) struct NativeApiServiceRules;

impl NativeRules for NativeApiServiceRules {
    fn retain(&self, desired: &mut Value, observed: &Value) -> Result<(), Error> {
        let injected = is_injected(desired);
        retain_ca_bundle(desired, observed, "/spec", injected);
        Ok(())
    }
}

pub(crate) struct NativeCustomResourceDefinitionRules;

impl NativeRules for NativeCustomResourceDefinitionRules {
    fn retain(&self, desired: &mut Value, observed: &Value) -> Result<(), Error> {
        let injected = is_injected(desired);
        let client_config = "/spec/conversion/webhook/clientConfig";
        retain_ca_bundle(desired, observed, client_config, injected);
        Ok(())
    }
}

/// Whether an injector writes the CA bundles of an object.
fn is_injected(object: &Value) -> bool {
    let annotations = &object["metadata"]["annotations"];
    INJECTOR_ANNOTATIONS
        .iter()
        .any(|key| annotations.get(key).is_some())
}

/// Retains the member's CA bundle if an injector writes it, or if the manifest has only a
/// placeholder for it.
fn retain_ca_bundle(desired: &mut Value, observed: &Value, path: &str, injected: bool) {
    let bundle = observed.pointer(path).and_then(|at| at.get("caBundle"));
    let bundle = bundle.filter(|bundle| bundle.as_str().is_some_and(|b| !b.is_empty()));
    let Some(target) = desired.pointer_mut(path).filter(|at| at.is_object()) else {
        return;
    };
    if bundle.is_some() && (injected || is_placeholder(&target["caBundle"])) {
        retain_field(target, "caBundle", bundle);
    }
}

/// Whether a CA bundle stands for one that is written later: it is absent, or has no certificate.
fn is_placeholder(bundle: &Value) -> bool {
    let Some(text) = bundle.as_str() else {
        return bundle.is_null();
    };
    let decoded = STANDARD.decode(text.trim());
    let mut windows = decoded
        .iter()
        .flat_map(|d| d.windows(PEM_CERTIFICATE.len()));
    !windows.any(|window| window == PEM_CERTIFICATE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check_retain(rules: &dyn NativeRules, mut desired: Value, observed: Value, expected: Value) {
        rules.retain(&mut desired, &observed).unwrap();
        assert_eq!(desired, expected, "{observed}");
    }

    // proves: NAT-aggregated-role
    #[test]
    fn aggregated_rules_are_the_members() {
        let rules = json!([{"verbs": ["get"]}]);
        let aggregated = json!({"aggregationRule": {"clusterRoleSelectors": []}, "rules": []});
        let mut observed = aggregated.clone();
        observed["rules"] = rules.clone();
        let role = &NativeClusterRoleRules;
        check_retain(role, aggregated.clone(), observed.clone(), observed.clone());
        let fixed = json!({ "rules": [] });
        check_retain(role, fixed.clone(), observed, fixed);
        let selectors = json!({"clusterRoleSelectors": []});
        let (bare, filled) = (
            json!({ "aggregationRule": selectors }),
            json!({ "aggregationRule": selectors, "rules": rules }),
        );
        check_retain(role, aggregated, json!({}), bare.clone());
        check_retain(role, bare, json!({ "rules": rules }), filled);
    }

    // proves: NAT-injected-bundle
    #[test]
    fn an_injected_ca_bundle_is_the_members() {
        let certificate = STANDARD.encode("-----BEGIN CERTIFICATE-----\nA");
        let other = STANDARD.encode("-----BEGIN CERTIFICATE-----\nB");
        let service = |bundle: Value, injector: &str| json!({"metadata": {"annotations": {injector: "x"}}, "spec": {"caBundle": bundle}});
        let check = |bundle: Value, injector: &str, observed: &str, expected: Value| {
            let desired = service(bundle, injector);
            let observed = service(observed.into(), "");
            let expected = service(expected, injector);
            check_retain(&NativeApiServiceRules, desired, observed, expected);
        };
        for placeholder in [json!("Cg=="), json!(""), Value::Null, json!("no base64!")] {
            check(placeholder, "", &certificate, json!(certificate));
        }
        check(json!(other), "", &certificate, json!(other));
        for injector in INJECTOR_ANNOTATIONS {
            check(json!(other), injector, &certificate, json!(certificate));
        }
        check(json!("Cg=="), "", "", json!("Cg=="));
        check(json!(3), "", &certificate, json!(3));
    }

    // proves: NAT-injected-bundle
    #[test]
    fn bundles_are_found_in_each_kind() {
        let bundle = STANDARD.encode("-----BEGIN CERTIFICATE-----\n");
        let hook =
            |name: &str, bundle: &str| json!({"name": name, "clientConfig": {"caBundle": bundle}});
        let desired = json!({"webhooks": [hook("a", "Cg=="), hook("b", ""), {"name": "c"}]});
        let observed = json!({"webhooks": [hook("b", &bundle), hook("a", "x")]});
        let expected = json!({"webhooks": [hook("a", "x"), hook("b", &bundle), {"name": "c"}]});
        check_retain(
            &NativeWebhookConfigurationRules,
            desired,
            observed,
            expected,
        );
        let definition =
            |config: Value| json!({"spec": {"conversion": {"webhook": {"clientConfig": config}}}});
        check_retain(
            &NativeCustomResourceDefinitionRules,
            definition(json!({"url": "u"})),
            definition(json!({"url": "u", "caBundle": bundle})),
            definition(json!({"url": "u", "caBundle": bundle})),
        );
        let none = json!({"spec": {"conversion": {"strategy": "None"}}});
        let observed = definition(json!({"caBundle": bundle}));
        check_retain(
            &NativeCustomResourceDefinitionRules,
            none.clone(),
            observed,
            none,
        );
    }
}
