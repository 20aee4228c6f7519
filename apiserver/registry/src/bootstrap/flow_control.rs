//! The FlowSchemas and PriorityLevelConfigurations of every server; their specs follow this
//! release unless an administrator has taken them over
//! (Kubernetes `pkg/registry/flowcontrol/ensurer`).

use machinery::Gvr;
use serde_json::Value;

use super::policy_file::BootstrapObject;
use super::rbac_reconciliation::Reconciliation;

pub(super) const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const FLOW_SCHEMAS: Gvr = Gvr::from_static(GROUP, "v1", "flowschemas");
const PRIORITY_LEVEL_CONFIGURATIONS: Gvr =
    Gvr::from_static(GROUP, "v1", "prioritylevelconfigurations");
const AUTOUPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

pub(super) fn objects() -> impl Iterator<Item = BootstrapObject> {
    let objects = admission::flow_control_bootstrap_objects().into_iter();
    objects.map(|value| BootstrapObject {
        gvr: match value["kind"].as_str() {
            Some("FlowSchema") => FLOW_SCHEMAS,
            _ => PRIORITY_LEVEL_CONFIGURATIONS,
        },
        value,
    })
}

/// Compares a stored object with the one of this release. Without the annotation, an object
/// follows the release as long as nobody has changed its spec.
pub(super) fn reconcile(mut stored: Value, expected: &Value) -> Reconciliation {
    let metadata = &stored["metadata"];
    let follows = match metadata["annotations"][AUTOUPDATE].as_str() {
        Some(value) => value == "true",
        None => metadata["generation"] == 1,
    };
    if !follows || stored["spec"] == expected["spec"] {
        return Reconciliation::Keep;
    }
    stored["spec"] = expected["spec"].clone();
    Reconciliation::Update(stored)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn specs_follow_the_release_unless_taken_over() {
        let expected = json!({"spec": {"matchingPrecedence": 5}});
        let stored = |annotation: Option<&str>, generation: u64| {
            let mut object = json!({"spec": {"matchingPrecedence": 4},
                                    "metadata": {"generation": generation}});
            if let Some(value) = annotation {
                object["metadata"]["annotations"] = json!({ AUTOUPDATE: value });
            }
            object
        };
        for (annotation, generation, follows) in [
            (Some("true"), 7, true),
            (Some("false"), 1, false),
            (None, 1, true),
            (None, 2, false),
        ] {
            let outcome = reconcile(stored(annotation, generation), &expected);
            assert_eq!(outcome != Reconciliation::Keep, follows, "{annotation:?}");
        }
        let equal = json!({"spec": expected["spec"], "metadata": {"generation": 1}});
        assert_eq!(reconcile(equal, &expected), Reconciliation::Keep);
    }
}
