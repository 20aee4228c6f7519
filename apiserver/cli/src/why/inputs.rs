//! Collects the inputs of a report through the API, with the user's own rights.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, bail};
use client::{Api, ApiResource, ListOptions, ResourcePath};
use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS, CLUSTERS, DECISION_SUBRESOURCE, WORKS};
use karmada_api::rollout::ROLLOUTS;
use karmada_api::well_known_keys::{BINDING_ID, CLUSTER_BINDING_ID};
use karmada_api::{Cluster, ResourceBinding, Work, names};
use machinery::{Gvr, Object};
use serde_json::Value;

use super::preference;
use crate::namespace_gate::read_gate;
use crate::object_lists::{ListedPolicyNamespaces, list_all, list_overrides, list_policies};
use crate::resource_args;
use crate::type_configs::{DisablingConfigs, find_disabling_configs};

static EVENTS: Gvr = Gvr::from_static("", "v1", "events");
/// The reason of the detector's events about templates.
const FAILURE_REASON: &str = "ApplyPolicyFailed";
/// The kind that goes to every cluster without a policy.
const NAMESPACE_KIND: &str = "Namespace";

/// A template with its policies, binding, decision and Works.
pub struct WhyInputs {
    pub api_resource: ApiResource,
    pub template: Object,
    pub policies: Vec<Object>,
    pub overrides: Vec<Object>,
    pub binding: Option<(Object, Arc<ResourceBinding>)>,
    /// The last event that reports why a policy was not applied to the template.
    pub last_failure: Option<String>,
    /// The document of the binding's subresource `decision`, or why it cannot be read.
    pub decision: Option<Result<Value, String>>,
    pub clusters: BTreeMap<String, (Object, Arc<Cluster>)>,
    /// The Works of the binding, or of a Namespace without one, by cluster.
    pub works: BTreeMap<String, (Object, Arc<Work>)>,
    /// The Rollout of a template whose changes are staged.
    pub rollout: Option<Object>,
    /// The clusters to which the namespace restricts the template, if it does.
    pub namespace_gate: Option<Vec<String>>,
    /// The FederatedTypeConfig that switches something off for the kind.
    pub(crate) disabled_by: DisablingConfigs,
    /// Reasons why the ReplicaSchedulingPreference has no effect.
    pub preference_remarks: Vec<String>,
}

pub async fn collect_inputs(
    api: &dyn Api,
    typed: &str,
    namespace: &str,
    name: &str,
) -> anyhow::Result<WhyInputs> {
    let discovered = api.discover().await?.resources;
    let api_resource = resource_args::find_resource(&discovered, typed)?;
    let (kind, template) = find_template(api, &discovered, api_resource, namespace, name).await?;
    let namespace = template.namespace();
    let (resource, id) = match namespace {
        "" => (&CLUSTER_BINDINGS, CLUSTER_BINDING_ID),
        _ => (&BINDINGS, BINDING_ID),
    };
    if discovered.iter().all(|served| served.resource != *resource) {
        bail!(
            "the server does not serve {} yet: one that was just installed behind a kube-apiserver is \
            reached through it within half a minute",
            resource.group_resource()
        );
    }
    let at = ResourcePath::object(resource, namespace, "");
    let bound = names::binding_name(&kind.kind, template.name());
    let at = ResourcePath { name: &bound, ..at };
    let binding = match api.get(at).await {
        Ok(object) => {
            let view = object.decode::<ResourceBinding>()?;
            Some((object, view))
        }
        Err(e) if e.is_not_found() => None,
        Err(e) => return Err(e).context("the binding cannot be read"),
    };
    let decision = match &binding {
        Some(_) => Some(match api.get(at.subresource(DECISION_SUBRESOURCE)).await {
            Ok(document) => Ok(document.value()?),
            Err(e) => Err(e.to_string()),
        }),
        None => None,
    };
    let works = match &binding {
        Some((object, _)) => match object.meta().label(id) {
            Some(value) => list_works(api, Some(&format!("{id}={value}")), None).await?,
            None => BTreeMap::new(),
        },
        None if kind.kind == NAMESPACE_KIND => {
            let name = names::work_name(NAMESPACE_KIND, template.name(), "");
            list_works(api, None, Some(&format!("metadata.name={name}"))).await?
        }
        None => BTreeMap::new(),
    };
    let clusters = list_clusters(api).await?;
    let rollout = match namespace {
        "" => None,
        namespace => read_rollout(api, namespace, &bound, &template).await,
    };
    Ok(WhyInputs {
        preference_remarks: preference::read_remarks(api, &template, &kind.kind, &clusters).await,
        namespace_gate: read_gate(api, namespace).await?,
        disabled_by: find_disabling_configs(api, &kind).await,
        last_failure: find_last_failure(api, &kind, &template).await,
        policies: list_policies(api, ListedPolicyNamespaces::for_namespace(namespace)).await?,
        overrides: list_overrides(api, ListedPolicyNamespaces::for_namespace(namespace)).await?,
        clusters,
        rollout,
        api_resource: kind,
        template,
        binding,
        decision,
        works,
    })
}

