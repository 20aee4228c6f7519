//! Answers gets, lists and watches from the caches of the members in which the user may make them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::Response;
use machinery::agent_user::cluster_of_agent_user;
use machinery::{Gvr, Status, UserInfo};
use members::{CONTROL_PLANE, FleetResource, FleetSources, MemberResourceCache, RestrictedMembers};
use openapi::KindInfo;

use super::access::AllowedMembers;
use super::address::FleetAddress;
use super::addressed_names::AddressedNames;
use super::decision_cache::AccessAttributes;
use super::{FleetView, is_watched};
use crate::proxy::native_request::NativeRequest;
use crate::response_body::ServerResponseBody;
use crate::response_writers;
use crate::subresources::SubresourceConnectRequest;

/// The caches that one request of a user reads.
pub(super) struct ReadableMembers {
    pub(super) cache: Arc<dyn MemberResourceCache>,
    /// Why members are missing that the user might read.
    pub(super) warnings: Vec<String>,
}

fn access_attributes<'a>(
    gvr: &'a Gvr,
    request: &'a NativeRequest,
    verb: &'a str,
) -> AccessAttributes<'a> {
    AccessAttributes {
        verb,
        group: &gvr.group,
        version: &gvr.version,
        resource: &gvr.resource,
        namespace: &request.resource.namespace,
        name: &request.resource.name,
    }
}

impl FleetView {
    pub(super) async fn read(
        &self,
        connection: SubresourceConnectRequest,
        request: &NativeRequest,
        address: &FleetAddress,
        sources: FleetSources,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let addressed = address.cluster.as_ref();
        let known_kind = self.reader.known_kind(&request.gvr());
        if known_kind.is_some_and(|kind| !is_watched(&kind)) {
            return match addressed {
                Some(_) => self.forward(connection, request, address).await,
                None => Err(unwatched(request)),
            };
        }
        let user = &connection.user;
        let resource = self
            .cached_resource(
                user,
                request,
                request.verb,
                (address, FleetSources::Members),
            )
            .await?;
        // A member that is not cached answers what is addressed to it itself.
        if addressed.is_some_and(|cluster| resource.missing().contains_key(cluster)) {
            return self.forward(connection, request, address).await;
        }
        self.read_cached(connection, request, address, (&*resource, sources))
            .await
    }

    /// Answers from the caches of a resource. In the tree the names of members' objects have their
    /// cluster, so that no two objects have the same.
    pub(super) async fn read_cached(
        &self,
        connection: SubresourceConnectRequest,
        request: &NativeRequest,
        address: &FleetAddress,
        (resource, sources): (&dyn FleetResource, FleetSources),
    ) -> Result<Response<ServerResponseBody>, Status> {
        let members = self
            .readable(&connection.user, request, request.verb, address, resource)
            .await?;
        let reader = match sources {
            FleetSources::Members => self.reader.of_fleet(members.cache, true),
            FleetSources::MembersAndControlPlane => {
                let cache = Arc::new(AddressedNames {
                    cache: members.cache,
                    cluster_uids: Arc::new(self.cache.cluster_uids().await),
                });
                self.reader.of_fleet(cache, false)
            }
        };
        let Some(kind) = reader.cached_kind(request) else {
            return Err(Status::path_not_found());
        };
        check_scope(&kind, request)?;
        let headers = connection.request.headers();
        match request.verb {
            "list" => reader.list(request, &kind, headers).await,
            "watch" => {
                let shutdown = connection.shutdown.clone();
                let mut response = reader.watch(request, &kind, headers, shutdown).await?;
                response_writers::add_warnings(&mut response, &members.warnings);
                Ok(response)
            }
            _ => {
                let object = reader.get(request, &kind, headers).await;
                let object =
                    object.map_err(|status| explain_ambiguity(status, &request.resource.name));
                let mut response = object?;
                response_writers::add_warnings(&mut response, &members.warnings);
                Ok(response)
            }
        }
    }

    /// A resource for a user who may make a request somewhere: for nobody else anything is cached. 404 if
    /// the user may know no member that serves it, unless its kind is known anyway.
    pub(super) async fn cached_resource(
        &self,
        user: &UserInfo,
        request: &NativeRequest,
        verb: &str,
        (address, sources): (&FleetAddress, FleetSources),
    ) -> Result<Arc<dyn FleetResource>, Status> {
        let gvr = request.gvr();
        let mut serving = self.cache.serving_members(&gvr).await;
        if let Some(cluster) = &address.cluster {
            serving.retain(|name, _| name == cluster);
        }
        let is_served = !serving.is_empty();
        let names = serving.keys().cloned().collect();
        let mut visible = self.access.visible(user, names).await;
        let is_hidden = is_served && visible.is_empty();
        let is_known = self.reader.known_kind(&gvr).is_some() && sources == FleetSources::Members;
        if is_hidden && !is_known {
            return Err(Status::path_not_found());
        }
        let visible_count = visible.len();
        visible.retain(|name| serving[name]);
        let is_missing = visible.len() < visible_count;
        let attributes = access_attributes(&gvr, request, verb);
        let mut members = self.access.authorize(user, attributes, visible).await;
        if sources == FleetSources::MembersAndControlPlane {
            self.authorize_control_plane(user, request, &mut members)
                .await?;
        }
        let may_read = is_missing || !members.allowed.is_empty() || !members.unknown.is_empty();
        if is_hidden || is_served && !may_read {
            return Err(forbidden(user, &gvr, &attributes));
        }
        self.cache.resource(&gvr, sources).await
    }

