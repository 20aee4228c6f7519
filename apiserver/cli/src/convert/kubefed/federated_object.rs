//! Converts a federated object to a template, a policy and an override policy.

use anyhow::{Context, ensure};
use karmada_api::names;
use karmada_api::well_known_keys::{
    CONFLICT_RESOLUTION, NAMESPACE_GATE, OVERRIDE_RETAINED, RETAIN_REPLICAS, SKIP_AUTO_PROPAGATION,
};
use machinery::Gvk;
use serde_json::{Value, json};

use super::cluster_set::ClusterSet;
use super::inventory::{Inventory, name, namespace, object_text};
use super::replica_preference::ReplicaPreference;
use super::{fields, overrides};
use crate::convert::conversion::{Conversion, Severity};

/// The annotation with which a federated object leaves its copies behind when it is deleted.
const ORPHAN: &str = "kubefed.io/orphan";

pub(super) fn convert(
    object: &Value,
    inventory: &Inventory,
    conversion: &mut Conversion,
) -> anyhow::Result<()> {
    let text = object_text(object);
    let target = inventory.target_kind(object)?;
    let is_namespace = target.group.is_empty() && target.kind == "Namespace";
    let namespace = if is_namespace { "" } else { namespace(object) };
    let preference = match inventory.preference(object) {
        Some(preference) => {
            let checked = ReplicaPreference::new(preference);
            Some(checked.with_context(|| object_text(preference))?)
        }
        None => None,
    };
    let api_version = &object["spec"]["template"]["apiVersion"];
    let api_version = fields::text(api_version, "spec.template.apiVersion")?;
    let selector = Selector {
        target: &target,
        api_version: api_version.map_or_else(|| target.api_version(), str::to_owned),
        namespace,
        name: name(object),
    };
    let mut template = template(object, &selector, &text, conversion)?;
    if let Some(preference) = &preference {
        fields::object(&template["spec"], "spec.template.spec")?;
        template["spec"]["replicas"] = json!(preference.total);
    }
    let rules = overrides::rules(object, &text, preference.is_some(), conversion)?;
    let clusters = clusters(
        object,
        namespace,
        preference.as_ref(),
        inventory,
        conversion,
    )?;
    if let Some(preference) = preference {
        let manifest = preference.into_manifest(&target.kind, &clusters, conversion);
        conversion.policies.push(manifest);
    }
    let propagates = inventory.propagates(object);
    let orphans = orphans(object)?;
    // A namespace without the label goes to every cluster, and its copies go with it.
    let needs_no_policy = is_namespace && clusters.is_all() && !orphans;
    if clusters.is_nowhere() {
        let message = "it goes to no cluster, and its policy says so";
        conversion.report(Severity::Note, &text, "spec.placement", message);
    }
    if !needs_no_policy {
        let policy = policy(&selector, &clusters, orphans);
        conversion.policies.push(policy);
    }
    if needs_no_policy {
        // No policy says that the copies are taken over.
        template["metadata"]["annotations"][CONFLICT_RESOLUTION] = json!("overwrite");
    } else if is_namespace {
        template["metadata"]["labels"][SKIP_AUTO_PROPAGATION] = json!("true");
    }
    if is_namespace && propagates {
        // Its contents go only where it goes itself.
        template["metadata"]["annotations"][NAMESPACE_GATE] = json!("true");
    }
    if !rules.is_empty() {
        let retains = is_retained(&template);
        let policy = override_policy(&selector, &rules, retains);
        conversion.policies.push(policy);
    }
    // Other objects cannot be created before these.
    let is_required = is_namespace || target.kind == "CustomResourceDefinition";
    match is_required {
        true => conversion.prerequisites.push(template),
        false => conversion.templates.push(template),
    }
    Ok(())
}

/// Whether the copies of the object outlive it.
fn orphans(object: &Value) -> anyhow::Result<bool> {
    let annotations = &object["metadata"]["annotations"];
    fields::text_map(annotations, "metadata.annotations")?;
    Ok(annotations[ORPHAN] == "true")
}

/// The object that policies select.
struct Selector<'a> {
    target: &'a Gvk,
    /// The version of the template, if it has one, or of the type configuration.
    api_version: String,
    namespace: &'a str,
    name: &'a str,
}

impl Selector<'_> {
    /// A policy of a kind that selects the object; its name is that of `flotilla promote`.
    fn policy(&self, kind: &str) -> Value {
        let Gvk {
            group,
            version,
            kind: target_kind,
        } = self.target;
        let gvk = format!("{group}/{version}, Kind={target_kind}");
        let mut policy = json!({
            "apiVersion": "policy.karmada.io/v1alpha1",
            "kind": format!("Cluster{kind}"),
            "metadata": {"name": names::policy_name(self.namespace, self.name, &gvk)},
            "spec": {"resourceSelectors": [{
                "apiVersion": self.api_version,
                "kind": target_kind,
                "name": self.name,
            }]},
        });
        if !self.namespace.is_empty() {
            policy["kind"] = json!(kind);
            policy["metadata"]["namespace"] = json!(self.namespace);
        }
        policy
    }
}

