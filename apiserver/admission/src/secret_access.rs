//! Checks that the writer of a Cluster may read the Secrets that the Cluster
//! references.
//!
//! The control plane sends the tokens in those Secrets to the Cluster's `apiEndpoint`.
//! Without this check, anybody who may write Clusters could have any token of the
//! control plane sent to a server of their own.

use async_trait::async_trait;
use machinery::{Status, UserInfo};
use serde_json::Value;

use crate::attributes::AdmissionAttributes;
use crate::cluster;

/// Decides whether a user may `get` a Secret. Fails when this cannot be decided.
#[async_trait]
pub trait SecretAuthorizer: Send + Sync {
    async fn may_get(&self, user: &UserInfo, namespace: &str, name: &str) -> Result<bool, Status>;
}

/// Fails with 403 when the Cluster would use a Secret that its writer may not get.
pub(crate) async fn check(
    authorizer: &dyn SecretAuthorizer,
    attributes: &AdmissionAttributes<'_>,
    name: &str,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    for secret in cluster::secrets_to_authorize(new, old) {
        let allowed = authorizer.may_get(attributes.user, secret.namespace, secret.name);
        if allowed.await? {
            continue;
        }
        let why = format!(
            "User {:?} cannot get the Secret {}/{}, whose token is sent to spec.apiEndpoint",
            attributes.user.name, secret.namespace, secret.name
        );
        let field = secret.field;
        let status = Status::forbidden(attributes.gvr, name, format!("{field}: {why}"));
        return Err(status.with_cause("FieldValueForbidden", why, field));
    }
    Ok(())
}
