//! Handles requests on resources: maps verb and body to a registry call and writes its
//! result (kube-apiserver's `endpoints/handlers`).

mod reads;
mod writes;

use std::sync::Arc;

use admission::AuditAnnotations;
use auth::RequestAuthorizer;
use client::ResourcePath;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use machinery::time::Clock;
use machinery::{Gvr, Status};
use registry::{Registry, RequestContext, ResourceInfo, options};

use crate::audit::RequestAudit;
use crate::authorized_request::AuthorizedResourceRequest;
use crate::dynamic_groups::DynamicGroups;
use crate::metrics::ApiServerMetrics;
use crate::negotiation::{self, ProtobufOffer, ResponseOffer};
use crate::requestinfo::RequestedResource;
use crate::response_body::ServerResponseBody;
use crate::response_writers::{self, ResponseOptions};
use crate::scope::check_kind_scope;
use crate::subresources::{
    SubresourceConnectRequest, SubresourceConnector, SubresourceConnectors, SubresourceGetters,
    find_connector,
};
use crate::table::IncludeObjectPolicy;
use crate::verb_check::{check_verb, unknown_resource};
use crate::watch_drain::WatchDrain;

/// The parts that the handlers of all requests share.
pub(crate) struct ResourceRequestDispatcher {
    pub(crate) registry: Arc<Registry>,
    pub(crate) authorizer: Arc<RequestAuthorizer>,
    pub(crate) connectors: Arc<SubresourceConnectors>,
    pub(crate) getters: SubresourceGetters,
    pub(crate) dynamic_groups: Arc<DynamicGroups>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<ApiServerMetrics>,
    pub(crate) watch_drain: WatchDrain,
}

/// Handles one [`AuthorizedResourceRequest`]; holds the resource and context looked up for it.
struct ResourceRequestHandler<'a> {
    shared: &'a ResourceRequestDispatcher,
    request: &'a AuthorizedResourceRequest,
    resource_info: Arc<ResourceInfo>,
    context: RequestContext,
}

impl ResourceRequestDispatcher {
    pub(crate) async fn serve(
        &self,
        mut call: AuthorizedResourceRequest,
        request: Request<Incoming>,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let body = call.body.take();
        let dynamic = self.dynamic_groups.serve_resource(&call, request.headers());
        if let Some(served) = dynamic.await {
            return served;
        }
        let resource_info = self.find_resource(&call.resource, call.verb).await?;
        if let Some(connector) = find_connector(&self.connectors, &call.resource) {
            return self.connect(&**connector, call, request).await;
        }
        call.query.validate()?;
        check_verb(&resource_info, &call.resource, call.verb)?;
        let deprecation = resource_info.deprecation_warning.clone();
        let handler = ResourceRequestHandler {
            shared: self,
            context: RequestContext {
                user: Arc::clone(&call.user),
                deadline: call.deadline,
                audit_annotations: annotations_of(call.audit.as_ref()),
                is_from_controller: false,
            },
            request: &call,
            resource_info,
        };
        let headers = request.headers().clone();
        let served = match (call.verb, body) {
            ("get", _) => handler.get(&headers).await,
            ("list", _) => handler.list(&headers).await,
            ("watch", _) => handler.watch(&headers, request).await,
            ("create", Some(body)) => handler.create(&headers, body).await,
            ("update", Some(body)) => handler.update(&headers, body).await,
            ("patch", Some(body)) => handler.patch(&headers, body).await,
            ("delete", Some(body)) => handler.delete(&headers, body).await,
            ("deletecollection", Some(body)) => handler.delete_collection(&headers, body).await,
            _ => Err(Status::method_not_allowed()),
        };
        let Some(warning) = deprecation else {
            return served;
        };
        match served {
            Ok(mut response) => {
                response_writers::add_warnings(&mut response, &[warning]);
                Ok(response)
            }
            Err(status) => Err(status.with_warnings(vec![warning])),
        }
    }

    /// The resource that a path names. A custom resource may have been unknown, or have had
    /// another scope, when the filters saw the request.
    async fn find_resource(
        &self,
        requested: &RequestedResource,
        verb: &str,
    ) -> Result<Arc<ResourceInfo>, Status> {
        let RequestedResource {
            group,
            version,
            resource,
            ..
        } = requested;
        let gvr = Gvr::new(group, version, resource);
        let looked_up = self.registry.resource_info_synced(&gvr).await;
        let resource_info = looked_up.map_err(|status| match status.code {
            404 => unknown_resource(&self.registry, requested),
            _ => status,
        })?;
        let has_go_type = resource_info.has_go_type();
        check_kind_scope(&resource_info.kind, has_go_type, requested, verb)?;
        Ok(resource_info)
    }

