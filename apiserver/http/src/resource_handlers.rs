//! Handles requests on resources: maps verb and body to a registry call and writes its
//! result (kube-apiserver's `endpoints/handlers`).

use std::sync::Arc;

use auth::RequestAuthorizer;
use client::{Patch, ResourcePath};
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use machinery::time::Clock;
use machinery::{Gvr, Status, UserInfo};
use registry::{
    AuditAnnotations, DeleteResponse, FieldValidation, Registry, RequestUserAndDeadline,
    ResourceInfo, WriteResult, options,
};
use tokio::time::Instant;

use crate::audit::RequestAudit;
use crate::metrics::ApiServerMetrics;
use crate::negotiation::{
    self, Representation, RequestBodySerialization, ResponseOffer, ResponseSerialization,
};
use crate::request_body::{self, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH};
use crate::requestinfo::{QueryParams, RequestedResource};
use crate::response_body::ServerResponseBody;
use crate::response_writers::{self, ResponseOptions};
use crate::subresources::{
    SubresourceConnectRequest, SubresourceConnector, SubresourceConnectors, SubresourceGetters,
    find_connector, find_subresource,
};
use crate::table::IncludeObjectPolicy;
use crate::verb_check::{check_verb, unknown_resource};
use crate::watch;
use crate::watch_drain::WatchDrain;
use crate::websocket_watch;

const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// An authorized request on a resource.
pub(crate) struct AuthorizedResourceRequest {
    pub(crate) user: Arc<UserInfo>,
    pub(crate) verb: &'static str,
    pub(crate) resource: RequestedResource,
    pub(crate) query: QueryParams,
    pub(crate) deadline: Option<Instant>,
    pub(crate) audit: Option<Arc<RequestAudit>>,
}

/// What the handlers of all requests share.
pub(crate) struct ResourceRequestDispatcher {
    pub(crate) registry: Arc<Registry>,
    pub(crate) authorizer: Arc<RequestAuthorizer>,
    pub(crate) connectors: Arc<SubresourceConnectors>,
    pub(crate) getters: SubresourceGetters,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<ApiServerMetrics>,
    pub(crate) watch_drain: WatchDrain,
}

/// Handles one [`AuthorizedResourceRequest`]; holds the resource and context looked up for it.
struct ResourceRequestHandler<'a> {
    shared: &'a ResourceRequestDispatcher,
    request: &'a AuthorizedResourceRequest,
    resource_info: Arc<ResourceInfo>,
    context: RequestUserAndDeadline,
}

