//! The strategy of Namespaces, which live until `spec.finalizers` is empty (contract F2).

use serde_json::{Value, json};

use super::{DEFAULT_STRATEGY, RestStrategy};

/// Namespaces that cannot be deleted.
pub(crate) const UNDELETABLE: [&str; 3] = ["default", "kube-system", "kube-public"];
/// `status.phase` of a namespace that is being deleted.
const TERMINATING: &str = "Terminating";
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub(super) static STRATEGY: RestStrategy = RestStrategy {
    create,
    update,
    begin_delete,
    delays_removal: has_spec_finalizers,
    ..DEFAULT_STRATEGY
};

fn set_name_label(new: &mut Value) {
    let name = new["metadata"]["name"].clone();
    new["metadata"]["labels"][NAME_LABEL] = name;
}

fn create(new: &mut Value) {
    set_name_label(new);
    let listed = new["spec"]["finalizers"]
        .as_array()
        .is_some_and(|a| !a.is_empty());
    if !listed {
        new["spec"]["finalizers"] = json!(["kubernetes"]);
    }
    new["status"] = json!({"phase": "Active"});
}

fn update(new: &mut Value, old: &Value) {
    set_name_label(new);
    new["spec"]["finalizers"] = old["spec"]["finalizers"].clone();
    if new["spec"]["finalizers"].is_null() {
        new["spec"] = json!({});
    }
}

fn begin_delete(new: &mut Value, _now: &str) {
    new["status"]["phase"] = TERMINATING.into();
    if let Some(meta) = new["metadata"].as_object_mut() {
        meta.remove("deletionGracePeriodSeconds");
    }
}

fn has_spec_finalizers(object: &Value) -> bool {
    object["spec"]["finalizers"]
        .as_array()
        .is_some_and(|a| !a.is_empty())
}
