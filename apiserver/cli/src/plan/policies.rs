//! Reads policies and changed templates from files.

use std::path::PathBuf;

use anyhow::{Context, bail};
use karmada_api::well_known_keys::{CLUSTER_POLICY_ID, POLICY_ID};
use machinery::Object;
use serde_json::{Value, json};

use crate::manifest_files;

const POLICY_VERSION: &str = "policy.karmada.io/v1alpha1";
const POLICY_KIND: &str = "PropagationPolicy";
const CLUSTER_POLICY_KIND: &str = "ClusterPropagationPolicy";
/// The labels and annotations of policies that the server and tools write.
const SERVER_METADATA: [(&str, &[&str]); 2] = [
    ("labels", &[POLICY_ID, CLUSTER_POLICY_ID]),
    (
        "annotations",
        &["kubectl.kubernetes.io/last-applied-configuration"],
    ),
];

/// The namespace of policies and templates without one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DefaultPolicyNamespace<'a> {
    /// The namespace of the flag; no policy may have another one.
    pub(crate) flag: Option<&'a str>,
    pub(crate) default: &'a str,
}

/// The documents in the files of a plan.
#[derive(Default)]
pub(crate) struct PlannedDocuments {
    pub(crate) policies: Vec<Value>,
    pub(crate) rollout_policies: Vec<Value>,
    pub(crate) templates: Vec<Value>,
}

pub(crate) fn read_documents(files: &[PathBuf]) -> anyhow::Result<PlannedDocuments> {
    let mut all = PlannedDocuments::default();
    for file in files {
        let documents = manifest_files::read_documents(file)?;
        all.add(documents)
            .with_context(|| file.display().to_string())?;
    }
    Ok(all)
}

impl PlannedDocuments {
    /// Adds documents, of which there is one at least; refuses what cannot be planned.
    pub(crate) fn add(&mut self, documents: Vec<Value>) -> anyhow::Result<()> {
        for document in check_documents(documents)? {
            match is_template(&document) {
                true => self.templates.push(document),
                false if is_rollout_policy(&document) => self.rollout_policies.push(document),
                false => self.policies.push(document),
            }
        }
        Ok(())
    }
}

/// Reads the one policy of a text in YAML or JSON.
pub fn parse_policy(text: &str) -> anyhow::Result<Value> {
    let mut documents = PlannedDocuments::default();
    documents.add(manifest_files::parse_documents(text)?)?;
    let has_others = !documents.rollout_policies.is_empty() || !documents.templates.is_empty();
    match <[Value; 1]>::try_from(documents.policies) {
        Ok([policy]) if !has_others => Ok(policy),
        _ => bail!("one policy is planned at a time, and nothing else"),
    }
}

/// A propagation policy in YAML, as [`policy_document`] has it.
pub fn policy_manifest(policy: &Object) -> anyhow::Result<String> {
    Ok(serde_saphyr::to_string(&policy_document(policy)?)?)
}

/// A policy of any kind in YAML, as its owner would write it.
pub fn manifest_of_kind(policy: &Object, api_version: &str, kind: &str) -> anyhow::Result<String> {
    let document = owner_document(policy, api_version, kind)?;
    Ok(serde_saphyr::to_string(&document)?)
}

/// A propagation policy as its owner would write it.
pub fn policy_document(policy: &Object) -> anyhow::Result<Value> {
    owner_document(policy, POLICY_VERSION, policy_kind(policy.namespace()))
}

/// A policy without what servers and tools keep in it.
fn owner_document(policy: &Object, api_version: &str, kind: &str) -> anyhow::Result<Value> {
    let mut value = policy.value()?;
    let metadata = &value["metadata"];
    let mut own = json!({});
    for field in ["name", "namespace", "labels", "annotations"] {
        if let Some(field_value) = metadata.get(field) {
            own[field] = field_value.clone();
        }
    }
    for (field, _) in SERVER_METADATA {
        let Some(Value::Object(entries)) = own.get_mut(field) else {
            continue;
        };
        entries.retain(|key, _| !is_server_metadata(field, key));
        if entries.is_empty()
            && let Some(own) = own.as_object_mut()
        {
            own.remove(field);
        }
    }
    let spec = value["spec"].take();
    Ok(json!({"apiVersion": api_version, "kind": kind, "metadata": own, "spec": spec}))
}

/// Whether a key of the labels or annotations of a policy is one that the server or a tool keeps there.
pub(super) fn is_server_metadata(field: &str, key: &str) -> bool {
    let mut fields = SERVER_METADATA.iter();
    fields.any(|(other, keys)| *other == field && keys.contains(&key))
}

/// The kind of the policies of a namespace; of cluster policies for an empty one.
pub fn policy_kind(namespace: &str) -> &'static str {
    match namespace {
        "" => CLUSTER_POLICY_KIND,
        _ => POLICY_KIND,
    }
}

fn check_documents(documents: Vec<Value>) -> anyhow::Result<Vec<Value>> {
    if documents.is_empty() {
        bail!("the file has no policy and no template");
    }
    for document in &documents {
        check_document(document)?;
    }
    Ok(documents)
}

/// Whether an object may be a template: those of the control plane's own groups are none.
fn is_template(document: &Value) -> bool {
    let version = document["apiVersion"].as_str().unwrap_or_default();
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let mut own = [".karmada.io", ".flotilla.io"].into_iter();
    !version.is_empty() && !own.any(|suffix| group.ends_with(suffix))
}

fn is_rollout_policy(document: &Value) -> bool {
    let kind = document["kind"].as_str().unwrap_or_default();
    document["apiVersion"] == "rollout.flotilla.io/v1alpha1"
        && matches!(kind, "RolloutPolicy" | "ClusterRolloutPolicy")
}

