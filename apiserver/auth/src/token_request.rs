//! Serves `POST serviceaccounts/NAME/token`: issues the token of a TokenRequest
//! (`pkg/registry/core/serviceaccount/storage/token.go`).

use client::ResourcePath;
use jiff::{SignedDuration, Timestamp};
use machinery::names::split_api_version;
use machinery::time::rfc3339_seconds;
use machinery::{FieldError, Gvk, Object, Status};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::authenticator::{LocalAuthenticator, NODES, PODS, SECRETS};
use crate::token::{ServiceAccountClaims, TokenBoundObject};

const KIND: Gvk = Gvk::from_static("authentication.k8s.io", "v1", "TokenRequest");
const HOUR_SECONDS: i64 = 3600;
const MIN_EXPIRATION_SECONDS: i64 = 600;
const MAX_EXPIRATION_SECONDS: i64 = 1 << 32;
/// Longest lifetime the server grants; longer requests are shortened, not refused.
const MAX_GRANTED_SECONDS: i64 = 365 * 24 * HOUR_SECONDS;

/// The fields of a TokenRequest that are read.
#[derive(Deserialize)]
struct TokenRequestBody {
    metadata: Option<TokenRequestMetadata>,
    spec: Option<TokenRequestSpec>,
}

#[derive(Deserialize)]
struct TokenRequestMetadata {
    name: Option<String>,
    namespace: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct TokenRequestSpec {
    audiences: Option<Vec<String>>,
    expiration_seconds: Option<i64>,
    bound_object_ref: Option<BoundObjectReference>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BoundObjectReference {
    kind: Option<String>,
    api_version: Option<String>,
    name: Option<String>,
    uid: Option<String>,
}

/// The service account of a pod.
#[derive(Deserialize)]
struct PodWithServiceAccountName {
    spec: PodSpecWithServiceAccountName,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpecWithServiceAccountName {
    #[serde(default = "default_account")]
    service_account_name: String,
}

/// The service account of pods that name none.
fn default_account() -> String {
    "default".into()
}

impl LocalAuthenticator {
    /// Issues a token for `account`. Nothing is stored.
    pub async fn token_request(&self, account: &Object, body: Value) -> Result<Value, Status> {
        // A field of the wrong type is an error: without its audience or bound object
        // the token would be valid for more than was requested.
        let request = TokenRequestBody::deserialize(&body)
            .map_err(|e| Status::bad_request(format!("unable to decode TokenRequest: {e}")))?;
        validate_metadata(account, request.metadata.as_ref())?;
        let spec = request.spec.unwrap_or_default();
        let seconds = lifetime(&spec)?;
        let mut audiences = spec.audiences.unwrap_or_default();
        if audiences.is_empty() {
            audiences = self.audiences().to_vec();
        }
        let bound = match &spec.bound_object_ref {
            Some(reference) => Some(self.bound_object(account, reference).await?),
            None => None,
        };
        let now = self.now();
        let expires = now + SignedDuration::from_secs(seconds.min(MAX_GRANTED_SECONDS));
        self.token_response(account, body, audiences, bound, now, expires)
    }

    fn token_response(
        &self,
        account: &Object,
        mut body: Value,
        audiences: Vec<String>,
        bound: Option<TokenBoundObject>,
        now: Timestamp,
        expires: Timestamp,
    ) -> Result<Value, Status> {
        let claims = ServiceAccountClaims {
            namespace: account.namespace().into(),
            account: account.name().into(),
            account_uid: account.uid().into(),
            bound,
            secret: None,
            audiences: audiences.clone(),
            expires: Some(expires.as_second()),
            not_before: Some(now.as_second()),
            id: new_token_id(account.uid(), now),
        };
        let token = self
            .signer()
            .issue(&claims, now)
            .map_err(Status::internal)?;
        let bound_ref = body["spec"].get("boundObjectRef").cloned();
        body["apiVersion"] = KIND.api_version().into();
        body["kind"] = KIND.kind.as_ref().into();
        body["metadata"] = json!({
            "name": account.name(),
            "namespace": account.namespace(),
            "creationTimestamp": rfc3339_seconds(now),
        });
        body["spec"] = json!({
            "audiences": audiences,
            "expirationSeconds": expires.as_second() - now.as_second(),
            "boundObjectRef": bound_ref,
        });
        body["status"] = json!({
            "token": token,
            "expirationTimestamp": rfc3339_seconds(expires),
        });
        Ok(body)
    }

