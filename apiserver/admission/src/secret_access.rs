//! Checks that the writer of a Cluster or a ResourceRegistry may read the Secrets that it
//! references.
//!
//! The control plane sends what is in those Secrets to the Cluster's `apiEndpoint`, or to the
//! addresses of the registry's backend. Without this check, anybody who may write these kinds
//! could have any Secret of the control plane sent to a server of their own.

use machinery::{Gvr, Status};
use serde_json::Value;

use crate::attributes::AdmissionAttributes;
use crate::resource_access::{AccessedResource, ResourceAuthorizer};
use crate::unstructured::{has, text};

const SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");

/// A Secret that an object references.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SecretReference<'a> {
    pub(crate) field: &'static str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The field with the address to which its content is sent.
    pub(crate) sent_to: &'static str,
}

/// The fields of a kind that reference Secrets, and the fields that decide where the content of the
/// Secrets is sent.
pub(crate) struct SecretReferenceFields {
    /// Pointers to the references, and the fields as errors name them.
    pub(crate) references: &'static [(&'static str, &'static str)],
    /// Pointers.
    pub(crate) connection: &'static [&'static str],
    pub(crate) sent_to: &'static str,
}

impl SecretReferenceFields {
    /// The Secrets that a write puts to a new use: all Secrets of a new object, the Secrets of
    /// changed references, and all Secrets when the connection changes.
    pub(crate) fn to_authorize<'a>(
        &self,
        new: &'a Value,
        old: Option<&Value>,
    ) -> Vec<SecretReference<'a>> {
        let changed = |path: &str| old.is_none_or(|old| is_changed(new, old, path));
        let connection_changed = self.connection.iter().any(|path| changed(path));
        let references = self.references.iter();
        references
            .filter(|(path, _)| has(new, path) && (connection_changed || changed(path)))
            .map(|(path, field)| SecretReference {
                field,
                namespace: text(new, &format!("{path}/namespace")),
                name: text(new, &format!("{path}/name")),
                sent_to: self.sent_to,
            })
            .collect()
    }
}

/// Whether a field has changed; absent, empty and false are equal.
pub(crate) fn is_changed(new: &Value, old: &Value, path: &str) -> bool {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::String(text) => text.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    let field = |value: &'_ Value| value.pointer(path).cloned().unwrap_or_default();
    let (new, old) = (field(new), field(old));
    new != old && !(is_empty(&new) && is_empty(&old))
}

/// Fails with 403 when an object would use a Secret that its writer may not get.
pub(crate) async fn check(
    authorizer: &dyn ResourceAuthorizer,
    attributes: &AdmissionAttributes<'_>,
    name: &str,
    secrets: &[SecretReference<'_>],
) -> Result<(), Status> {
    for secret in secrets {
        let target = AccessedResource {
            resource: &SECRETS,
            namespace: secret.namespace,
            name: secret.name,
        };
        if authorizer.may(attributes.user, "get", target).await? {
            continue;
        }
        let message = format!(
            "User {:?} cannot get the Secret {}/{}, whose content is sent to {}",
            attributes.user.name, secret.namespace, secret.name, secret.sent_to
        );
        let field = secret.field;
        let status = Status::forbidden(attributes.gvr, name, format!("{field}: {message}"));
        return Err(status.with_cause("FieldValueForbidden", message, field));
    }
    Ok(())
}
