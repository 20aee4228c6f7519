//! The APIServices of the group versions that this server serves itself, computed from the
//! resource table: all of them are local and available (kube-aggregator's
//! `autoregister_controller.go`). Others are not served.

use async_trait::async_trait;
use machinery::{Gvr, LabelSelector, Object, Status};
use serde_json::json;

use crate::computed_resources::{
    ComputedListRequest, ComputedObjects, ComputedResourceProvider, RegistryReader,
};
use crate::resource_table::{ApiGroupInfo, DEFAULT_GROUP_PRIORITY, ResourceTable, group_priority};

pub(crate) static API_SERVICES: Gvr =
    Gvr::from_static("apiregistration.k8s.io", "v1", "apiservices");
const CUSTOM_VERSION_PRIORITY: usize = 100;
/// The priority of the oldest version of a built-in group, and the distance to the next.
const BUILT_IN_VERSION_PRIORITY: usize = 15;

/// Provides the APIServices of the registry's resource table.
pub(crate) struct LocalApiServices;

#[async_trait]
impl ComputedResourceProvider for LocalApiServices {
    async fn list(
        &self,
        registry: &dyn RegistryReader,
        request: &ComputedListRequest<'_>,
    ) -> Result<ComputedObjects, Status> {
        let labels = LabelSelector::parse(request.label_selector).map_err(Status::bad_request)?;
        let mut services = local_api_services(&registry.resource_table())?;
        services.retain(|service| labels.matches(|key| service.meta().label(key)));
        Ok(services.into())
    }
}

/// The APIServices, by name.
fn local_api_services(table: &ResourceTable) -> Result<Vec<Object>, Status> {
    let is_local = |group: &&ApiGroupInfo| *group.name != *API_SERVICES.group;
    let groups = table.groups().iter().filter(is_local);
    let services = groups.flat_map(|group| {
        let versions = group.versions.iter().rev().enumerate();
        versions.map(|(age, version)| api_service(group, &version.version, age))
    });
    let mut services = services.collect::<Result<Vec<_>, _>>()?;
    services.sort_by(|a, b| a.name().cmp(b.name()));
    Ok(services)
}

/// The APIService of a version; `age` counts the older ones.
fn api_service(group: &ApiGroupInfo, version: &str, age: usize) -> Result<Object, Status> {
    let name = &group.name;
    let group_priority = group_priority(name);
    let is_built_in = group_priority != DEFAULT_GROUP_PRIORITY;
    let version_priority = match (name.as_str(), is_built_in) {
        ("", _) => 1,
        (_, true) => BUILT_IN_VERSION_PRIORITY * (age + 1),
        (_, false) => CUSTOM_VERSION_PRIORITY,
    };
    let managed = if is_built_in { "onstart" } else { "true" };
    let mut service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("{version}.{name}"),
                     "labels": {"kube-aggregator.kubernetes.io/automanaged": managed}},
        "spec": {"version": version, "groupPriorityMinimum": group_priority,
                 "versionPriority": version_priority},
        "status": {"conditions": [{"type": "Available", "status": "True", "reason": "Local",
                                   "message": "Local APIServices are always available"}]},
    });
    if !name.is_empty() {
        service["spec"]["group"] = name.as_str().into();
    }
    Object::from_value(&service).map_err(Status::internal)
}
