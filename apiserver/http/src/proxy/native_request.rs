//! Parses and authorizes requests on resources of members, whose path follows the path of the
//! search or the global proxy.

use std::sync::Arc;

use auth::RequestAuthorizer;
use http::Method;
use http::uri::PathAndQuery;
use machinery::time::Clock;
use machinery::{Gvk, Gvr, Status, UserInfo};
use members::{MemberObjectSelection, MemberResourceCache};
use openapi::KindInfo;
use openapi::defaults::has_go_type;
use registry::{Registry, select_by_kind};

use crate::requestinfo::{self, QueryParams, RequestedResource};
use crate::scope::check_kind_scope;

/// Reads resources of members from a cache, with the rights that users have to them here.
pub struct MemberResourceReader {
    pub(super) cache: Arc<dyn MemberResourceCache>,
    authorizer: RequestAuthorizer,
    /// Knows the columns of kinds.
    registry: Arc<Registry>,
    pub(super) clock: Arc<dyn Clock>,
    /// Whether tables begin with a column of clusters.
    pub(super) with_cluster_column: bool,
}

/// A request on a resource of members.
pub(super) struct NativeRequest {
    pub(super) verb: &'static str,
    pub(super) resource: RequestedResource,
    pub(super) query: QueryParams,
}

impl NativeRequest {
    /// `None` for a path without a resource.
    pub(super) fn parse(method: &Method, path: &PathAndQuery) -> Result<Option<Self>, Status> {
        let query = QueryParams::parse(path.query());
        query.validate()?;
        let info = requestinfo::parse_request(method, path.path(), &query)?;
        Ok(info.resource.map(|resource| Self {
            verb: info.verb,
            resource,
            query,
        }))
    }

    pub(super) fn gvr(&self) -> Gvr {
        let r = &self.resource;
        Gvr::new(&r.group, &r.version, &r.resource)
    }

    /// The value of a query parameter; empty if it is absent.
    pub(super) fn param(&self, name: &str) -> &str {
        self.query.get(name).unwrap_or_default()
    }

    /// A number of the query; 0 if it is absent or negative.
    pub(super) fn number(&self, name: &str) -> Result<u64, Status> {
        let text = self.param(name);
        if text.is_empty() {
            return Ok(0);
        }
        let number: Result<i64, _> = text.parse();
        let number = number.map_err(|_| {
            Status::bad_request(format!(
                "strconv.ParseInt: parsing {text:?}: invalid syntax"
            ))
        });
        Ok(u64::try_from(number?).unwrap_or(0))
    }

    /// The namespace of the requested objects: a namespace itself is in none.
    pub(super) fn namespace<'a>(&'a self, kind: &KindInfo) -> &'a str {
        match kind.namespaced {
            true => &self.resource.namespace,
            false => "",
        }
    }

    /// The objects that the path and the selectors select.
    pub(super) fn selection(&self, kind: &KindInfo) -> Result<MemberObjectSelection, Status> {
        let name = match self.resource.has_name {
            true => self.resource.name.as_str(),
            false => "",
        };
        let selectors = (self.param("labelSelector"), self.param("fieldSelector"));
        let filter = select_by_kind(&self.gvr(), (self.namespace(kind), name), selectors)?;
        Ok(MemberObjectSelection {
            namespace: filter.namespace,
            name: filter.name,
            matches: filter.matches,
        })
    }
}

impl MemberResourceReader {
    pub fn new(
        cache: Arc<dyn MemberResourceCache>,
        authorizer: impl Into<RequestAuthorizer>,
        registry: Arc<Registry>,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        Arc::new(Self {
            cache,
            authorizer: authorizer.into(),
            registry,
            clock,
            with_cluster_column: false,
        })
    }

    /// A reader of another cache, whose tables may begin with a column of clusters.
    pub(super) fn of_fleet(
        &self,
        cache: Arc<dyn MemberResourceCache>,
        with_cluster_column: bool,
    ) -> Self {
        Self {
            cache,
            authorizer: self.authorizer.clone(),
            registry: Arc::clone(&self.registry),
            clock: Arc::clone(&self.clock),
            with_cluster_column,
        }
    }

    /// The kind of a cached resource; `None` for others. One that this server does not know has
    /// no columns of its own.
    pub(super) fn cached_kind(&self, request: &NativeRequest) -> Option<Arc<KindInfo>> {
        let gvr = request.gvr();
        let gvk = self.cache.cached_kind(&gvr)?;
        let known_kind = self.known_kind(&gvr);
        Some(known_kind.unwrap_or_else(|| Arc::new(foreign_kind(gvr, gvk, request))))
    }

    /// The kind of a resource that this server serves, or Kubernetes.
    pub(super) fn known_kind(&self, gvr: &Gvr) -> Option<Arc<KindInfo>> {
        if let Some(resource) = self.registry.table().find(gvr) {
            return Some(Arc::clone(&resource.kind));
        }
        openapi::catalog().resource(gvr).map(Arc::clone)
    }

    /// 403 if the user may not make the request itself, besides reaching the search or the proxy;
    /// 404 or 405 if the path has not the scope of the resource. A kind that only members know is
    /// selected by the namespace of the path, so that nothing outside of it is found.
    pub(super) async fn authorize(
        &self,
        user: &UserInfo,
        request: &NativeRequest,
    ) -> Result<(), Status> {
        let NativeRequest { verb, resource, .. } = request;
        let target = resource.authorization_attributes();
        self.authorizer.authorize(user, verb, target).await?;
        let gvr = request.gvr();
        if let Some(resource_info) = self.registry.table().find(&gvr) {
            return check_kind_scope(
                &resource_info.kind,
                resource_info.has_go_type(),
                resource,
                verb,
            );
        }
        match openapi::catalog().resource(&gvr) {
            Some(kind) => check_kind_scope(kind, has_go_type(kind), resource, verb),
            None => Ok(()),
        }
    }
}

/// A kind of members that this server does not serve.
fn foreign_kind(gvr: Gvr, gvk: Gvk, request: &NativeRequest) -> KindInfo {
    KindInfo {
        list_kind: format!("{}List", gvk.kind),
        namespaced: !request.resource.namespace.is_empty(),
        gvk,
        gvr,
        ..KindInfo::default()
    }
}