fn check_document(policy: &Value) -> anyhow::Result<()> {
    let text = |at: &str| policy.pointer(at).and_then(Value::as_str).unwrap_or("");
    let (version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    let is_policy = matches!(kind, POLICY_KIND | CLUSTER_POLICY_KIND) && version == POLICY_VERSION;
    if !is_template(policy) && !is_policy && !is_rollout_policy(policy) {
        bail!(
            "{kind:?} of {version:?} is no policy that moves templates or stages their changes; only PropagationPolicies and ClusterPropagationPolicies of policy.karmada.io/v1alpha1, RolloutPolicies and ClusterRolloutPolicies of rollout.flotilla.io/v1alpha1, and templates, are supported"
        );
    }
    if name.is_empty() {
        bail!("a {kind} has no metadata.name");
    }
    Ok(())
}

/// Whether the policy is cluster-scoped.
pub(crate) fn is_cluster_scoped(policy: &Value) -> bool {
    [CLUSTER_POLICY_KIND, "ClusterRolloutPolicy"]
        .iter()
        .any(|kind| policy["kind"] == *kind)
}

impl DefaultPolicyNamespace<'_> {
    /// Sets the namespace of a policy that has none.
    pub(crate) fn set_namespace(&self, policy: &mut Value) -> anyhow::Result<()> {
        if is_cluster_scoped(policy) {
            return Ok(());
        }
        let metadata = &mut policy["metadata"];
        let own = metadata["namespace"].as_str().filter(|own| !own.is_empty());
        match (own, self.flag) {
            (Some(own), Some(flag)) if own != flag => bail!(
                "the namespace from the object {} ({own:?}) does not match the namespace {flag:?}; you must pass '--namespace={own}' to plan it",
                metadata["name"]
            ),
            (Some(_), _) => {}
            (None, flag) => metadata["namespace"] = flag.unwrap_or(self.default).into(),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn policy(kind: &str, name: &str) -> String {
        format!(
            "apiVersion: policy.karmada.io/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\n"
        )
    }

    #[test]
    fn only_policies_are_read_from_files() {
        let (local, wide) = (
            policy("PropagationPolicy", "a"),
            policy("ClusterPropagationPolicy", "b"),
        );
        let list = json!({"kind": "List", "items": [{"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": "c"}}]});
        let names = |text: &str| -> Result<Vec<String>, String> {
            let policies = manifest_files::parse_documents(text)
                .and_then(check_documents)
                .map_err(|e| e.to_string())?;
            Ok(policies
                .iter()
                .map(|p| p["metadata"]["name"].to_string())
                .collect())
        };
        assert_eq!(
            names(&format!("{local}---\n{wide}---\n")).unwrap(),
            ["\"a\"", "\"b\""]
        );
        assert_eq!(names(&list.to_string()).unwrap(), ["\"c\""]);
        for (text, expected) in [
            (
                policy("RolloutPolicy", "r"),
                "no policy that moves templates",
            ),
            (
                policy("OverridePolicy", "o"),
                "no policy that moves templates",
            ),
            (policy("PropagationPolicy", ""), "no metadata.name"),
            (String::new(), "the file has no policy and no template"),
        ] {
            let error = names(&text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn documents_are_sorted_by_what_they_are() {
        let document = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}});
        let mut documents = PlannedDocuments::default();
        let added = documents.add(vec![
            document("policy.karmada.io/v1alpha1", "PropagationPolicy"),
            document("rollout.flotilla.io/v1alpha1", "RolloutPolicy"),
            document("rollout.flotilla.io/v1alpha1", "ClusterRolloutPolicy"),
            document("apps/v1", "Deployment"),
        ]);
        added.unwrap();
        let PlannedDocuments {
            policies,
            rollout_policies,
            templates,
        } = documents;
        let kinds = [policies, rollout_policies, templates].map(|documents| documents.len());
        assert_eq!(kinds, [1, 2, 1]);
        let rollout = document("rollout.flotilla.io/v1alpha1", "Rollout");
        assert!(check_document(&rollout).is_err());
    }

    #[test]
    fn the_document_of_a_policy_is_what_its_owner_wrote() {
        let applied = "kubectl.kubernetes.io/last-applied-configuration";
        let policy = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7",
            "labels": {POLICY_ID: "p", "team": "a"}, "annotations": {applied: "{}"}, "managedFields": [{}]},
            "spec": {"priority": 1}, "status": {}});
        let policy = Object::from_value(&policy).unwrap();
        let expected = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": "web", "namespace": "shop", "labels": {"team": "a"}}, "spec": {"priority": 1}});
        assert_eq!(policy_document(&policy).unwrap(), expected);
        let manifest = policy_manifest(&policy).unwrap();
        assert_eq!(parse_policy(&manifest).unwrap(), expected);
    }

    #[test]
    fn a_policy_without_a_namespace_gets_the_flags_or_the_default() {
        let settled = |own: &str, flag: Option<&str>| {
            let mut policy = json!({"kind": "PropagationPolicy", "metadata": {"name": "a"}});
            if !own.is_empty() {
                policy["metadata"]["namespace"] = own.into();
            }
            let default = DefaultPolicyNamespace { flag, default: "d" };
            default.set_namespace(&mut policy).ok()?;
            policy["metadata"]["namespace"].as_str().map(str::to_owned)
        };
        assert_eq!(settled("", None).as_deref(), Some("d"));
        assert_eq!(settled("", Some("n")).as_deref(), Some("n"));
        assert_eq!(settled("n", Some("n")).as_deref(), Some("n"));
        assert_eq!(settled("m", Some("n")), None);
    }
}
