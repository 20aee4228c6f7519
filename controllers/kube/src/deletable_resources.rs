//! Selects the resources whose objects can be collected and deleted.

use std::sync::Arc;

use client::ApiResource;
use flotilla_runtime::{DiscoveredResource, RestMapper};

/// Events are never collected: they expire by themselves.
fn is_deletable(resource: &ApiResource) -> bool {
    let needed = ["list", "watch", "delete"];
    needed.iter().all(|verb| resource.allows(verb)) && &*resource.resource.resource != "events"
}

/// The deletable resources, each in one version.
pub(crate) fn deletable_resources(rest_mapper: &RestMapper) -> Vec<Arc<DiscoveredResource>> {
    rest_mapper.preferred(is_deletable)
}

/// The resource of a kind in an owner reference, in any version.
pub(crate) fn deletable_resource_of_kind(
    rest_mapper: &RestMapper,
    api_version: &str,
    kind: &str,
) -> Option<Arc<DiscoveredResource>> {
    let (group, _) = machinery::names::split_api_version(api_version);
    let is_kind = |r: &ApiResource| r.resource.group == group && r.kind == kind && is_deletable(r);
    rest_mapper.preferred(is_kind).pop()
}