/// The object's template, with what KubeFed sets in every copy.
fn template(
    object: &Value,
    selector: &Selector<'_>,
    text: &str,
    conversion: &mut Conversion,
) -> anyhow::Result<Value> {
    let mut template = object["spec"]["template"].clone();
    if template.is_null() {
        template = json!({});
    }
    ensure!(template.is_object(), "spec.template: must be an object");
    fields::object(&template["metadata"], "spec.template.metadata")?;
    let labels = &template["metadata"]["labels"];
    let labels = fields::text_map(labels, "spec.template.metadata.labels")?;
    let mut labels = labels.cloned().unwrap_or_default();
    for field in ["annotations", "finalizers"] {
        if !template["metadata"][field].is_null() {
            let field = format!("spec.template.metadata.{field}");
            let message = "KubeFed puts them into no copy, and they are left out here";
            conversion.report(Severity::Note, text, &field, message);
        }
    }
    if fields::boolean(&object["spec"]["retainReplicas"], "spec.retainReplicas")? {
        if selector.target.kind == "Deployment" {
            labels.insert(RETAIN_REPLICAS.to_owned(), json!("true"));
        } else {
            let message = "only Deployments keep the replicas that a member has set";
            conversion.report(Severity::Loss, text, "spec.retainReplicas", message);
        }
    }
    template["apiVersion"] = json!(selector.api_version);
    template["kind"] = json!(selector.target.kind);
    template["metadata"] = json!({"name": selector.name});
    if !selector.namespace.is_empty() {
        template["metadata"]["namespace"] = json!(selector.namespace);
    }
    if !labels.is_empty() {
        template["metadata"]["labels"] = json!(labels);
    }
    if let Some(fields) = template.as_object_mut() {
        fields.remove("status");
    }
    Ok(template)
}

/// Where the object goes: to the clusters of its placement that its namespace is placed in too. A
/// replica preference that does not intersect replaces the placement. The gate of a namespace that is propagated sees to the latter.
fn clusters(
    object: &Value,
    namespace: &str,
    preference: Option<&ReplicaPreference>,
    inventory: &Inventory,
    conversion: &mut Conversion,
) -> anyhow::Result<ClusterSet> {
    let placement = &object["spec"]["placement"];
    let placement_clusters = ClusterSet::of_placement(placement)?;
    let clusters = match preference {
        None => placement_clusters,
        Some(preference) if preference.intersects => ClusterSet::of_selector(placement)?,
        Some(_) => ClusterSet::all(),
    };
    if namespace.is_empty() {
        return Ok(clusters);
    }
    match inventory.namespace_placement(namespace) {
        // The gate of the namespace decides.
        Some(_) if inventory.propagates_namespaces() => Ok(clusters),
        Some(namespace_clusters) => Ok(clusters.intersect(namespace_clusters)),
        None if inventory.one_namespace => Ok(clusters),
        None => {
            let message = format!(
                "the FederatedNamespace {namespace} is not among the manifests, and KubeFed propagates nothing from a namespace without one; pass it, or a KubeFedConfig with scope Namespaced"
            );
            let text = object_text(object);
            conversion.report(Severity::Loss, &text, "metadata.namespace", &message);
            Ok(ClusterSet::nowhere())
        }
    }
}

/// The policy that places the object. The copies exist already, and are taken over.
fn policy(selector: &Selector<'_>, clusters: &ClusterSet, orphans: bool) -> Value {
    let mut policy = selector.policy("PropagationPolicy");
    let spec = &mut policy["spec"];
    spec["placement"] = json!({"clusterAffinity": clusters.affinity()});
    if selector.target.kind == "Namespace" {
        // A namespace that is evicted takes everything in it along.
        spec["placement"]["clusterTolerations"] = json!([{"operator": "Exists"}]);
    }
    spec["conflictResolution"] = json!("Overwrite");
    if orphans {
        spec["preserveResourcesOnDeletion"] = json!(true);
    }
    policy
}

/// Whether members retain fields of the object that an override may set.
fn is_retained(template: &Value) -> bool {
    let is_service = template["kind"] == "Service" && template["apiVersion"] == "v1";
    is_service || template["metadata"]["labels"][RETAIN_REPLICAS] == "true"
}

/// `retains`: members retain fields of the object, over which KubeFed's overrides win.
fn override_policy(selector: &Selector<'_>, rules: &[Value], retains: bool) -> Value {
    let mut policy = selector.policy("OverridePolicy");
    if retains {
        policy["metadata"]["annotations"] = json!({OVERRIDE_RETAINED: "true"});
    }
    policy["spec"]["overrideRules"] = json!(rules);
    policy
}