impl ResourceRequestDispatcher {
    pub(crate) async fn serve(
        &self,
        call: AuthorizedResourceRequest,
        request: Request<Incoming>,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let r = &call.resource;
        if let Some(connector) = find_connector(&self.connectors, r) {
            let connection = SubresourceConnectRequest {
                user: call.user,
                namespace: r.namespace.clone(),
                name: r.name.clone(),
                subpath: r.subpath.clone(),
                deadline: call.deadline,
                shutdown: self.watch_drain.started().into(),
                request,
            };
            let audit = call.audit.as_ref();
            let admitted = self.admit_connect(&**connector, r, &connection, audit);
            let warnings = admitted.await?;
            let mut response = connector.connect(connection).await?;
            response_writers::add_warnings(&mut response, &warnings);
            return Ok(response);
        }
        call.query.validate()?;
        let gvr = Gvr::new(&r.group, &r.version, &r.resource);
        let found = self.registry.resource_info_synced(&gvr).await;
        let resource_info = found.map_err(|status| match status.code {
            404 => unknown_resource(&self.registry, r),
            _ => status,
        })?;
        check_verb(&resource_info, r, call.verb)?;
        let deprecation = resource_info.deprecation_warning.clone();
        let handler = ResourceRequestHandler {
            shared: self,
            context: RequestUserAndDeadline {
                user: Arc::clone(&call.user),
                deadline: call.deadline,
                audit_annotations: annotations_of(call.audit.as_ref()),
            },
            request: &call,
            resource_info,
        };
        let headers = request.headers().clone();
        let served = match call.verb {
            "get" => handler.get(&headers).await,
            "list" => handler.list(&headers).await,
            "watch" => handler.watch(&headers, request).await,
            "create" => handler.create(&headers, request.into_body()).await,
            "update" => handler.update(&headers, request.into_body()).await,
            "patch" => handler.patch(&headers, request.into_body()).await,
            "delete" => handler.delete(&headers, request.into_body()).await,
            "deletecollection" => {
                handler
                    .delete_collection(&headers, request.into_body())
                    .await
            }
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

    /// Calls the admission webhooks for a connection; returns their warnings.
    async fn admit_connect(
        &self,
        connector: &dyn SubresourceConnector,
        requested: &RequestedResource,
        connection: &SubresourceConnectRequest,
        audit: Option<&Arc<RequestAudit>>,
    ) -> Result<Vec<String>, Status> {
        let context = RequestUserAndDeadline {
            user: Arc::clone(&connection.user),
            deadline: connection.deadline,
            audit_annotations: annotations_of(audit),
        };
        let gvr = Gvr::new(&requested.group, &requested.version, &requested.resource);
        let at = ResourcePath {
            resource: &gvr,
            namespace: &connection.namespace,
            name: &connection.name,
            subresource: &requested.subresource,
        };
        let Some(options) = connector.connect_options(connection) else {
            return Ok(Vec::new());
        };
        self.registry.admit_connect(&context, at, options).await
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
            name: match r.named && (self.request.verb != "create" || !r.subresource.is_empty()) {
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
            views,
            protobuf: self.has_protobuf_form(),
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
            let refused = match key {
                "dryRun" => query.all(key).find(|v| *v != "All"),
                _ => None,
            };
            refused.or_else(|| query.get(key)).map(str::to_owned)
        })
    }

    async fn get(&self, headers: &HeaderMap) -> Result<Response<ServerResponseBody>, Status> {
        let response_options = self.response_options(headers)?;
        if let Some(getter) = find_subresource(&self.shared.getters, &self.request.resource) {
            let at = self.resource_path();
            let value = getter.get_subresource(at.namespace, at.name).await?;
            return Ok(response_writers::write_value(
                200,
                &value,
                response_options.format,
            ));
        }
        let options = self.parse_options(|q| Ok(options::parse_get_options(q)))?;
        let registry = &self.shared.registry;
        let object = registry
            .get(&self.context, self.resource_path(), &options)
            .await?;
        self.audit_object(&object);
        response_writers::write_object(
            200,
            &self.resource_info,
            &object,
            response_options,
            self.shared.clock.now(),
        )
    }

    async fn list(&self, headers: &HeaderMap) -> Result<Response<ServerResponseBody>, Status> {
        let response_options = self.response_options(headers)?;
        if matches!(
            response_options.format.representation,
            Representation::Metadata { .. }
        ) {
            // Go's type of the list, as Kubernetes shows it.
            let info = &self.resource_info;
            let list = match info.has_go_type() {
                true => format!("*{}.{}List", info.go_package(), info.kind.gvk.kind),
                false => "*unstructured.UnstructuredList".to_owned(),
            };
            return Err(Status::failure(
                406,
                "NotAcceptable",
                format!(
                    "you requested PartialObjectMetadata, but the requested object is a list ({list})"
                ),
            ));
        }
        let options = self.parse_options(|q| options::parse_list_options(q))?;
        let registry = &self.shared.registry;
        let list = registry
            .list(&self.context, self.resource_path(), &options)
            .await?;
        self.audit_list(&list);
        response_writers::write_list(list, response_options, self.shared.clock.now()).await
    }

    async fn watch(
        &self,
        headers: &HeaderMap,
        request: Request<Incoming>,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let response_options = self.response_options(headers)?;
        if response_options.format.encoding == ResponseSerialization::Yaml {
            return Err(Status::not_acceptable(&[
                negotiation::JSON,
                negotiation::PROTOBUF,
            ]));
        }
        let options = self.parse_options(|q| options::parse_watch_options(q))?;
        let switched = websocket_watch::is_websocket_request(headers)
            .then(|| websocket_watch::switch_protocols(headers))
            .transpose()?;
        let watch = self
            .shared
            .registry
            .watch(&self.context, self.resource_path(), &options)
            .await?;
        let gvr = &self.resource_info.kind.gvr;
        let events = watch::event_stream(
            watch,
            Arc::clone(&self.resource_info),
            response_options,
            Arc::clone(&self.shared.clock),
            self.shared.watch_drain.register(),
            self.shared
                .metrics
                .watch_events(&gvr.group, &gvr.version, &gvr.resource),
        );
        if let Some(response) = switched {
            let upgrade = hyper::upgrade::on(request);
            let encoding = response_options.format.encoding;
            let sent = websocket_watch::send_events(upgrade, events, encoding);
            self.shared.watch_drain.spawn_upgraded(sent);
            return Ok(response);
        }
        let mut response = Response::new(ServerResponseBody::events(events));
        let content_type = watch::content_type(response_options.format.encoding);
        response
            .headers_mut()
            .insert(http::header::CONTENT_TYPE, content_type);
        Ok(response)
    }

    /// Reads and decodes the object in a request body.
    async fn decode_body(
        &self,
        headers: &HeaderMap,
        body: Incoming,
    ) -> Result<registry::ObjectBodyAndDuplicateFields, Status> {
        let body_type = negotiation::body_type(headers, self.has_protobuf_form())?;
        let bytes = request_body::read_body(body).await?;
        let kind = match self
            .resource_info
            .subresource(&self.request.resource.subresource)
        {
            Some(subresource) => &subresource.kind.kind,
            None => &self.resource_info.kind.gvk.kind,
        };
        let info = &self.resource_info;
        let is_custom = !info.has_go_type()
            && matches!(self.request.resource.subresource.as_str(), "" | "status");
        let decoded = request_body::decode_object_of_kind(&bytes, body_type, kind, is_custom)?;
        if is_custom
            && decoded.value["apiVersion"]
                .as_str()
                .is_none_or(str::is_empty)
        {
            return Err(Status::bad_request(registry::version_mismatch(
                "",
                &info.kind.gvk,
            )));
        }
        if let Some(audit) = &self.request.audit {
            audit.log_request_object(&decoded.value);
        }
        Ok(registry::ObjectBodyAndDuplicateFields {
            value: decoded.value,
            duplicate_fields: decoded.duplicate_keys,
        })
    }

    fn write_response(
        &self,
        written: &WriteResult,
        response_options: ResponseOptions,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let code = if written.created { 201 } else { 200 };
        self.audit_object(&written.object);
        let mut response = response_writers::write_object(
            code,
            &self.resource_info,
            &written.object,
            response_options,
            self.shared.clock.now(),
        )?;
        response_writers::add_warnings(&mut response, &written.warnings);
        Ok(response)
    }

    async fn create(
        &self,
        headers: &HeaderMap,
        body: Incoming,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let response_options = self.response_options(headers)?;
        let options = self.write_options(headers, "CreateOptions")?;
        let body = self.decode_body(headers, body).await?;
        let registry = &self.shared.registry;
        let mut written = registry
            .create(&self.context, self.resource_path(), body, &options)
            .await?;
        // POST returns 201 even where nothing is stored, as for reviews.
        written.created = true;
        self.write_response(&written, response_options)
    }

    async fn update(
        &self,
        headers: &HeaderMap,
        body: Incoming,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let response_options = self.response_options(headers)?;
        let options = self.write_options(headers, "UpdateOptions")?;
        let body = self.decode_body(headers, body).await?;
        if self.resource_info.kind.allow_create_on_update {
            self.authorize_create_on_update().await?;
        }
        let registry = &self.shared.registry;
        let written = registry
            .update(&self.context, self.resource_path(), body, &options)
            .await?;
        self.write_response(&written, response_options)
    }

    /// A PUT or an apply that would create the object needs the right to create it.
    async fn authorize_create_on_update(&self) -> Result<(), Status> {
        if !self.request.resource.subresource.is_empty() {
            return Ok(());
        }
        let target = self.request.resource.authorization_attributes();
        let authorizer = &self.shared.authorizer;
        let decision = authorizer.authorize(&self.request.user, "create", target);
        let Err(forbidden) = decision.await else {
            return Ok(());
        };
        let newest = registry::GetOptions::default();
        match self
            .shared
            .registry
            .get(&self.context, self.resource_path(), &newest)
            .await
        {
            Err(e) if e.code == 404 => Err(forbidden),
            Err(e) => Err(e),
            Ok(_) => Ok(()),
        }
    }

    async fn patch(
        &self,
        headers: &HeaderMap,
        body: Incoming,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let response_options = self.response_options(headers)?;
        let supported = self.resource_info.patch_types();
        let content_type = negotiation::content_type(headers);
        let unsupported = || Status::unsupported_media_type(supported);
        if !supported.contains(&&*content_type) {
            return Err(unsupported());
        }
        if &*content_type == APPLY_PATCH {
            return self.apply(body, response_options).await;
        }
        let mut options = self.write_options(headers, "PatchOptions")?;
        if self.request.query.flag("force") {
            return Err(force_forbidden());
        }
        let bytes = request_body::read_body(body).await?;
        let decoded = request_body::decode_patch(&bytes, &content_type)?;
        options.patch_errors = decoded.strict_errors;
        let value = decoded.value;
        if let Some(audit) = &self.request.audit {
            audit.log_request_patch(&value);
        }
        let patch = match &*content_type {
            JSON_PATCH => Patch::Json(value),
            MERGE_PATCH => Patch::Merge(value),
            STRATEGIC_PATCH => Patch::Strategic(value),
            _ => return Err(unsupported()),
        };
        let registry = &self.shared.registry;
        let written = registry
            .patch(&self.context, self.resource_path(), patch, &options)
            .await?;
        self.write_response(&written, response_options)
    }

    async fn apply(
        &self,
        body: Incoming,
        response_options: ResponseOptions,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let (options, force) = self.parse_options(|q| options::parse_apply_options(q))?;
        let bytes = request_body::read_body(body).await?;
        let decoded = request_body::decode_configuration(&bytes)?;
        if let Some(audit) = &self.request.audit {
            audit.log_request_patch(&decoded.value);
        }
        let strict_errors = decoded.strict_errors;
        if options.field_validation == FieldValidation::Strict && !strict_errors.is_empty() {
            let why = format!("error strict decoding YAML: {}", strict_errors.join(", "));
            return Err(Status::bad_request(why));
        }
        self.authorize_create_on_update().await?;
        let registry = &self.shared.registry;
        let mut written = registry
            .apply(
                &self.context,
                self.resource_path(),
                decoded.value,
                force,
                &options,
            )
            .await?;
        if options.field_validation == FieldValidation::Warn {
            written.warnings.extend(strict_errors);
        }
        self.write_response(&written, response_options)
    }

    /// Options of a write other than apply; its manager is that of the query, or the
    /// client.
    fn write_options(
        &self,
        headers: &HeaderMap,
        kind: &'static str,
    ) -> Result<registry::RegistryWriteOptions, Status> {
        let mut options = self.parse_options(|q| options::parse_write_options(q, kind))?;
        if options.field_manager.is_empty() {
            let user_agent = headers.get(http::header::USER_AGENT);
            let user_agent = user_agent.map(|v| String::from_utf8_lossy(v.as_bytes()));
            let user_agent = user_agent.unwrap_or_default();
            options.field_manager = options::field_manager_of_user_agent(&user_agent);
        }
        Ok(options)
    }

    /// DeleteOptions from the body when there is one, else from the query.
    async fn delete_options(
        &self,
        headers: &HeaderMap,
        body: Incoming,
    ) -> Result<client::DeleteOptions, Status> {
        let bytes = request_body::read_body(body).await?;
        let value = if bytes.is_empty() {
            None
        } else {
            // Clients may send DeleteOptions as protobuf, whatever the kind.
            let body_type: RequestBodySerialization = negotiation::body_type(headers, true)?;
            let decoded = request_body::decode_object(&bytes, body_type);
            let value = decoded.map_err(Status::bad_request)?.value;
            if let Some(audit) = &self.request.audit {
                audit.log_request_object(&value);
            }
            Some(value)
        };
        self.parse_options(|q| options::parse_delete_options(q, value.as_ref()))
    }

    async fn delete(
        &self,
        headers: &HeaderMap,
        body: Incoming,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let response_options = self.response_options(headers)?;
        let options = self.delete_options(headers, body).await?;
        let registry = &self.shared.registry;
        let deleted = registry
            .delete(&self.context, self.resource_path(), &options)
            .await?;
        let mut response = match &deleted.response {
            DeleteResponse::Status(status) => {
                if let Some(audit) = &self.request.audit {
                    audit.log_response_status(status);
                }
                response_writers::write_status(status, response_options.format)
            }
            DeleteResponse::Object { object, .. } => {
                self.audit_object(object);
                response_writers::write_object(
                    200,
                    &self.resource_info,
                    object,
                    response_options,
                    self.shared.clock.now(),
                )?
            }
        };
        response_writers::add_warnings(&mut response, &deleted.warnings);
        Ok(response)
    }

    async fn delete_collection(
        &self,
        headers: &HeaderMap,
        body: Incoming,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let response_options = self.response_options(headers)?;
        let select = self.parse_options(|q| options::parse_list_options(q))?;
        let options = self.delete_options(headers, body).await?;
        let (list, warnings) = self
            .shared
            .registry
            .delete_collection(&self.context, self.resource_path(), &options, &select)
            .await?;
        self.audit_list(&list);
        let now = self.shared.clock.now();
        let mut response = response_writers::write_list(list, response_options, now).await?;
        response_writers::add_warnings(&mut response, &warnings);
        Ok(response)
    }
}

fn force_forbidden() -> Status {
    let kind = machinery::Gvk::from_static("meta.k8s.io", "v1", "PatchOptions");
    let error =
        machinery::FieldError::forbidden("force", "may not be specified for non-apply patch");
    Status::invalid(&kind, "", &[error])
}
