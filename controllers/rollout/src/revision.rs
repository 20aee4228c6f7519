//! The content of a revision: what goes to clusters apart from replicas. It is kept in a
//! ControllerRevision that the template owns, under a name with the hash of the content.

use karmada_api::names::binding_reference_key;
use karmada_api::rollout::REVISION_OF;
use karmada_api::well_known_keys::{
    BINDING_NAME, CLUSTER_POLICY_ID, CLUSTER_POLICY_NAME, POLICY_ID, POLICY_NAME, POLICY_NAMESPACE,
    TEMPLATE_GENERATION,
};
use machinery::{Gvk, Gvr, Object};
use overrides::CandidateOverridePolicies;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::hashed_name::hashed_name;

pub static CONTROLLER_REVISIONS: Gvr = Gvr::from_static("apps", "v1", "controllerrevisions");

/// Follows from the rest of the template, and has its replicas.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Metadata that the API server sets, or that is never propagated.
const SERVER_METADATA: [&str; 10] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];
/// Who claims the template is a matter of its placement.
const CLAIMS: [(&str, &str); 5] = [
    ("labels", POLICY_ID),
    ("labels", CLUSTER_POLICY_ID),
    ("annotations", POLICY_NAMESPACE),
    ("annotations", POLICY_NAME),
    ("annotations", CLUSTER_POLICY_NAME),
];
/// No template has as many revisions: whoever writes a greater number into one of them takes no
/// number from those that follow.
const MAX_REVISION_NUMBER: i64 = 1_000_000_000_000;
/// The characters of the binding's name in the name of a revision, which has at most 253.
const MAX_NAME_PREFIX: usize = 220;
/// Half of SHA-256: who deletes a revision cannot put another one under its name.
const HASH_BYTES: usize = 16;

/// A revision of a template, as Works are made from it.
pub struct TemplateRevision {
    /// The template as of this revision.
    pub template: Object,
    /// The override policies as of this revision.
    pub overrides: CandidateOverridePolicies,
}

/// Whether a label or annotation of a template is no part of its revisions.
pub fn is_outside_revisions(key: &str) -> bool {
    key == LAST_APPLIED || CLAIMS.iter().any(|(_, claim)| *claim == key)
}

/// The content of a revision. `tree`: the template with `apiVersion` and `kind`, whose replicas are
/// the same whatever the template's are.
pub fn revision_content(tree: Value, overrides: Vec<Value>) -> Value {
    json!({"template": revision_template(tree), "overridePolicies": overrides})
}

/// A template as its revisions have it: without what the server writes, and without the labels and
/// annotations that are no part of them.
fn revision_template(mut tree: Value) -> Value {
    if let Some(fields) = tree.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = tree["metadata"].as_object_mut() {
        metadata.retain(|field, _| !SERVER_METADATA.contains(&field.as_str()));
        for (map, key) in CLAIMS.into_iter().chain([("annotations", LAST_APPLIED)]) {
            if let Some(Value::Object(entries)) = metadata.get_mut(map) {
                entries.remove(key);
            }
        }
        for map in ["labels", "annotations"] {
            if metadata
                .get(map)
                .and_then(Value::as_object)
                .is_some_and(Map::is_empty)
            {
                metadata.remove(map);
            }
        }
    }
    tree
}

/// The name of the revision of a binding with a content.
pub(crate) fn revision_name(binding: &str, content: &Value) -> String {
    let hash = Sha256::digest(content.to_string().as_bytes());
    hashed_name(binding, MAX_NAME_PREFIX, &hash[..HASH_BYTES])
}

