//! Creates the review resources of `authentication.k8s.io/v1` and
//! `authorization.k8s.io/v1`: each function returns the body of a review with its
//! status. Nothing is stored.

use std::collections::BTreeMap;

use machinery::{FieldError, Gvk, Status, UserInfo};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::Denied;
use crate::authenticate::Authenticator;
use crate::rbac::{Authorizer, Target};

const AUTHN: &str = "authentication.k8s.io";
const AUTHZ: &str = "authorization.k8s.io";

fn reply(body: Value, group: &'static str, kind: &'static str, status: Value) -> Value {
    let mut body = match body {
        Value::Object(_) => body,
        _ => json!({}),
    };
    body["apiVersion"] = format!("{group}/v1").into();
    body["kind"] = kind.into();
    if !body["metadata"].is_object() {
        body["metadata"] = json!({});
    }
    body["metadata"]["creationTimestamp"] = Value::Null;
    body["status"] = status;
    body
}

#[derive(Deserialize, Default)]
struct TokenSpec {
    token: Option<String>,
    audiences: Option<Vec<String>>,
}

/// Creates a TokenReview.
pub async fn token_review(authenticator: &Authenticator, body: Value) -> Result<Value, Status> {
    let spec = Option::<TokenSpec>::deserialize(&body["spec"])
        .map_err(|e| Status::bad_request(format!("TokenReview: spec: {e}")))?;
    let TokenSpec { token, audiences } = spec.unwrap_or_default();
    let token = token.filter(|token| !token.is_empty()).ok_or_else(|| {
        Status::bad_request("token is required for TokenReview in authentication")
    })?;
    let audiences = audiences.unwrap_or_default();
    let status = match authenticator.token(&token, &audiences).await {
        Ok((user, matched)) => {
            let mut status = json!({"authenticated": true, "user": *user});
            if !audiences.is_empty() {
                status["audiences"] = json!(matched);
            }
            status
        }
        Err(Denied::Refused(refused)) => json!({"user": {}, "error": refused.to_string()}),
        Err(Denied::Unknown(status)) => return Err(*status),
    };
    Ok(reply(body, AUTHN, "TokenReview", status))
}

