//! Checks that a resource has the requested verb at the requested path, whose scope is right: 404,
//! 405 and 400 as from kube-apiserver's routes, which differ between built-in kinds and custom
//! resources.

use machinery::Status;
use registry::{Registry, ResourceInfo};

use crate::requestinfo::RequestedResource;

/// The 404 of a resource that is not served. Routes of built-in group versions exist, and
/// answer for their unknown resources; nothing answers for others.
pub(crate) fn unknown_resource(registry: &Registry, requested: &RequestedResource) -> Status {
    let table = registry.table();
    let built_in = table
        .groups()
        .iter()
        .filter(|group| group.name == requested.group)
        .flat_map(|group| &group.versions)
        .filter(|version| version.version == requested.version)
        .flat_map(|version| &version.resources)
        .any(|resource| resource.has_go_type());
    match built_in {
        true => Status::path_not_found(),
        false => Status::page_not_found(),
    }
}

/// Fails unless the resource has the verb at this path.
pub(crate) fn check_verb(
    resource_info: &ResourceInfo,
    requested: &RequestedResource,
    verb: &str,
) -> Result<(), Status> {
    if resource_info.has_go_type() {
        check_routes(resource_info, requested, verb)
    } else {
        check_custom_resource(resource_info, requested, verb)
    }
}

/// Finds the route of a path and a method as go-restful does.
fn check_routes(info: &ResourceInfo, r: &RequestedResource, verb: &str) -> Result<(), Status> {
    let not_allowed = || Err(Status::method_not_allowed());
    if !r.subresource.is_empty() {
        let sub = info
            .subresource(&r.subresource)
            .ok_or_else(Status::path_not_found)?;
        return match sub.verbs.contains(&verb) && r.subpath.trim_matches('/').is_empty() {
            true => Ok(()),
            false => not_allowed(),
        };
    }
    if r.has_name && info.is_virtual() {
        return Err(Status::path_not_found());
    }
    let is_routed = match verb {
        "create" => !r.has_name,
        "get" | "update" | "patch" | "delete" => r.has_name,
        _ => true,
    };
    if is_routed && info.supports_verb(verb) {
        Ok(())
    } else {
        not_allowed()
    }
}

/// Decides by verb, as the handler of custom resources does
/// (`apiextensions-apiserver/pkg/apiserver/customresource_handler.go`).
fn check_custom_resource(
    info: &ResourceInfo,
    r: &RequestedResource,
    verb: &str,
) -> Result<(), Status> {
    let gvr = &info.kind.gvr;
    if !r.subresource.is_empty() {
        let Some(sub) = info.subresource(&r.subresource) else {
            return Err(Status::not_found(gvr, &r.name));
        };
        return match sub.verbs.contains(&verb) && r.subpath.trim_matches('/').is_empty() {
            true => Ok(()),
            false => Err(Status::verb_not_supported(gvr, verb)),
        };
    }
    if !r.has_name && matches!(verb, "update" | "patch") {
        return Err(Status::bad_request("name must be provided"));
    }
    match info.supports_verb(verb) {
        true => Ok(()),
        false => Err(Status::verb_not_supported(gvr, verb)),
    }
}
