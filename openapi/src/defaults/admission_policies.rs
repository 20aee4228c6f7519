//! Defaults of admission policies and their bindings (Kubernetes
//! `pkg/apis/admissionregistration/v1/defaults.go`).

use super::{JsonObjectMap, for_each_object, set_default, with_object};

pub(super) fn set_defaults(object: &mut JsonObjectMap) {
    with_object(object, "spec", |spec| {
        // Bindings have none of these two.
        if !spec.contains_key("policyName") {
            set_default(spec, "failurePolicy", "Fail");
        }
        for field in ["matchConstraints", "matchResources"] {
            with_object(spec, field, set_defaults_match_resources);
        }
    });
}

fn set_defaults_match_resources(resources: &mut JsonObjectMap) {
    set_default(resources, "matchPolicy", "Equivalent");
    set_default(resources, "namespaceSelector", JsonObjectMap::new());
    set_default(resources, "objectSelector", JsonObjectMap::new());
    for rules in ["resourceRules", "excludeResourceRules"] {
        for_each_object(resources, rules, |rule| set_default(rule, "scope", "*"));
    }
}
