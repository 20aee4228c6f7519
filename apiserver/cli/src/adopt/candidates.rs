//! The objects of a member that may become templates, and why others may not.

use std::collections::BTreeSet;

use client::{Api, ApiResource, ServerResources};
use controller_context::{TemplateFilterOptions, TemplateKey};
use detector::is_created_by_every_cluster;
use karmada_api::well_known_keys::{MANAGED, MANAGED_VALUE, SYSTEM, is_reserved_namespace};
use machinery::{Gvr, Object};
use simulation::SkippedPropagatingFilter;

use crate::object_lists::list_selected;

pub(super) static NAMESPACES: Gvr = Gvr::from_static("", "v1", "namespaces");
/// Objects that the controllers of a cluster create in every namespace, or from others.
const GENERATED_RESOURCES: [(&str, &str); 5] = [
    ("", "endpoints"),
    ("", "events"),
    ("events.k8s.io", "events"),
    ("discovery.k8s.io", "endpointslices"),
    ("coordination.k8s.io", "leases"),
];
const DEFAULT_SERVICE_ACCOUNT: &str = "default";
const TOKEN_SECRET_TYPE: &str = "kubernetes.io/service-account-token";

/// An object of the member, and why it is not adopted, if it is not.
pub(super) struct CandidateObject {
    pub(super) resource: ApiResource,
    pub(super) object: Object,
    pub(super) skip_reason: Option<String>,
}

impl CandidateObject {
    fn new(resource: &ApiResource, object: Object, control: &ServerResources) -> Self {
        let skip_reason = skip_reason(resource, &object, control);
        Self {
            resource: resource.clone(),
            object,
            skip_reason,
        }
    }
}

/// The namespaces of a member whose objects are adopted: one, or all that are no system's.
pub(super) async fn list_namespaces(member: &dyn Api) -> client::Result<Vec<Object>> {
    let namespaces = list_selected(member, &NAMESPACES, "", "").await?;
    let is_adoptable = |namespace: &Object| system_reason(namespace).is_none();
    Ok(namespaces.into_iter().filter(is_adoptable).collect())
}

/// Why a namespace belongs to a system, and not to users.
pub(super) fn system_reason(namespace: &Object) -> Option<String> {
    let name = namespace.name();
    let is_system = name.starts_with("kube-")
        || is_reserved_namespace(name)
        || namespace.meta().label(SYSTEM).is_some();
    is_system.then(|| format!("the namespace {name} belongs to the system of the cluster"))
}

/// The namespaces, and the objects in them, by kind. `scope` is the namespace if there is only
/// one. A kind that cannot be listed is an error: an adoption must not be silently incomplete.
pub(super) async fn list_candidates(
    member: &dyn Api,
    served: &ServerResources,
    control: &ServerResources,
    namespaces: &[Object],
    scope: &str,
) -> client::Result<Vec<CandidateObject>> {
    let names: BTreeSet<&str> = namespaces.iter().map(Object::name).collect();
    let mut candidates = Vec::new();
    let of_namespaces = served.resources.iter().find(|r| r.resource == NAMESPACES);
    if let Some(resource) = of_namespaces {
        let namespaces = namespaces.iter().cloned();
        candidates.extend(namespaces.map(|n| CandidateObject::new(resource, n, control)));
    }
    for resource in adoptable_resources(served) {
        let objects = list_selected(member, &resource.resource, scope, "").await?;
        let objects = objects.into_iter();
        candidates.extend(
            objects
                .filter(|object| names.contains(object.namespace()))
                .map(|object| CandidateObject::new(resource, object, control)),
        );
    }
    Ok(candidates)
}

/// The kinds of objects in namespaces that users create, each in one version.
fn adoptable_resources(served: &ServerResources) -> Vec<&ApiResource> {
    let Ok(filter) = SkippedPropagatingFilter::new(&TemplateFilterOptions::default()) else {
        return Vec::new();
    };
    let mut listed = BTreeSet::new();
    let resources = served.resources.iter().filter(|resource| {
        let Gvr {
            group,
            resource: plural,
            ..
        } = &resource.resource;
        let is_generated = GENERATED_RESOURCES.contains(&(&**group, &**plural));
        resource.namespaced
            && !is_generated
            && ["list", "create", "delete"]
                .iter()
                .all(|verb| resource.allows(verb))
            && filter.allows(resource, "")
    });
    resources
        .filter(|r| listed.insert((r.resource.group.clone(), r.resource.resource.clone())))
        .collect()
}

fn skip_reason(
    resource: &ApiResource,
    object: &Object,
    control: &ServerResources,
) -> Option<String> {
    let meta = object.meta();
    let key = TemplateKey {
        gvr: resource.resource.clone(),
        name: meta.key(),
    };
    if let Some(owner) = meta.controller() {
        return Some(format!("{} {} controls it", owner.kind, owner.name));
    }
    if meta.deleting {
        return Some("it is being deleted".to_owned());
    }
    if meta.label(MANAGED) == Some(MANAGED_VALUE) {
        return Some("a Work carries it already".to_owned());
    }
    if is_created_by_every_cluster(&key) || is_generated(&resource.kind, object) {
        return Some("every cluster creates it for itself".to_owned());
    }
    let is_served = |r: &ApiResource| r.resource == resource.resource && r.kind == resource.kind;
    if !control.resources.iter().any(is_served) {
        return Some(format!(
            "the control plane does not serve {} of {}; promote its CustomResourceDefinition first",
            resource.kind,
            resource.resource.api_version()
        ));
    }
    None
}

/// Whether the controllers of a cluster create the object in every namespace.
fn is_generated(kind: &str, object: &Object) -> bool {
    match kind {
        "ServiceAccount" => object.name() == DEFAULT_SERVICE_ACCOUNT,
        "Secret" => object
            .value()
            .is_ok_and(|secret| secret["type"] == TOKEN_SECRET_TYPE),
        _ => false,
    }
}
