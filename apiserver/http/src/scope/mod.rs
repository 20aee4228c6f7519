//! Decides from the resource table whether the path of a request has the scope of the resource
//! that it names: what a user may do in a namespace reaches nothing that is outside of it.
//! Does no I/O.
//!
//! The path is authorized by the namespace in it. So a cluster-scoped resource is never served
//! below `namespaces/NAME/`, and a namespaced object never without its namespace. The answers are
//! those of kube-apiserver, which has no routes for such paths: for Go types as go-restful finds
//! the route of a path and a method (`endpoints/installer.go`), for custom resources as their
//! handler decides (`apiextensions-apiserver/pkg/apiserver/customresource_handler.go`).

use machinery::Status;
use openapi::KindInfo;
use registry::{DynamicResourceScope, ResourceTable};

use crate::requestinfo::RequestedResource;

/// Fails if the path has not the scope of the resource. Passes resources that the table does
/// not have: nothing is served for them, unless a definition that is only now seen adds them.
pub(crate) fn check_request_scope(
    table: &ResourceTable,
    requested: &RequestedResource,
    verb: &str,
) -> Result<(), Status> {
    let RequestedResource {
        group,
        version,
        resource,
        ..
    } = requested;
    if let Some(info) = table.find_by_name(group, version, resource) {
        return check_kind_scope(&info.kind, info.has_go_type(), requested, verb);
    }
    let Some(dynamic) = table.dynamic_group(group) else {
        return Ok(());
    };
    let leads_into_namespace = leads_into_namespace(requested);
    let agrees = match dynamic.scope {
        DynamicResourceScope::Namespace => leads_into_namespace,
        DynamicResourceScope::DescribedResource => {
            !leads_into_namespace || is_namespaced(table, resource) != Some(false)
        }
    };
    match agrees {
        true => Ok(()),
        false => Err(Status::path_not_found()),
    }
}

/// Whether a resource, `RESOURCE` or `RESOURCE.GROUP`, has namespaces; `None` if neither this
/// server nor the catalog knows it.
fn is_namespaced(table: &ResourceTable, group_resource: &str) -> Option<bool> {
    let (resource, group) = group_resource
        .split_once('.')
        .unwrap_or((group_resource, ""));
    let served = table.resources().iter().map(|info| &info.kind);
    let mut kinds = served.chain(openapi::catalog().kinds());
    let kind = kinds.find(|kind| kind.gvr.resource == resource && kind.gvr.group == group);
    kind.map(|kind| kind.namespaced)
}

/// Fails if the path has not the scope of the kind.
pub(crate) fn check_kind_scope(
    kind: &KindInfo,
    has_go_type: bool,
    requested: &RequestedResource,
    verb: &str,
) -> Result<(), Status> {
    let in_namespace = match has_go_type {
        true => leads_into_namespace(requested),
        false => !requested.namespace.is_empty(),
    };
    if kind.namespaced == in_namespace {
        return Ok(());
    }
    let is_listed = kind.verbs.iter().any(|verb| verb == "list");
    let across_namespaces = kind.namespaced && !requested.has_name && is_listed;
    match (across_namespaces, verb) {
        (true, "list" | "watch") => Ok(()),
        (true, _) if has_go_type => Err(Status::method_not_allowed()),
        _ if has_go_type => Err(Status::path_not_found()),
        _ => Err(Status::page_not_found()),
    }
}

fn leads_into_namespace(requested: &RequestedResource) -> bool {
    !requested.namespace.is_empty() && !requested.is_namespace_path
}

#[cfg(test)]
mod tests;