    /// Serves a connection, once admission webhooks have admitted it.
    async fn connect(
        &self,
        connector: &dyn SubresourceConnector,
        call: AuthorizedResourceRequest,
        request: Request<Incoming>,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let r = &call.resource;
        let connection = SubresourceConnectRequest {
            user: call.user,
            namespace: r.namespace.clone(),
            name: r.name.clone(),
            subpath: r.subpath.clone(),
            deadline: call.deadline,
            shutdown: self.watch_drain.started().into(),
            request,
        };
        let admitted = self.admit_connect(connector, r, &connection, call.audit.as_ref());
        let warnings = admitted.await?;
        let mut response = connector.connect(connection).await?;
        response_writers::add_warnings(&mut response, &warnings);
        Ok(response)
    }

    /// Calls the admission webhooks for a connection; returns their warnings.
    async fn admit_connect(
        &self,
        connector: &dyn SubresourceConnector,
        requested: &RequestedResource,
        connection: &SubresourceConnectRequest,
        audit: Option<&Arc<RequestAudit>>,
    ) -> Result<Vec<String>, Status> {
        let context = RequestContext {
            user: Arc::clone(&connection.user),
            deadline: connection.deadline,
            audit_annotations: annotations_of(audit),
            is_from_controller: false,
        };
        let gvr = Gvr::new(&requested.group, &requested.version, &requested.resource);
        let path = ResourcePath {
            resource: &gvr,
            namespace: &connection.namespace,
            name: &connection.name,
            subresource: &requested.subresource,
        };
        let Some(options) = connector.connect_options(connection) else {
            return Ok(Vec::new());
        };
        self.registry.admit_connect(&context, path, options).await
    }
}

/// Where admission annotates the audit events of a request.
fn annotations_of(audit: Option<&Arc<RequestAudit>>) -> Option<Arc<AuditAnnotations>> {
    audit.map(|audit| audit.admission_annotations())
}

impl ResourceRequestHandler<'_> {
    fn resource_path(&self) -> ResourcePath<'_> {
        let r = &self.request.resource;
        ResourcePath {
            resource: &self.resource_info.kind.gvr,
            namespace: if self.resource_info.kind.namespaced {
                &r.namespace
            } else {
                ""
            },
            // A custom resource that is posted to its name has the name of the body.
            name: match r.has_name && (self.request.verb != "create" || !r.subresource.is_empty()) {
                true => &r.name,
                false => "",
            },
            subresource: &r.subresource,
        }
    }

    fn audit_object(&self, object: &machinery::Object) {
        if let Some(audit) = &self.request.audit {
            audit.log_response_object(&object.served_bytes());
        }
    }

    fn audit_list(&self, list: &registry::ObjectListPage) {
        if let Some(audit) = &self.request.audit {
            audit.log_response_list(list);
        }
    }

    /// Whether bodies may be protobuf. Subresources have kinds of their own, most of them
    /// with a protobuf form.
    fn has_protobuf_form(&self) -> bool {
        self.resource_info.kind.protobuf
            || (!self.resource_info.custom
                && !matches!(self.request.resource.subresource.as_str(), "" | "status"))
    }

    fn response_options(&self, headers: &HeaderMap) -> Result<ResponseOptions, Status> {
        let views = matches!(self.request.resource.subresource.as_str(), "" | "status");
        let offer = ResponseOffer {
            // A kind that is only created has no columns.
            tables: views && self.resource_info.supports_verb("get"),
            partial_metadata: views,
            protobuf: match self.has_protobuf_form() {
                true => ProtobufOffer::Objects,
                false => ProtobufOffer::Metadata,
            },
        };
        Ok(ResponseOptions {
            format: negotiation::negotiate(headers, &self.request.query, offer)?,
            gzip: negotiation::accepts_gzip(headers),
            include: IncludeObjectPolicy::parse(self.request.query.get("includeObject"))?,
        })
    }

    /// Runs one of the registry's option parsers on the query.
    fn parse_options<T>(
        &self,
        parse: impl FnOnce(options::QueryParamGetter<'_>) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let query = &self.request.query;
        parse(&|key| {
            // Every value of dryRun counts: the parser gets the first that is not All
            // and refuses it.
            let overridden = match key {
                "dryRun" => query.all(key).find(|v| *v != "All"),
                _ => None,
            };
            overridden.or_else(|| query.get(key)).map(str::to_owned)
        })
    }
}
