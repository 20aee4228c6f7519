//! Handles get, list and watch (kube-apiserver's `endpoints/handlers/get.go`, `watch.go`).

use std::sync::Arc;

use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use machinery::Status;
use registry::options;

use super::ResourceRequestHandler;
use crate::negotiation::{self, Representation, ResponseSerialization};
use crate::response_body::ServerResponseBody;
use crate::response_writers;
use crate::subresources::find_subresource;
use crate::watch;
use crate::websocket_handshake::{accept_websocket_of_one_protocol, is_websocket_request};
use crate::websocket_watch;

impl ResourceRequestHandler<'_> {
    pub(super) async fn get(
        &self,
        headers: &HeaderMap,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let response_options = self.response_options(headers)?;
        if let Some(getter) = find_subresource(&self.shared.getters, &self.request.resource) {
            let path = self.resource_path();
            let value = getter.get_subresource(path.namespace, path.name).await?;
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

    pub(super) async fn list(
        &self,
        headers: &HeaderMap,
    ) -> Result<Response<ServerResponseBody>, Status> {
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
        let mut list = registry
            .list(&self.context, self.resource_path(), &options)
            .await?;
        self.audit_list(&list);
        let warnings = std::mem::take(&mut list.warnings);
        let now = self.shared.clock.now();
        let mut response = response_writers::write_list(list, response_options, now).await?;
        response_writers::add_warnings(&mut response, &warnings);
        Ok(response)
    }

    pub(super) async fn watch(
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
        let switched = is_websocket_request(headers)
            .then(|| accept_websocket_of_one_protocol(headers))
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
            let sending = websocket_watch::send_events(upgrade, events, encoding);
            self.shared.watch_drain.spawn_upgraded(sending);
            return Ok(response);
        }
        let mut response = Response::new(ServerResponseBody::events(events));
        let content_type = watch::content_type(response_options.format.encoding);
        response
            .headers_mut()
            .insert(http::header::CONTENT_TYPE, content_type);
        Ok(response)
    }
}
