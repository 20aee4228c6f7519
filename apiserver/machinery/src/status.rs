//! `metav1.Status`, the form in which the API reports every failure.
//!
//! Texts and codes follow `apimachinery/pkg/api/errors/errors.go`, because
//! clients match on reason and text. Message, names and causes are bounded, when a failure is
//! made and again when it is encoded.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::bounded_text::{
    MAX_DETAIL_BYTES, MAX_LISTED, MAX_MESSAGE_BYTES, MAX_QUOTED_BYTES, and_more, truncate,
    truncated,
};
use crate::field_error::{FieldError, aggregate};
use crate::names::{Gvk, Gvr, join_group};

/// A failure, or the result of a deletion, as the API reports it (`metav1.Status`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// `Success` or `Failure`.
    pub status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<StatusDetails>>,
    /// The HTTP status code.
    pub code: u16,
    /// `metadata.continue`: the token with which a client may resume a list whose own
    /// token expired.
    #[serde(skip)]
    pub continue_token: Option<Box<str>>,
    /// The warnings that the response has beside the failure.
    #[serde(skip)]
    pub warnings: Box<[String]>,
}

/// The object that the failure is about (`metav1.StatusDetails`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusDetails {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The plural resource name; for the reason `Invalid`, the kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// One of the causes of a failure (`metav1.StatusCause`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusCause {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl StatusDetails {
    /// Bounds every text and the number of causes.
    fn truncate(&mut self) {
        for text in [
            &mut self.name,
            &mut self.group,
            &mut self.kind,
            &mut self.uid,
        ] {
            truncate(text, MAX_QUOTED_BYTES);
        }
        // The last cause stands for the rest.
        if self.causes.len() > MAX_LISTED + 1 {
            let omitted = self.causes.len() - MAX_LISTED;
            self.causes.truncate(MAX_LISTED);
            self.causes.push(StatusCause {
                message: and_more(omitted),
                ..StatusCause::default()
            });
        }
        for cause in &mut self.causes {
            truncate(&mut cause.reason, MAX_QUOTED_BYTES);
            truncate(&mut cause.message, MAX_DETAIL_BYTES);
            truncate(&mut cause.field, MAX_QUOTED_BYTES);
        }
    }
}

