//! `POST serviceaccounts/NAME/token`.
//!
//! Enters: the body of a TokenRequest and the account. Leaves: the same with
//! `status.token`, or why not (`pkg/registry/core/serviceaccount/storage/token.go`).

use client::At;
use jiff::{SignedDuration, Timestamp};
use machinery::time::rfc3339_seconds;
use machinery::{FieldError, Gvk, Object, Status};
use serde_json::{Value, json};

use crate::authenticate::{Authenticator, NODES, PODS, SECRETS};
use crate::token::{Bound, Claims};

const KIND: Gvk = Gvk::constant("authentication.k8s.io", "v1", "TokenRequest");
const HOUR: i64 = 3600;
const SHORTEST: i64 = 600;
const LONGEST: i64 = 1 << 32;
/// What the server grants at most; longer wishes are cut, not refused.
const GRANTED: i64 = 365 * 24 * HOUR;

impl Authenticator {
    /// Issues a token for `account`. Nothing is stored.
    pub async fn token_request(&self, account: &Object, body: Value) -> Result<Value, Status> {
        let spec = &body["spec"];
        let mut errors = Vec::new();
        let seconds = spec["expirationSeconds"].as_i64().unwrap_or(HOUR);
        let shown = &spec["expirationSeconds"];
        if seconds < SHORTEST {
            let why = "may not specify a duration less than 10 minutes";
            errors.push(FieldError::invalid("spec.expirationSeconds", shown, why));
        } else if seconds > LONGEST {
            let why = "may not specify a duration larger than 2^32 seconds";
            errors.push(FieldError::invalid("spec.expirationSeconds", shown, why));
        }
        if !errors.is_empty() {
            return Err(Status::invalid(&KIND, "", &errors));
        }
        let mut audiences: Vec<String> = spec["audiences"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|a| a.as_str().map(str::to_owned))
            .collect();
        if audiences.is_empty() {
            audiences.push(self.signer().issuer().to_owned());
        }
        let bound = self
            .bound(account.namespace(), &spec["boundObjectRef"])
            .await?;
        let now = self.now();
        let expires = now + SignedDuration::from_secs(seconds.min(GRANTED));
        self.reply(account, body, audiences, bound, now, expires)
    }

    fn reply(
        &self,
        account: &Object,
        mut body: Value,
        audiences: Vec<String>,
        bound: Option<Bound>,
        now: Timestamp,
        expires: Timestamp,
    ) -> Result<Value, Status> {
        let claims = Claims {
            namespace: account.namespace().into(),
            account: account.name().into(),
            account_uid: account.uid().into(),
            bound,
            secret: None,
            audiences: audiences.clone(),
            expires: Some(expires.as_second()),
            not_before: Some(now.as_second()),
            id: unique(account.uid(), now),
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

    async fn bound(&self, namespace: &str, reference: &Value) -> Result<Option<Bound>, Status> {
        if reference.is_null() {
            return Ok(None);
        }
        let kind = reference["kind"].as_str().unwrap_or_default();
        let name = reference["name"].as_str().unwrap_or_default();
        let (gvr, namespace) = match kind {
            "Pod" => (PODS, namespace),
            "Secret" => (SECRETS, namespace),
            "Node" => (NODES, ""),
            _ => {
                return Err(Status::bad_request(format!(
                    "cannot bind token to object of type {}, Kind={kind}",
                    reference["apiVersion"].as_str().unwrap_or_default()
                )));
            }
        };
        let api = self
            .api()
            .ok_or_else(|| Status::unavailable("not ready yet"))?;
        let object = api
            .get(At::one(&gvr, namespace, name))
            .await
            .map_err(|e| match e {
                client::Error::Status(status) => *status,
                other => Status::internal(other),
            })?;
        if let Some(uid) = reference["uid"].as_str()
            && !uid.is_empty()
            && uid != object.uid()
        {
            let why = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(Status::conflict(&gvr, name, why));
        }
        Ok(Some(Bound {
            kind: kind.into(),
            name: name.into(),
            uid: object.uid().into(),
        }))
    }
}

/// A token's id: like a UUID, no two are the same.
fn unique(seed: &str, now: Timestamp) -> String {
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