    /// The caches of the members in which the user may make a request. 403 if there are members, and
    /// none in which he may.
    pub(super) async fn readable(
        &self,
        user: &UserInfo,
        request: &NativeRequest,
        verb: &str,
        address: &FleetAddress,
        resource: &dyn FleetResource,
    ) -> Result<ReadableMembers, Status> {
        let mut cached: BTreeSet<String> = resource.clusters().into_iter().collect();
        let mut missing = resource.missing().clone();
        let has_control_plane = cached.remove(CONTROL_PLANE);
        let missing_control_plane = missing.remove_entry(CONTROL_PLANE);
        if let Some(cluster) = &address.cluster {
            self.access.authorize_proxy(user, "get", cluster).await?;
            cached.retain(|name| name == cluster);
            missing.clear();
        }
        let all = cached.iter().chain(missing.keys()).cloned().collect();
        let visible = self.access.visible(user, all).await;
        let has_hidden = visible.len() < cached.len() + missing.len();
        missing.retain(|name, _| visible.contains(name));
        cached.retain(|name| visible.contains(name));
        let gvr = request.gvr();
        let attributes = access_attributes(&gvr, request, verb);
        let mut members = self.access.authorize(user, attributes, cached).await;
        if has_control_plane || missing_control_plane.is_some() {
            self.authorize_control_plane(user, request, &mut members)
                .await?;
        }
        // Without its objects, what it has would seem to be deleted. Only who may read it is told why.
        if let Some((name, reason)) = missing_control_plane
            && members.allowed.contains(&name)
        {
            let text = format!("the control plane cannot be read: {reason}");
            return Err(Status::unavailable(text));
        }
        let is_denied = has_hidden || !members.denied.is_empty();
        if is_denied
            && members.allowed.is_empty()
            && members.unknown.is_empty()
            && missing.is_empty()
        {
            return Err(forbidden(user, &gvr, &attributes));
        }
        let is_transient = !members.unknown.is_empty();
        missing.extend(members.unknown);
        let denied = members.denied.into_iter();
        missing.extend(denied.map(|name| (name, "you may not read this there".to_owned())));
        Ok(ReadableMembers {
            warnings: warnings(&missing),
            cache: resource.restricted(RestrictedMembers {
                clusters: members.allowed,
                missing,
                is_transient,
            }),
        })
    }

    /// Whether the user may make a request to the control plane, with the rights that he has there.
    /// Agents have only what they are shown by the control plane itself.
    async fn authorize_control_plane(
        &self,
        user: &UserInfo,
        request: &NativeRequest,
        members: &mut AllowedMembers,
    ) -> Result<(), Status> {
        let name = CONTROL_PLANE.to_owned();
        let is_agent = cluster_of_agent_user(user).is_some();
        match self.reader.authorize(user, request).await {
            Ok(()) if !is_agent => _ = members.allowed.insert(name),
            Ok(()) => _ = members.denied.insert(name),
            Err(status) if status.code == 403 => _ = members.denied.insert(name),
            Err(status) => return Err(status),
        }
        Ok(())
    }
}

fn warnings(missing: &BTreeMap<String, String>) -> Vec<String> {
    let missing = missing.iter();
    missing
        .map(|(cluster, reason)| format!("cluster({cluster}): {reason}"))
        .collect()
}

fn forbidden(user: &UserInfo, resource: &Gvr, attributes: &AccessAttributes<'_>) -> Status {
    let scope = match attributes.namespace {
        "" => String::new(),
        namespace => format!(" in the namespace {namespace:?}"),
    };
    let text = format!(
        "User {:?} cannot {} resource {:?} in API group {:?}{scope} in any cluster",
        user.name, attributes.verb, &*resource.resource, &*resource.group
    );
    Status::forbidden(resource, attributes.name, text)
}

/// 405 for a kind that is not cached, because nothing tells of its changes.
fn unwatched(request: &NativeRequest) -> Status {
    let mut status = Status::verb_not_supported(&request.gvr(), request.verb);
    status.message.push_str(
        " of several clusters, since it cannot be watched: name one with the parameter cluster=NAME",
    );
    status
}

/// 404 for a namespace in the path of a kind without one. Other scopes are lists over all namespaces.
fn check_scope(kind: &KindInfo, request: &NativeRequest) -> Result<(), Status> {
    let resource = &request.resource;
    let is_in_namespace = !resource.namespace.is_empty() && !resource.is_namespace_path;
    let is_foreign = kind.definition.is_empty();
    match !is_foreign && !kind.namespaced && is_in_namespace {
        true => Err(Status::path_not_found()),
        false => Ok(()),
    }
}

/// Says how to name one of several objects.
pub(super) fn explain_ambiguity(mut status: Status, name: &str) -> Status {
    if status.code == 409 {
        let hint = format!("; name one of them, as in {name}@CLUSTER");
        status.message.push_str(&hint);
    }
    status
}