    /// Reads the object that the token is bound to. A pod must run as the account, so
    /// that the permission for one account's token does not extend to the pods of
    /// another.
    async fn bound_object(
        &self,
        account: &Object,
        reference: &BoundObjectReference,
    ) -> Result<TokenBoundObject, Status> {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let (kind, name) = (text(&reference.kind), text(&reference.name));
        let api_version = text(&reference.api_version);
        let (gvr, namespace) = match (split_api_version(&api_version).0, kind.as_str()) {
            ("", "Pod") => (PODS, account.namespace()),
            ("", "Secret") => (SECRETS, account.namespace()),
            ("", "Node") => (NODES, ""),
            _ => {
                return Err(Status::bad_request(format!(
                    "cannot bind token to object of type {api_version}, Kind={kind}"
                )));
            }
        };
        let api = self
            .api()
            .ok_or_else(|| Status::unavailable("service accounts cannot be read yet"))?;
        let object = api
            .get(ResourcePath::object(&gvr, namespace, &name))
            .await
            .map_err(|e| match e {
                client::Error::Status(status) => *status,
                other => Status::internal(other),
            })?;
        if gvr == PODS {
            let pod: PodWithServiceAccountName =
                machinery::json::from_slice(&object.bytes()).map_err(Status::internal)?;
            if pod.spec.service_account_name != account.name() {
                return Err(Status::bad_request(format!(
                    "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                    account.name()
                )));
            }
        }
        let uid = text(&reference.uid);
        if !uid.is_empty() && uid != object.uid() {
            let message = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(Status::conflict(&gvr, &name, message));
        }
        Ok(TokenBoundObject {
            kind,
            name,
            uid: object.uid().into(),
        })
    }
}

/// Fails with 422 when the body names another account than the path.
fn validate_metadata(
    account: &Object,
    metadata: Option<&TokenRequestMetadata>,
) -> Result<(), Status> {
    let Some(metadata) = metadata else {
        return Ok(());
    };
    for (field, value, expected) in [
        ("name", &metadata.name, account.name()),
        ("namespace", &metadata.namespace, account.namespace()),
    ] {
        let value = value.as_deref().unwrap_or_default();
        if !value.is_empty() && value != expected {
            let message = format!("must match the service account {field} if specified");
            let error = FieldError::invalid(format!("metadata.{field}"), &value.into(), message);
            return Err(Status::invalid(&KIND, account.name(), &[error]));
        }
    }
    Ok(())
}

/// The requested lifetime in seconds; 422 when out of range.
fn lifetime(spec: &TokenRequestSpec) -> Result<i64, Status> {
    let seconds = spec.expiration_seconds.unwrap_or(HOUR_SECONDS);
    let message = match seconds {
        ..MIN_EXPIRATION_SECONDS => "may not specify a duration less than 10 minutes",
        MIN_EXPIRATION_SECONDS..=MAX_EXPIRATION_SECONDS => return Ok(seconds),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    let error = FieldError::invalid("spec.expirationSeconds", &seconds.into(), message);
    Err(Status::invalid(&KIND, "", &[error]))
}

/// A unique token ID in the form of a UUID.
fn new_token_id(seed: &str, now: Timestamp) -> String {
    use sha2::{Digest, Sha256};
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let text = format!(
        "{seed}/{}/{count}/{}",
        now.as_nanosecond(),
        std::process::id()
    );
    let hex: String = Sha256::digest(text)
        .iter()
        .take(16)
        .map(|b| format!("{b:02x}"))
        .collect();
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}