/// A new ControllerRevision. `owner` is the template.
pub(crate) fn controller_revision(
    binding: &Object,
    owner: &Value,
    generation: i64,
    number: i64,
    content: Value,
) -> Value {
    let (namespace, name) = (binding.namespace(), binding.name());
    json!({
        "apiVersion": CONTROLLER_REVISIONS.api_version(), "kind": "ControllerRevision",
        "metadata": {
            "name": revision_name(name, &content), "namespace": namespace,
            "labels": {REVISION_OF: binding_reference_key(namespace, name)},
            "annotations": {BINDING_NAME: name, TEMPLATE_GENERATION: generation.to_string()},
            "ownerReferences": [owner],
        },
        "revision": number,
        "data": content,
    })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NumberedRevision {
    revision: i64,
}

/// The number of a ControllerRevision; 0, as of the oldest one, if it is none that this controller
/// gives.
pub fn revision_number(revision: &Object) -> i64 {
    let view = machinery::json::from_slice::<NumberedRevision>(&revision.bytes());
    let number = view.unwrap_or_default().revision;
    match (1..=MAX_REVISION_NUMBER).contains(&number) {
        true => number,
        false => 0,
    }
}

/// The number of the revision that follows the one with a number. The greatest one follows itself.
pub(crate) fn next_revision_number(number: i64) -> i64 {
    number.saturating_add(1).min(MAX_REVISION_NUMBER)
}

/// The content of a ControllerRevision, which must be the one that its name stands for.
pub fn verified_content(binding: &str, revision: &Object) -> Result<Value, String> {
    let name = revision.name();
    let value = revision.value();
    let mut value = value.map_err(|e| format!("controllerrevision {name}: {e}"))?;
    let content = value["data"].take();
    if revision_name(binding, &content) == name {
        Ok(content)
    } else {
        Err(format!(
            "controllerrevision {name}: its data is not the one that its name stands for"
        ))
    }
}

/// Whether the content of a revision is about a template: who may write ControllerRevisions and
/// statuses of Rollouts in a namespace must not get other objects into members.
fn is_content_of(tree: &Value, kind: &Gvk, template: &Object) -> bool {
    let text = |path: &str| tree.pointer(path).and_then(Value::as_str).unwrap_or("");
    let api_version = text("/apiVersion");
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let is_map = |path: &str| tree.pointer(path).is_none_or(Value::is_object);
    (group, text("/kind")) == (&*kind.group, &*kind.kind)
        && text("/metadata/name") == template.name()
        && text("/metadata/namespace") == template.namespace()
        && is_map("/metadata/labels")
        && is_map("/metadata/annotations")
}

/// Reads a ControllerRevision, whose content must be that of its name. `current` is the template
/// as it is now, of a kind; `generation` the one that Works name, by default that of the revision.
pub(crate) fn read_revision(
    binding: &str,
    revision: &Object,
    (kind, current): (&Gvk, &Object),
    generation: Option<i64>,
) -> Result<TemplateRevision, String> {
    let name = revision.name().to_owned();
    let broken = |detail: String| format!("controllerrevision {name}: {detail}");
    let content = verified_content(binding, revision)?;
    if !is_content_of(&content["template"], kind, current) {
        return Err(broken("it is a revision of another template".into()));
    }
    let (mut tree, policies) = (content["template"].clone(), &content["overridePolicies"]);
    let own_generation = revision.annotation(TEMPLATE_GENERATION);
    let own_generation = own_generation.and_then(|text| text.parse().ok());
    tree["metadata"]["uid"] = current.uid().into();
    tree["metadata"]["generation"] = generation.or(own_generation).unwrap_or(0).into();
    let now = current.value().map_err(|e| broken(e.to_string()))?;
    for (map, key) in CLAIMS {
        if let Some(claim) = now["metadata"][map].get(key) {
            tree["metadata"][map][key] = claim.clone();
        }
    }
    let policies = policies
        .as_array()
        .into_iter()
        .flatten()
        .map(Object::from_value);
    let policies: Vec<Object> = policies
        .collect::<Result<_, _>>()
        .map_err(|e| broken(e.to_string()))?;
    let template = Object::from_value(&tree).map_err(|e| broken(e.to_string()))?;
    Ok(TemplateRevision {
        template,
        overrides: CandidateOverridePolicies::of_objects(&policies),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web(more: Value) -> Value {
        let mut web = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 3,
                "labels": {"app": "web", POLICY_ID: "id"}, "annotations": {LAST_APPLIED: "{}"}},
            "spec": {"replicas": 0, "template": {"spec": {"containers": [{"image": "web:1"}]}}}, "status": {"replicas": 2}});
        web.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        web
    }

    // proves: ROL-content, ROL-revision-name
    #[test]
    fn the_name_follows_the_content() {
        let name = |tree: Value, overrides: Vec<Value>| {
            revision_name("web-deployment", &revision_content(tree, overrides))
        };
        let first = name(web(json!({})), vec![]);
        assert!(
            first.starts_with("web-deployment-") && first.len() == 15 + 32,
            "{first}"
        );
        assert_eq!(name(web(json!({"status": {}})), vec![]), first);
        let mut claimed = web(json!({}));
        claimed["metadata"]["labels"][POLICY_ID] = "other".into();
        claimed["metadata"]["annotations"][LAST_APPLIED] = "{\"spec\":{}}".into();
        claimed["metadata"]["generation"] = 4.into();
        claimed["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        claimed["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        assert_eq!(name(claimed, vec![]), first);
        assert_ne!(name(web(json!({"spec": {"replicas": 0}})), vec![]), first);
        assert_ne!(name(web(json!({})), vec![json!({"spec": {}})]), first);
        let long = revision_name(&"a".repeat(253), &json!({}));
        assert!(
            machinery::names::validate_dns1123_subdomain(&long).is_ok(),
            "{long}"
        );
    }

    // proves: ROL-revision-number
    #[test]
    fn numbers_that_no_revision_gets_count_as_none() {
        for (number, expected, next) in [
            (json!(7), 7, 8),
            (json!(i64::MAX), 0, 1),
            (json!(i64::MIN), 0, 1),
            (json!(MAX_REVISION_NUMBER + 1), 0, 1),
            (
                json!(MAX_REVISION_NUMBER),
                MAX_REVISION_NUMBER,
                MAX_REVISION_NUMBER,
            ),
            (json!(0), 0, 1),
            (json!("7"), 0, 1),
            (json!(null), 0, 1),
        ] {
            let revision = json!({"metadata": {"name": "r", "namespace": "n"}, "revision": number});
            let revision = Object::from_value(&revision).unwrap();
            let read = revision_number(&revision);
            assert_eq!(
                (read, next_revision_number(read)),
                (expected, next),
                "{number}"
            );
        }
    }

    // proves: ROL-revision-other
    #[test]
    fn a_revision_of_another_template_is_not_read() {
        let binding = json!({"metadata": {"name": "web-deployment", "namespace": "n"}});
        let binding = Object::from_value(&binding).unwrap();
        let current = Object::from_value(&web(json!({}))).unwrap();
        let kind = Gvk::from_static("apps", "v1", "Deployment");
        let metadata = |name: &str, namespace: &str| json!({"name": name, "namespace": namespace});
        for (change, is_read) in [
            (json!({}), true),
            // The version in which a template is written may change.
            (json!({"apiVersion": "apps/v1beta2"}), true),
            (json!({"kind": "DaemonSet"}), false),
            (
                json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}),
                false,
            ),
            (json!({"apiVersion": "v1"}), false),
            (json!({"metadata": metadata("api", "n")}), false),
            (json!({"metadata": metadata("web", "kube-system")}), false),
            (
                json!({"metadata": {"name": "web", "namespace": "n", "labels": []}}),
                false,
            ),
            (
                json!({"metadata": {"name": "web", "namespace": "n", "annotations": 1}}),
                false,
            ),
            (json!({"metadata": "text"}), false),
        ] {
            let content = revision_content(web(change.clone()), vec![]);
            let stored = controller_revision(&binding, &json!({"uid": "u"}), 3, 1, content);
            let stored = Object::from_value(&stored).unwrap();
            let read = read_revision("web-deployment", &stored, (&kind, &current), None);
            assert_eq!(read.is_ok(), is_read, "{change}");
        }
    }

    // proves: ROL-revision-forged
    #[test]
    fn a_revision_is_read_back_unless_it_was_replaced() {
        let content = revision_content(
            web(json!({})),
            vec![json!({"metadata": {"name": "o"}, "spec": {}})],
        );
        let binding = json!({"metadata": {"name": "web-deployment", "namespace": "n"}});
        let binding = Object::from_value(&binding).unwrap();
        let mut stored = controller_revision(&binding, &json!({"uid": "u"}), 3, 1, content);
        let current = Object::from_value(&web(json!({}))).unwrap();
        let read = |stored: &Value, generation: Option<i64>| {
            let stored = Object::from_value(stored).unwrap();
            let kind = Gvk::from_static("apps", "v1", "Deployment");
            read_revision("web-deployment", &stored, (&kind, &current), generation)
        };
        for (generation, expected) in [(None, 3), (Some(5), 5)] {
            let revision = read(&stored, generation).unwrap();
            let meta = revision.template.meta();
            assert_eq!((&*meta.uid, meta.generation), ("u", expected));
            assert_eq!(meta.label(POLICY_ID), Some("id"));
        }
        stored["data"]["template"]["spec"]["replicas"] = 9.into();
        let error = read(&stored, None).err().unwrap();
        assert!(
            error.contains("not the one that its name stands for"),
            "{error}"
        );
    }
}
