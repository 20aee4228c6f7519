//! `Status`: the one form in which the API reports failure.
//!
//! Texts and codes follow `apimachinery/pkg/api/errors/errors.go`, because
//! clients match on reason and text.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::fields::{FieldError, aggregate};
use crate::names::{Gvk, Gvr, qualify};

/// A failure (or the outcome of a deletion) as the API tells it.
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
    pub details: Option<Box<Details>>,
    /// The HTTP code.
    pub code: u16,
    /// `metadata.continue`: where a client whose token expired may go on.
    #[serde(skip)]
    pub continue_token: Option<String>,
}

/// What the failure is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The resource for most reasons, the kind for `Invalid`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// One reason among several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cause {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Status {
    /// A failure with a code, a reason and a text.
    pub fn failure(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            status: "Failure".into(),
            message: message.into(),
            reason: reason.into(),
            code,
            ..Self::default()
        }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        let details = self.details_mut();
        details.group = group.into();
        details.kind = kind.into();
        details.name = name.into();
        self
    }

    fn about_resource(self, resource: &Gvr, name: &str) -> Self {
        self.about(&resource.group, &resource.resource, name)
    }

    /// The details, made when absent.
    pub fn details_mut(&mut self) -> &mut Details {
        self.details.get_or_insert_default()
    }

    /// Asks the client to come back after some seconds.
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.details_mut().retry_after_seconds = seconds;
        self
    }

    /// Adds a cause.
    pub fn cause(mut self, reason: &str, message: impl Into<String>, field: &str) -> Self {
        let cause = Cause {
            reason: reason.into(),
            message: message.into(),
            field: field.into(),
        };
        self.details_mut().causes.push(cause);
        self
    }

    /// 404 of an object.
    pub fn not_found(resource: &Gvr, name: &str) -> Self {
        Self::failure(
            404,
            "NotFound",
            format!("{} {name:?} not found", resource.qualified()),
        )
        .about_resource(resource, name)
    }

    /// 404 of a path.
    pub fn no_such_path() -> Self {
        Self::failure(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
        .about("", "", "")
    }

    /// 409 of a create.
    pub fn already_exists(resource: &Gvr, name: &str) -> Self {
        let text = format!("{} {name:?} already exists", resource.qualified());
        Self::failure(409, "AlreadyExists", text).about_resource(resource, name)
    }

    /// 409 of a write against an older state.
    pub fn conflict(resource: &Gvr, name: &str, why: impl fmt::Display) -> Self {
        let text = format!(
            "Operation cannot be fulfilled on {} {name:?}: {why}",
            resource.qualified()
        );
        Self::failure(409, "Conflict", text).about_resource(resource, name)
    }

    /// 409 with the text of a stale resourceVersion.
    pub fn stale(resource: &Gvr, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 422 with a cause per field error.
    pub fn invalid(kind: &Gvk, name: &str, errors: &[FieldError]) -> Self {
        let text = format!(
            "{} {name:?} is invalid: {}",
            qualify(&kind.kind, &kind.group),
            aggregate(errors)
        );
        let mut status = Self::failure(422, "Invalid", text).about(&kind.group, &kind.kind, name);
        for e in errors {
            status = status.cause(e.reason.as_str(), e.message.clone(), &e.field);
        }
        status
    }

    /// 422 of a request that is well formed but cannot be done.
    pub fn unprocessable() -> Self {
        Self::failure(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
        .about("", "", "")
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, "BadRequest", message)
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::failure(401, "Unauthorized", "Unauthorized")
    }

    /// 403 of an object.
    pub fn forbidden(resource: &Gvr, name: &str, why: impl fmt::Display) -> Self {
        let text = if name.is_empty() {
            format!("{} is forbidden: {why}", resource.qualified())
        } else {
            format!("{} {name:?} is forbidden: {why}", resource.qualified())
        };
        Self::failure(403, "Forbidden", text).about_resource(resource, name)
    }

    /// 403 as an admission webhook gives it.
    pub fn denied(webhook: &str, why: impl fmt::Display) -> Self {
        Self::failure(
            403,
            "Forbidden",
            format!("admission webhook {webhook:?} denied the request: {why}"),
        )
    }

    /// 405 of a path that is there.
    pub fn method_not_allowed() -> Self {
        Self::failure(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .about("", "", "")
    }

    /// 406 naming what can be had.
    pub fn not_acceptable(types: &[&str]) -> Self {
        let text = format!(
            "only the following media types are accepted: {}",
            types.join(", ")
        );
        Self::failure(406, "NotAcceptable", text)
    }

    /// 413.
    pub fn too_large(message: impl Into<String>) -> Self {
        let text = format!("Request entity too large: {}", message.into());
        Self::failure(413, "RequestEntityTooLarge", text)
    }

    /// 415 naming what is taken.
    pub fn unsupported_media_type(types: &[&str]) -> Self {
        let text = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            types.join(", ")
        );
        Self::failure(415, "UnsupportedMediaType", text)
    }

    /// 410 of a list or watch whose revision is gone.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, "Expired", message)
    }

    /// 429.
    pub fn too_many_requests(message: impl Into<String>, seconds: u32) -> Self {
        Self::failure(429, "TooManyRequests", message).retry_after(seconds)
    }

    /// 504 of a read that asks for a revision which is not there yet.
    pub fn revision_too_large(asked: u64, current: u64) -> Self {
        let text = format!("Too large resource version: {asked}, current: {current}");
        Self::failure(504, "Timeout", format!("Timeout: {text}"))
            .retry_after(1)
            .cause("ResourceVersionTooLarge", "Too large resource version", "")
    }

    /// 504 of a request past its deadline.
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::failure(504, "Timeout", format!("Timeout: {}", message.into()))
    }

    /// 500 of a store that did not answer in time; worth a retry.
    pub fn server_timeout(resource: &Gvr, operation: &str) -> Self {
        let text = format!(
            "The {operation} operation against {} could not be completed at this time, please try again.",
            resource.qualified()
        );
        Self::failure(500, "ServerTimeout", text)
            .about_resource(resource, operation)
            .retry_after(1)
    }

    /// 503 while not ready.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::failure(503, "ServiceUnavailable", message).retry_after(1)
    }

    /// 500.
    pub fn internal(why: impl fmt::Display) -> Self {
        let why = why.to_string();
        Self::failure(
            500,
            "InternalError",
            format!("Internal error occurred: {why}"),
        )
        .cause("", why, "")
    }

    /// The body of a successful deletion.
    pub fn deleted(resource: &Gvr, name: &str, uid: &str) -> Self {
        let mut status = Self {
            status: "Success".into(),
            code: 200,
            ..Self::default()
        }
        .about_resource(resource, name);
        status.details_mut().uid = uid.into();
        status
    }

    /// The complete JSON document (`kind: Status`, `apiVersion: v1`).
    pub fn document(&self) -> serde_json::Value {
        let mut doc = serde_json::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}});
        if let Some(token) = &self.continue_token {
            doc["metadata"]["continue"] = token.as_str().into();
        }
        if let (Some(doc), Ok(serde_json::Value::Object(own))) =
            (doc.as_object_mut(), serde_json::to_value(self))
        {
            doc.extend(own);
        }
        // Kubernetes leaves the code out of a Success that is not an error.
        if self.status == "Success"
            && let Some(doc) = doc.as_object_mut()
        {
            doc.remove("code");
        }
        doc
    }

    /// The first cause's reason equals `reason`.
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
    use serde_json::json;

    #[test]
    fn bodies_are_those_of_kubernetes() {
        let pods = Gvr::constant("", "v1", "pods");
        assert_eq!(
            Status::not_found(&pods, "a").document(),
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "pods \"a\" not found",
                   "reason": "NotFound", "details": {"name": "a", "kind": "pods"}, "code": 404})
        );
        let kind = Gvk::constant("apps", "v1", "Deployment");
        let errors = [FieldError::required("spec.selector", "")];
        assert_eq!(
            Status::invalid(&kind, "d", &errors).document()["details"],
            json!({"name": "d", "group": "apps", "kind": "Deployment",
                   "causes": [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.selector"}]})
        );
        assert_eq!(
            Status::deleted(&pods, "a", "u").document()["details"]["uid"],
            "u"
        );
    }
}
