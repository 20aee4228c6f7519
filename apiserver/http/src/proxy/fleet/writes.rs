//! Forwards requests that are addressed to one cluster, or whose object is in only one, to that
//! member, with the rights of the user there.

use bytes::Bytes;
use http::{Response, Uri};
use machinery::Status;
use members::{FleetCache, FleetResource, FleetSources};

use super::FleetView;
use super::address::{FleetAddress, native_path};
use super::identity::NativeIdentity;
use super::member_call::MemberCall;
use super::reads::explain_ambiguity;
use crate::proxy::headers;
use crate::proxy::native_request::NativeRequest;
use crate::proxy::update_body::{restore_body, restore_value};
use crate::requestinfo::resource_verb;
use crate::response_body::ServerResponseBody;
use crate::subresources::SubresourceConnectRequest;

/// A resourceVersion that no object has: a store begins with it. It stands for the resourceVersions of
/// other clusters, so that the member reports the conflict.
const STALE: &str = "1";

/// The resourceVersion of an object in its own server; `None` for a text that is one already.
pub(super) fn native_version(cache: &dyn FleetCache, cluster: &str, text: &str) -> Option<String> {
    let version = cache.member_resource_version(cluster, text)?;
    let is_of_others = version.is_empty() && !matches!(text, "" | "0");
    Some(if is_of_others {
        STALE.to_owned()
    } else {
        version
    })
}

impl FleetView {
    pub(super) async fn forward(
        &self,
        mut connection: SubresourceConnectRequest,
        request: &NativeRequest,
        address: &FleetAddress,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let cluster = match &address.cluster {
            Some(cluster) => cluster.clone(),
            None => self.find_cluster(&connection, request).await?,
        };
        let verb = resource_verb(connection.request.method());
        self.access
            .authorize_proxy(&connection.user, verb, &cluster)
            .await?;
        let path = native_path(&request.resource, connection.request.uri().query())?;
        connection.name.clone_from(&cluster);
        path.path().clone_into(&mut connection.subpath);
        *connection.request.uri_mut() = Uri::from(path);
        let writes_object = matches!(request.verb, "update" | "patch" | "delete");
        let is_upgrade = headers::requested_upgrade(&connection.request).is_some();
        if !writes_object || !request.resource.has_name || is_upgrade {
            return self.clusters.forward(connection).await;
        }
        self.forward_write(connection, request, &cluster).await
    }

    /// The only cluster with the object. 400 for a collection, which is in no single one.
    async fn find_cluster(
        &self,
        connection: &SubresourceConnectRequest,
        request: &NativeRequest,
    ) -> Result<String, Status> {
        if !request.resource.has_name {
            return Err(Status::bad_request(format!(
                "a {} of {} is for one cluster: name it with the parameter cluster=NAME",
                request.verb, request.resource.resource
            )));
        }
        let (gvr, user) = (request.gvr(), &connection.user);
        let address = FleetAddress::default();
        let resource = self
            .cached_resource(user, request, "get", (&address, FleetSources::Members))
            .await?;
        let resource: &dyn FleetResource = &*resource;
        let members = self
            .readable(user, request, "get", &address, resource)
            .await?;
        let name = &request.resource.name;
        let namespace = match request.resource.is_namespace_path {
            true => "",
            false => &request.resource.namespace,
        };
        let cluster = members.cache.find_cluster(&gvr, namespace, name).await;
        cluster.map_err(|status| explain_ambiguity(status, name))
    }

    /// Forwards a write of an object as its member knows it. A copy of a template is not changed:
    /// the change would be taken back.
    async fn forward_write(
        &self,
        connection: SubresourceConnectRequest,
        request: &NativeRequest,
        cluster: &str,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let identity = self.native_identity(&connection, request, cluster).await;
        let resource = &request.resource;
        let changes_object = matches!(&*resource.subresource, "" | "scale");
        let identity = match identity {
            Ok(identity) if identity.is_copy() && changes_object && request.verb != "delete" => {
                let text = format!(
                    "in cluster {cluster:?} it is a copy of a template, and the change would be taken back: change the template in the control plane"
                );
                return Err(Status::forbidden(&request.gvr(), &resource.name, text));
            }
            Ok(identity) => identity,
            // The body may have uids of the fleet view.
            Err(status) if request.verb == "update" => return Err(status),
            Err(_) => NativeIdentity::default(),
        };
        let cache = self.cache.clone();
        let transform = |body: Bytes, content_type: &str| {
            restore_body(body, content_type, |value| {
                let versions = restore_value(value, |text| native_version(&*cache, cluster, text));
                identity.restore(cluster, value) || versions
            })
        };
        self.clusters
            .forward_transformed(connection, Some(&transform))
            .await
    }

    /// The object in its member, as the user sees it there.
    async fn native_identity(
        &self,
        connection: &SubresourceConnectRequest,
        request: &NativeRequest,
        cluster: &str,
    ) -> Result<NativeIdentity, Status> {
        let mut object = request.resource.clone();
        object.subresource.clear();
        object.subpath.clear();
        let call = MemberCall::get(native_path(&object, None)?);
        let answer = self.clusters.call_member(cluster, &connection.user, call);
        let (code, body) = answer.await.map_err(Status::unavailable)?;
        let unreadable =
            || Status::unavailable(format!("the answer of cluster {cluster:?} cannot be read"));
        if code.is_success() {
            return machinery::json::from_slice(&body).map_err(|_| unreadable());
        }
        let status: Option<Status> = machinery::json::from_slice(&body).ok();
        let status = status.filter(|status| status.code == code.as_u16());
        Err(status.unwrap_or_else(unreadable))
    }
}