/// Creates a SelfSubjectReview: the user info of the caller.
pub fn self_subject_review(user: &UserInfo, body: Value) -> Value {
    reply(body, AUTHN, "SelfSubjectReview", json!({"userInfo": user}))
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    resource_attributes: Option<ResourceAttributes>,
    non_resource_attributes: Option<PathAttributes>,
    user: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResourceAttributes {
    namespace: String,
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PathAttributes {
    path: String,
    verb: String,
}

fn spec(body: &Value, kind: &'static str) -> Result<Spec, Status> {
    let spec: Spec = match body.get("spec") {
        Some(Value::Null) | None => Spec::default(),
        Some(spec) => serde_json::from_value(spec.clone())
            .map_err(|e| Status::bad_request(format!("{kind}: spec: {e}")))?,
    };
    if spec.resource_attributes.is_some() == spec.non_resource_attributes.is_some() {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        let error = FieldError::invalid("spec.resourceAttributes", &Value::Null, why);
        return Err(Status::invalid(
            &Gvk::constant(AUTHZ, "v1", kind),
            "",
            &[error],
        ));
    }
    Ok(spec)
}

fn decide(authorizer: &Authorizer, user: &UserInfo, spec: &Spec) -> Value {
    let decision = match (&spec.resource_attributes, &spec.non_resource_attributes) {
        (Some(r), _) => authorizer.explain(
            user,
            &r.verb,
            Target::Resource {
                group: &r.group,
                version: &r.version,
                resource: &r.resource,
                subresource: &r.subresource,
                namespace: &r.namespace,
                name: &r.name,
            },
        ),
        (None, p) => {
            let (path, verb) = p.as_ref().map_or(("", ""), |p| (&p.path, &p.verb));
            authorizer.explain(user, verb, Target::Path(path))
        }
    };
    let mut status = json!({"allowed": decision.allowed});
    if !decision.reason.is_empty() {
        status["reason"] = decision.reason.into();
    }
    if !decision.error.is_empty() {
        status["evaluationError"] = decision.error.into();
    }
    status
}

/// Creates a SelfSubjectAccessReview.
pub fn self_subject_access_review(
    authorizer: &Authorizer,
    user: &UserInfo,
    body: Value,
) -> Result<Value, Status> {
    const KIND: &str = "SelfSubjectAccessReview";
    let status = decide(authorizer, user, &spec(&body, KIND)?);
    Ok(reply(body, AUTHZ, KIND, status))
}

/// Creates a SubjectAccessReview; with a namespace a LocalSubjectAccessReview.
pub fn subject_access_review(
    authorizer: &Authorizer,
    namespace: Option<&str>,
    body: Value,
) -> Result<Value, Status> {
    let kind = match namespace {
        Some(_) => "LocalSubjectAccessReview",
        None => "SubjectAccessReview",
    };
    let spec = spec(&body, kind)?;
    let invalid = |field: &str, value: Value, why: &str| {
        let error = FieldError::invalid(field, &value, why);
        Status::invalid(&Gvk::constant(AUTHZ, "v1", kind), "", &[error])
    };
    if spec.user.is_empty() && spec.groups.is_empty() {
        let why = "at least one of user or group must be specified";
        return Err(invalid("spec.user", "".into(), why));
    }
    if let Some(namespace) = namespace {
        let asked = spec
            .resource_attributes
            .as_ref()
            .map_or("", |r| r.namespace.as_str());
        if asked != namespace {
            let why = "must match metadata.namespace";
            return Err(invalid(
                "spec.resourceAttributes.namespace",
                asked.into(),
                why,
            ));
        }
    }
    let user = UserInfo {
        name: spec.user.clone(),
        uid: spec.uid.clone(),
        groups: spec.groups.clone(),
        extra: spec.extra.clone(),
    };
    let status = decide(authorizer, &user, &spec);
    Ok(reply(body, AUTHZ, kind, status))
}

/// Creates a SelfSubjectRulesReview.
pub fn self_subject_rules_review(
    authorizer: &Authorizer,
    user: &UserInfo,
    body: Value,
) -> Result<Value, Status> {
    let namespace = body["spec"]["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let rules = authorizer.rules(user, namespace);
    let status = json!({
        "resourceRules": rules.resources,
        "nonResourceRules": rules.paths,
        "incomplete": false,
    });
    Ok(reply(body, AUTHZ, "SelfSubjectRulesReview", status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::user::MASTERS;

    #[test]
    fn reviews_answer_in_their_own_body() {
        let authorizer = Authorizer::new();
        let root = UserInfo {
            name: "root".into(),
            groups: vec![MASTERS.into()],
            ..UserInfo::default()
        };
        let ask = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
        let got = self_subject_access_review(&authorizer, &root, ask.clone()).unwrap();
        assert_eq!(got["status"]["allowed"], true);
        assert_eq!(got["kind"], "SelfSubjectAccessReview");
        let nobody = UserInfo::default();
        let got = self_subject_access_review(&authorizer, &nobody, ask.clone()).unwrap();
        assert_eq!(got["status"], json!({"allowed": false}));
        for bad in [json!({}), json!({"spec": {"user": "x"}}), ask] {
            assert_eq!(
                subject_access_review(&authorizer, None, bad)
                    .unwrap_err()
                    .code,
                422
            );
        }
        let local =
            json!({"spec": {"user": "x", "resourceAttributes": {"verb": "get", "namespace": "b"}}});
        assert_eq!(
            subject_access_review(&authorizer, Some("a"), local)
                .unwrap_err()
                .code,
            422
        );
        let me = self_subject_review(&root, json!({}));
        assert_eq!(me["status"]["userInfo"]["username"], "root");
    }
}
