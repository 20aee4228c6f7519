//! Serves the requests of the fleet tree that name no cluster.
//!
//! list, watch of what members serve, too ──► the caches of the members and of the control plane
//! everything else ──► the control plane, as the user
//!
//! The kinds of this server itself are the control plane's alone, whatever a member says that it serves.

use http::Response;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::uri::PathAndQuery;
use http_body::Body as _;
use karmada_api::is_karmada_group;
use machinery::Status;
use members::{CONTROL_PLANE, FleetSources};

use super::address::FleetAddress;
use super::writes::native_version;
use super::{FleetView, is_watched};
use crate::proxy::global_proxy::GLOBAL_PROXY;
use crate::proxy::headers;
use crate::proxy::native_request::NativeRequest;
use crate::proxy::update_body::{restore_body, restore_versions};
use crate::request_body::{self, ReplacedBody};
use crate::request_memory::MemoryCharge;
use crate::response_body::ServerResponseBody;
use crate::subresources::SubresourceConnectRequest;

impl FleetView {
    pub(super) async fn serve_unaddressed(
        &self,
        connection: SubresourceConnectRequest,
        path: PathAndQuery,
        request: &NativeRequest,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let resource = &request.resource;
        if (&*resource.group, &*resource.resource) == (GLOBAL_PROXY.0, GLOBAL_PROXY.1) {
            let text = "the fleet tree passes no requests on to itself or to the global proxy";
            return Err(Status::bad_request(text));
        }
        let is_of_all = request.resource.name.is_empty();
        if is_of_all && request.verb == "deletecollection" {
            return Err(Status::bad_request(format!(
                "a {} of {} is for one cluster: name it with the parameter cluster=NAME, or ask the control plane itself",
                request.verb, request.resource.resource
            )));
        }
        let is_read = is_of_all && matches!(request.verb, "list" | "watch");
        if is_read && self.may_be_of_members(request) {
            let sources = FleetSources::MembersAndControlPlane;
            let address = FleetAddress::default();
            let cached = self
                .cached_resource(&connection.user, request, request.verb, (&address, sources))
                .await;
            match cached {
                Ok(resource) => {
                    self.check_version(request, true)?;
                    let resource = (&*resource, sources);
                    return self
                        .read_cached(connection, request, &address, resource)
                        .await;
                }
                Err(status) if status.code == 404 => {}
                Err(status) => return Err(status),
            }
        }
        self.check_version(request, false)?;
        let connection = match request.verb {
            "update" | "patch" | "delete" => self.restore_versions(connection).await?,
            _ => connection,
        };
        self.clusters.control_plane.serve(connection, path).await
    }

    /// Replaces the resourceVersion of several servers, which an object of a watch has, in the body of a
    /// write by the one of the control plane.
    async fn restore_versions(
        &self,
        mut connection: SubresourceConnectRequest,
    ) -> Result<SubresourceConnectRequest, Status> {
        let request = &mut connection.request;
        if request.body().is_end_stream() || headers::requested_upgrade(request).is_some() {
            return Ok(connection);
        }
        let charge = MemoryCharge::of_user(&connection.user, None);
        let body = request_body::read_body(request.body_mut(), charge).await?;
        let (body, _charge) = body.into_parts();
        let headers = request.headers_mut();
        let content_type = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
        let body = restore_body(body, content_type.unwrap_or(""), |value| {
            restore_versions(value, |text| {
                native_version(&*self.cache, CONTROL_PLANE, text)
            })
        });
        headers.insert(CONTENT_LENGTH, body.bytes.len().into());
        if let Some(content_type) = body.content_type {
            headers.insert(CONTENT_TYPE, content_type);
        }
        request.extensions_mut().insert(ReplacedBody(body.bytes));
        Ok(connection)
    }

    fn may_be_of_members(&self, request: &NativeRequest) -> bool {
        let known_kind = self.reader.known_kind(&request.gvr());
        let is_watched = known_kind.is_none_or(|kind| is_watched(&kind));
        is_watched && !is_karmada_group(&request.resource.group)
    }

    /// 410 for a list or a watch from a time at which the objects were those of other servers: when the
    /// first member began to serve a resource, or the last one ceased to.
    fn check_version(&self, request: &NativeRequest, is_of_several: bool) -> Result<(), Status> {
        let version = request.param("resourceVersion");
        if !matches!(request.verb, "list" | "watch") || matches!(version, "" | "0") {
            return Ok(());
        }
        let own_version = self.cache.member_resource_version(CONTROL_PLANE, version);
        match own_version.is_some() == is_of_several {
            true => Ok(()),
            false => Err(Status::expired(format!(
                "too old resource version: the clusters that serve {} have changed",
                request.resource.resource
            ))),
        }
    }
}
