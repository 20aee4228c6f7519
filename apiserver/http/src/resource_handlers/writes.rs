//! Handles create, update, patch, apply and delete: decodes the body and the options, and
//! writes what the registry returns (`create.go`, `update.go`, `patch.go` and `delete.go` of
//! kube-apiserver's `endpoints/handlers`).

use bytes::Bytes;
use client::Patch;
use http::{HeaderMap, Response};
use machinery::Status;
use machinery::bounded_text::joined;
use registry::{DeleteResponse, FieldValidation, WriteResult, options};

use super::ResourceRequestHandler;
use crate::negotiation::{self, RequestBodySerialization};
use crate::request_body::{self, ChargedRequestBody, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH};
use crate::request_memory::MemoryCharge;
use crate::response_body::ServerResponseBody;
use crate::response_writers::{self, ResponseOptions};

const APPLY_PATCH: &str = "application/apply-patch+yaml";

impl ResourceRequestHandler<'_> {
    /// Decodes the object in a request body, whose memory is charged.
    fn decode_body(
        &self,
        headers: &HeaderMap,
        mut body: ChargedRequestBody,
    ) -> Result<(registry::ObjectBody, MemoryCharge), Status> {
        let body_type = negotiation::body_type(headers, self.has_protobuf_form())?;
        body.charge_write(body_type)?;
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
        let decoded = request_body::decode_object_of_kind(&body, body_type, kind, is_custom)?;
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
        let is_typed_json = body_type == RequestBodySerialization::Json && info.has_go_type();
        let (bytes, charge) = body.into_parts();
        let object = registry::ObjectBody {
            value: decoded.value,
            duplicate_fields: decoded.duplicate_keys,
            json: match is_typed_json {
                true => bytes,
                false => Bytes::new(),
            },
        };
        Ok((object, charge))
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

    pub(super) async fn create(
        &self,
        headers: &HeaderMap,
        body: ChargedRequestBody,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let response_options = self.response_options(headers)?;
        let options = self.write_options(headers, "CreateOptions")?;
        let (body, _charged) = self.decode_body(headers, body)?;
        let registry = &self.shared.registry;
        let mut written = registry
            .create(&self.context, self.resource_path(), body, &options)
            .await?;
        // POST returns 201 even where nothing is stored, as for reviews.
        written.created = true;
        self.write_response(&written, response_options)
    }

    pub(super) async fn update(
        &self,
        headers: &HeaderMap,
        body: ChargedRequestBody,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let response_options = self.response_options(headers)?;
        let options = self.write_options(headers, "UpdateOptions")?;
        let (body, _charged) = self.decode_body(headers, body)?;
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

    pub(super) async fn patch(
        &self,
        headers: &HeaderMap,
        mut body: ChargedRequestBody,
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
        body.charge_write(RequestBodySerialization::Json)?;
        let decoded = request_body::decode_patch(&body, &content_type)?;
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
        mut body: ChargedRequestBody,
        response_options: ResponseOptions,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let (options, force) = self.parse_options(|q| options::parse_apply_options(q))?;
        body.charge_configuration()?;
        let decoded = request_body::decode_configuration(&body)?;
        if let Some(audit) = &self.request.audit {
            audit.log_request_patch(&decoded.value);
        }
        let strict_errors = decoded.strict_errors;
        if options.field_validation == FieldValidation::Strict && !strict_errors.is_empty() {
            let message = format!(
                "error strict decoding YAML: {}",
                joined(&strict_errors, ", ")
            );
            return Err(Status::bad_request(message));
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

    /// Options of a write other than apply. The manager comes from the query, or is the client.
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
    fn delete_options(
        &self,
        headers: &HeaderMap,
        mut body: ChargedRequestBody,
    ) -> Result<client::DeleteOptions, Status> {
        let value = if body.is_empty() {
            None
        } else {
            // Clients may send DeleteOptions as protobuf, whatever the kind.
            let body_type: RequestBodySerialization = negotiation::body_type(headers, true)?;
            body.charge_write(body_type)?;
            let decoded = request_body::decode_object(&body, body_type);
            let value = decoded.map_err(Status::bad_request)?.value;
            if let Some(audit) = &self.request.audit {
                audit.log_request_object(&value);
            }
            Some(value)
        };
        self.parse_options(|q| options::parse_delete_options(q, value.as_ref()))
    }

    pub(super) async fn delete(
        &self,
        headers: &HeaderMap,
        body: ChargedRequestBody,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let response_options = self.response_options(headers)?;
        let options = self.delete_options(headers, body)?;
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

    pub(super) async fn delete_collection(
        &self,
        headers: &HeaderMap,
        body: ChargedRequestBody,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let response_options = self.response_options(headers)?;
        let select = self.parse_options(|q| options::parse_list_options(q))?;
        let options = self.delete_options(headers, body)?;
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