const PAGE_NOT_FOUND: &str = "404 page not found";

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Status {
    /// The same failure with more warnings, which come first.
    #[must_use]
    pub fn with_warnings(mut self, mut warnings: Vec<String>) -> Self {
        warnings.extend(std::mem::take(&mut self.warnings));
        self.warnings = warnings.into();
        self
    }

    /// A failure with a code, a reason and a text.
    pub fn failure(code: u16, reason: &str, message: impl Into<String>) -> Self {
        let mut message = message.into();
        truncate(&mut message, MAX_MESSAGE_BYTES);
        Self {
            status: "Failure".into(),
            message,
            reason: reason.into(),
            code,
            ..Self::default()
        }
    }

    /// The same failure within the bounds of a response; its texts may be those of a webhook or
    /// another server.
    fn truncate(&mut self) {
        truncate(&mut self.message, MAX_MESSAGE_BYTES);
        truncate(&mut self.reason, MAX_QUOTED_BYTES);
        if let Some(details) = self.details.as_deref_mut() {
            details.truncate();
        }
    }

    fn with_details(mut self, group: &str, kind: &str, name: &str) -> Self {
        let bounded = |text| truncated(text, MAX_QUOTED_BYTES).into();
        let details = self.details_mut();
        details.group = bounded(group);
        details.kind = bounded(kind);
        details.name = bounded(name);
        self
    }

    fn with_resource_details(self, resource: &Gvr, name: &str) -> Self {
        self.with_details(&resource.group, &resource.resource, name)
    }

    /// The details, created when absent.
    fn details_mut(&mut self) -> &mut StatusDetails {
        self.details.get_or_insert_default()
    }

    /// Asks the client to retry after `seconds` seconds.
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details_mut().retry_after_seconds = seconds;
        self
    }

    /// Adds a cause.
    pub fn with_cause(mut self, reason: &str, message: impl Into<String>, field: &str) -> Self {
        let details = self.details_mut();
        details.causes.push(StatusCause {
            reason: reason.into(),
            message: message.into(),
            field: field.into(),
        });
        details.truncate();
        self
    }

    /// 404 for an object.
    pub fn not_found(resource: &Gvr, name: &str) -> Self {
        Self::failure(
            404,
            "NotFound",
            format!("{} {name:?} not found", resource.group_resource()),
        )
        .with_resource_details(resource, name)
    }

    /// 404 for a URL path.
    pub fn path_not_found() -> Self {
        Self::failure(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
        .with_details("", "", "")
    }

    /// 404 for a URL path below which nothing is served; written as plain text.
    pub fn page_not_found() -> Self {
        Self::failure(404, "", PAGE_NOT_FOUND)
    }

    /// Whether the response is plain text instead of a JSON document.
    pub fn is_plain_text(&self) -> bool {
        self.reason.is_empty() && self.message == PAGE_NOT_FOUND
    }

    /// 409 for a create of an existing object.
    pub fn already_exists(resource: &Gvr, name: &str) -> Self {
        let text = format!("{} {name:?} already exists", resource.group_resource());
        Self::failure(409, "AlreadyExists", text).with_resource_details(resource, name)
    }

    /// 409 for an update that conflicts with the current object.
    pub fn conflict(resource: &Gvr, name: &str, message: impl fmt::Display) -> Self {
        let text = format!(
            "Operation cannot be fulfilled on {} {name:?}: {message}",
            resource.group_resource()
        );
        Self::failure(409, "Conflict", text).with_resource_details(resource, name)
    }

    /// 409 for an update with an outdated `resourceVersion` (`OptimisticLockErrorMsg`).
    pub fn stale_resource_version(resource: &Gvr, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// An applied configuration changes fields that others manage (`NewApplyConflict`).
    pub fn apply_conflict(causes: Vec<StatusCause>, message: impl Into<String>) -> Self {
        let mut status = Self::failure(409, "Conflict", message);
        let details = status.details_mut();
        details.causes = causes;
        details.truncate();
        status
    }

    /// 422 with one cause per field error.
    pub fn invalid(kind: &Gvk, name: &str, errors: &[FieldError]) -> Self {
        let name = &*truncated(name, MAX_QUOTED_BYTES);
        let text = format!(
            "{} {name:?} is invalid: {}",
            join_group(&kind.kind, &kind.group),
            aggregate(errors)
        );
        let mut status =
            Self::failure(422, "Invalid", text).with_details(&kind.group, &kind.kind, name);
        for e in errors.iter().take(MAX_LISTED) {
            status = status.with_cause(e.error_type.as_str(), e.message.clone(), &e.field);
        }
        if errors.len() > MAX_LISTED {
            status = status.with_cause("", and_more(errors.len() - MAX_LISTED), "");
        }
        status
    }

    /// 422 for a well-formed request that cannot be processed (`NewGenericServerResponse`).
    pub fn unprocessable() -> Self {
        Self::failure(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
        .with_details("", "", "")
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, "BadRequest", message)
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::failure(401, "Unauthorized", "Unauthorized")
    }

    /// 403 for an object, or for the whole resource when `name` is empty.
    pub fn forbidden(resource: &Gvr, name: &str, message: impl fmt::Display) -> Self {
        let text = if name.is_empty() {
            format!("{} is forbidden: {message}", resource.group_resource())
        } else {
            format!(
                "{} {name:?} is forbidden: {message}",
                resource.group_resource()
            )
        };
        Self::failure(403, "Forbidden", text).with_resource_details(resource, name)
    }

    /// 403 with the text of a denial by an admission webhook.
    pub fn webhook_denied(webhook: &str, message: impl fmt::Display) -> Self {
        Self::failure(
            403,
            "Forbidden",
            format!("admission webhook {webhook:?} denied the request: {message}"),
        )
    }

    /// 405 for an existing path.
    pub fn method_not_allowed() -> Self {
        Self::failure(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .with_details("", "", "")
    }

    /// 405 for a verb that the resource does not have (`NewMethodNotSupported`).
    pub fn verb_not_supported(resource: &Gvr, verb: &str) -> Self {
        let text = format!(
            "{verb} is not supported on resources of kind {:?}",
            resource.group_resource()
        );
        Self::failure(405, "MethodNotAllowed", text).with_resource_details(resource, "")
    }

    /// 406 that names the media types the server can produce.
    pub fn not_acceptable(types: &[&str]) -> Self {
        let text = format!(
            "only the following media types are accepted: {}",
            types.join(", ")
        );
        Self::failure(406, "NotAcceptable", text)
    }

    /// 413.
    pub fn request_entity_too_large(message: impl Into<String>) -> Self {
        let text = format!("Request entity too large: {}", message.into());
        Self::failure(413, "RequestEntityTooLarge", text)
    }

    /// 415 that names the media types the server can read.
    pub fn unsupported_media_type(types: &[&str]) -> Self {
        let text = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            types.join(", ")
        );
        Self::failure(415, "UnsupportedMediaType", text)
    }

    /// 410 for a list or watch whose revision was compacted.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, "Expired", message)
    }

    /// 429.
    pub fn too_many_requests(message: impl Into<String>, seconds: u32) -> Self {
        Self::failure(429, "TooManyRequests", message).with_retry_after(seconds)
    }

    /// 504 for a read at a revision that the server has not reached yet.
    pub fn resource_version_too_large(requested: u64, current: u64) -> Self {
        let text = format!("Too large resource version: {requested}, current: {current}");
        Self::failure(504, "Timeout", format!("Timeout: {text}"))
            .with_retry_after(1)
            .with_cause("ResourceVersionTooLarge", "Too large resource version", "")
    }

    /// 504 for a request that passed its deadline.
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::failure(504, "Timeout", format!("Timeout: {}", message.into()))
    }

    /// 500 for a store that did not answer in time; the client may retry.
    pub fn server_timeout(resource: &Gvr, operation: &str) -> Self {
        let text = format!(
            "The {operation} operation against {} could not be completed at this time, please try again.",
            resource.group_resource()
        );
        Self::failure(500, "ServerTimeout", text)
            .with_resource_details(resource, operation)
            .with_retry_after(1)
    }

    /// 503 while the server is not ready.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::failure(503, "ServiceUnavailable", message).with_retry_after(1)
    }

    /// 500.
    pub fn internal(message: impl fmt::Display) -> Self {
        let message = message.to_string();
        Self::failure(
            500,
            "InternalError",
            format!("Internal error occurred: {message}"),
        )
        .with_cause("", message, "")
    }

    /// The body of a successful deletion.
    pub fn deletion_success(resource: &Gvr, name: &str, uid: &str) -> Self {
        let mut status = Self {
            status: "Success".into(),
            code: 200,
            ..Self::default()
        }
        .with_resource_details(resource, name);
        status.details_mut().uid = uid.into();
        status
    }

    /// The complete JSON document (`kind: Status`, `apiVersion: v1`).
    pub fn to_json(&self) -> serde_json::Value {
        let mut bounded = self.clone();
        bounded.truncate();
        let mut doc = serde_json::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}});
        if let Some(token) = &self.continue_token {
            doc["metadata"]["continue"] = (**token).into();
        }
        if let (Some(doc), Ok(serde_json::Value::Object(status_fields))) =
            (doc.as_object_mut(), serde_json::to_value(bounded))
        {
            doc.extend(status_fields);
        }
        // Kubernetes omits the code of a Success.
        if self.status == "Success"
            && let Some(doc) = doc.as_object_mut()
        {
            doc.remove("code");
        }
        doc
    }

    /// Whether any cause has this reason.
    pub fn has_cause(&self, reason: &str) -> bool {
        self.details
            .as_ref()
            .is_some_and(|d| d.causes.iter().any(|c| c.reason == reason))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn check_bounds(path: &str, value: &Value) {
        match value {
            Value::String(text) => {
                let max = match path {
                    "status/message" => MAX_MESSAGE_BYTES,
                    "cause/message" => MAX_DETAIL_BYTES,
                    _ => MAX_QUOTED_BYTES,
                };
                assert!(text.len() <= max, "{path}: {}", text.len());
            }
            Value::Array(causes) => {
                assert!(causes.len() <= MAX_LISTED + 1, "{}", causes.len());
                for cause in causes {
                    check_bounds("cause", cause);
                }
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    check_bounds(&format!("{path}/{name}"), value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn text() -> impl Strategy<Value = String> {
        ("[a-zä\"/]{1,8}", 0usize..20_000).prop_map(|(part, times)| part.repeat(times))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_text_of_a_failure_is_bounded(texts in prop::collection::vec(text(), 6), count in 0usize..300) {
            let [a, b, c, d, e, f] = &texts[..] else {
                return Ok(());
            };
            let resource = Gvr::new(a, b, c);
            let kind = Gvk::new(a, b, c);
            let errors = vec![FieldError::invalid(d, &Value::from(e.as_str()), f); count];
            let causes = vec![StatusCause { reason: a.clone(), message: b.clone(), field: c.clone() }; count];
            let received: Status = serde_json::from_value(json!({
                "message": a, "reason": b, "details": {"name": c, "group": d, "kind": e, "uid": f,
                    "causes": vec![json!({"reason": a, "message": b, "field": c}); count]},
            })).unwrap();
            for status in [
                Status::not_found(&resource, d),
                Status::already_exists(&resource, d),
                Status::conflict(&resource, d, e),
                Status::forbidden(&resource, d, e),
                Status::invalid(&kind, d, &errors),
                Status::apply_conflict(causes, d.as_str()),
                Status::bad_request(d.as_str()),
                Status::webhook_denied(d, e),
                Status::server_timeout(&resource, d),
                Status::internal(d),
                Status::deletion_success(&resource, d, e),
                Status::timeout(d.as_str()).with_cause(a, b.as_str(), c),
                received,
            ] {
                check_bounds("status", &status.to_json());
            }
        }
    }

    #[test]
    fn bodies_are_those_of_kubernetes() {
        let pods = Gvr::from_static("", "v1", "pods");
        assert_eq!(
            Status::not_found(&pods, "a").to_json(),
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "pods \"a\" not found",
                   "reason": "NotFound", "details": {"name": "a", "kind": "pods"}, "code": 404})
        );
        let kind = Gvk::from_static("apps", "v1", "Deployment");
        let errors = [FieldError::required("spec.selector", "")];
        assert_eq!(
            Status::invalid(&kind, "d", &errors).to_json()["details"],
            json!({"name": "d", "group": "apps", "kind": "Deployment",
                   "causes": [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.selector"}]})
        );
        assert_eq!(
            Status::deletion_success(&pods, "a", "u").to_json()["details"]["uid"],
            "u"
        );
    }
}