/// The Rollout of a template; none for users who may not read it.
async fn read_rollout(
    api: &dyn Api,
    namespace: &str,
    name: &str,
    template: &Object,
) -> Option<Object> {
    let rollout = api.get(ResourcePath::object(&ROLLOUTS, namespace, name));
    let rollout = rollout.await.ok()?;
    let owner = rollout.meta().controller()?;
    (*owner.uid == *template.uid()).then_some(rollout)
}

/// The template of the argument, which is the template itself or its binding.
async fn find_template(
    api: &dyn Api,
    discovered: &[ApiResource],
    resource: &ApiResource,
    namespace: &str,
    name: &str,
) -> anyhow::Result<(ApiResource, Object)> {
    let read = async |kind: &ApiResource, namespace: &str, name: &str| {
        let namespace = if kind.namespaced { namespace } else { "" };
        api.get(ResourcePath::object(&kind.resource, namespace, name))
            .await
    };
    let object = read(resource, namespace, name).await?;
    if ![&BINDINGS, &CLUSTER_BINDINGS].contains(&&resource.resource) {
        return Ok((resource.clone(), object));
    }
    let of = &object.decode::<ResourceBinding>()?.spec.resource;
    let is_it = |r: &&ApiResource| r.kind == of.kind && r.resource.api_version() == of.api_version;
    let kind = discovered.iter().find(is_it).with_context(|| {
        format!(
            "the server does not serve {} of {}",
            of.kind, of.api_version
        )
    })?;
    let template = read(kind, &of.namespace, &of.name).await;
    let template = template.context("the template of the binding cannot be read")?;
    Ok((kind.clone(), template))
}

/// The message of the newest event that reports why a policy was not applied to the template; none for
/// users who may not list events.
async fn find_last_failure(api: &dyn Api, kind: &ApiResource, template: &Object) -> Option<String> {
    let options = ListOptions {
        field_selector: format!(
            "involvedObject.kind={},involvedObject.name={},reason={FAILURE_REASON}",
            kind.kind,
            template.name()
        ),
        ..ListOptions::default()
    };
    // The events of what has no namespace are in `default`.
    let namespace = match template.namespace() {
        "" => "default",
        namespace => namespace,
    };
    let events = api
        .list(ResourcePath::collection(&EVENTS, namespace), &options)
        .await
        .ok()?
        .items;
    let events = events.iter().filter_map(|event| event.value().ok());
    let of_template = events.filter(|event| event["involvedObject"]["uid"] == template.uid());
    let last = of_template.max_by_key(|event| text(&event["lastTimestamp"]))?;
    Some(text(&last["message"]))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// All clusters, by name; one that cannot be parsed is left out, as in the scheduler.
async fn list_clusters(api: &dyn Api) -> anyhow::Result<BTreeMap<String, (Object, Arc<Cluster>)>> {
    let all = list_all(api, &CLUSTERS, "").await?.into_iter();
    let view = |o: Object| {
        let view = o.decode::<Cluster>().ok()?;
        Some((o.name().to_owned(), (o, view)))
    };
    Ok(all.filter_map(view).collect())
}

/// The Works that a label or a field selects, by cluster.
async fn list_works(
    api: &dyn Api,
    labels: Option<&str>,
    fields: Option<&str>,
) -> anyhow::Result<BTreeMap<String, (Object, Arc<Work>)>> {
    let options = ListOptions {
        label_selector: labels.unwrap_or_default().to_owned(),
        field_selector: fields.unwrap_or_default().to_owned(),
        ..ListOptions::default()
    };
    let list = api
        .list(ResourcePath::collection(&WORKS, ""), &options)
        .await;
    let list = list.context("works cannot be listed")?;
    let works = list.items.into_iter().filter_map(|object| {
        let cluster = names::cluster_of_execution_space(object.namespace())?.to_owned();
        let view = object.decode::<Work>().ok()?;
        Some((cluster, (object, view)))
    });
    Ok(works.collect())
}

#[cfg(test)]
mod tests {
    use client_fake::FakeApi;

    use super::*;

    // proves: CLI-why-unserved
    #[tokio::test]
    async fn bindings_that_are_not_served_are_no_missing_binding() {
        let api = FakeApi::new();
        api.add_resource(ApiResource {
            resource: Gvr::new("", "v1", "configmaps"),
            kind: "ConfigMap".into(),
            namespaced: true,
            verbs: ["get".to_owned()].into(),
            subresources: vec![],
            categories: vec![],
            short_names: vec![],
        });
        let map = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "n", "name": "settings"}});
        api.seed(&Gvr::new("", "v1", "configmaps"), map);
        let Err(error) = collect_inputs(&*api, "configmap", "n", "settings").await else {
            panic!("there are no bindings");
        };
        let text = error.to_string();
        assert!(
            text.contains("does not serve resourcebindings.work.karmada.io"),
            "{text}"
        );
    }
}
