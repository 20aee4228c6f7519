//! Creates the review resources of `authentication.k8s.io/v1` and
//! `authorization.k8s.io/v1`: each function returns the body of a review with its
//! status. Nothing is stored.

use std::borrow::Cow;
use std::collections::BTreeMap;

use machinery::selector::FieldRequirement;
use machinery::{FieldError, Gvk, LabelSelector, Status, UserInfo};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::authenticator::LocalAuthenticator;
use crate::credentials::AuthenticationError;
use crate::rbac::{AuthorizationSelectors, AuthorizationTarget};
use crate::request_auth::RequestAuthorizer;

const AUTHN: &str = "authentication.k8s.io";
const AUTHZ: &str = "authorization.k8s.io";

fn review_response(body: Value, group: &'static str, kind: &'static str, status: Value) -> Value {
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
struct TokenReviewSpec {
    token: Option<String>,
    audiences: Option<Vec<String>>,
}

/// Creates a TokenReview.
pub async fn token_review(
    authenticator: &LocalAuthenticator,
    body: Value,
) -> Result<Value, Status> {
    let spec = Option::<TokenReviewSpec>::deserialize(&body["spec"])
        .map_err(|e| Status::bad_request(format!("TokenReview: spec: {e}")))?;
    let TokenReviewSpec { token, audiences } = spec.unwrap_or_default();
    let token = token.filter(|token| !token.is_empty()).ok_or_else(|| {
        Status::bad_request("token is required for TokenReview in authentication")
    })?;
    let audiences = audiences.unwrap_or_default();
    let status = match authenticator.authenticate_token(&token, &audiences).await {
        Ok((user, matched)) => {
            let mut status = json!({"authenticated": true, "user": *user});
            if !audiences.is_empty() {
                status["audiences"] = json!(matched);
            }
            status
        }
        Err(AuthenticationError::InvalidCredential(failure)) => {
            json!({"user": {}, "error": failure.to_string()})
        }
        Err(AuthenticationError::Undecided(status)) => return Err(*status),
    };
    Ok(review_response(body, AUTHN, "TokenReview", status))
}

/// Creates a SelfSubjectReview: the user info of the caller.
pub fn self_subject_review(user: &UserInfo, body: Value) -> Value {
    review_response(body, AUTHN, "SelfSubjectReview", json!({"userInfo": user}))
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct SubjectAccessReviewSpec {
    resource_attributes: Option<ResourceAttributes>,
    non_resource_attributes: Option<NonResourceAttributes>,
    user: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ResourceAttributes {
    namespace: String,
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    name: String,
    field_selector: Option<SelectorAttributes>,
    label_selector: Option<SelectorAttributes>,
}

/// A selector as text, or as its requirements.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct SelectorAttributes {
    raw_selector: String,
    requirements: Vec<SelectorRequirementAttributes>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SelectorRequirementAttributes {
    key: String,
    operator: String,
    values: Vec<String>,
}

impl SelectorAttributes {
    fn validate(&self, field: &str) -> Option<FieldError> {
        match (self.raw_selector.is_empty(), self.requirements.is_empty()) {
            (false, false) => Some(FieldError::invalid(
                format!("{field}.rawSelector"),
                &self.raw_selector.as_str().into(),
                "may not specified at the same time as requirements",
            )),
            (true, true) => Some(FieldError::required(
                format!("{field}.requirements"),
                &format!("when {field} is specified, requirements or rawSelector is required"),
            )),
            _ => None,
        }
    }

    /// The selector as text. Requirements that cannot be written as `requirement` does are
    /// left out: selectors only narrow what is asked for.
    fn text(
        &self,
        requirement: fn(&SelectorRequirementAttributes) -> Option<String>,
    ) -> Cow<'_, str> {
        if !self.raw_selector.is_empty() {
            return Cow::Borrowed(&self.raw_selector);
        }
        let terms: Vec<String> = self.requirements.iter().filter_map(requirement).collect();
        Cow::Owned(terms.join(","))
    }
}

impl SelectorRequirementAttributes {
    fn of_field(&self) -> Option<String> {
        let [value] = &self.values[..] else {
            return None;
        };
        let requirement = FieldRequirement {
            field: self.key.clone(),
            value: value.clone(),
            equal: match &*self.operator {
                "In" => true,
                "NotIn" => false,
                _ => return None,
            },
        };
        Some(requirement.to_string())
    }

    fn of_label(&self) -> Option<String> {
        let (key, values) = (&self.key, self.values.join(","));
        let text = match &*self.operator {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.clone(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        };
        LabelSelector::parse(&text).is_ok().then_some(text)
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NonResourceAttributes {
    path: String,
    verb: String,
}

fn parse_spec(body: &Value, kind: &'static str) -> Result<SubjectAccessReviewSpec, Status> {
    let spec: SubjectAccessReviewSpec = match body.get("spec") {
        Some(Value::Null) | None => SubjectAccessReviewSpec::default(),
        Some(spec) => serde_json::from_value(spec.clone())
            .map_err(|e| Status::bad_request(format!("{kind}: spec: {e}")))?,
    };
    if spec.resource_attributes.is_some() == spec.non_resource_attributes.is_some() {
        let message =
            "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        let error = FieldError::invalid("spec.resourceAttributes", &Value::Null, message);
        return Err(Status::invalid(
            &Gvk::from_static(AUTHZ, "v1", kind),
            "",
            &[error],
        ));
    }
    let attributes = spec.resource_attributes.as_ref();
    let selectors = attributes.map(|a| {
        let path = |name: &str| format!("spec.resourceAttributes.{name}");
        let (fields, labels) = (path("fieldSelector"), path("labelSelector"));
        let fields = a.field_selector.as_ref().and_then(|s| s.validate(&fields));
        let labels = a.label_selector.as_ref().and_then(|s| s.validate(&labels));
        Vec::from_iter(fields.into_iter().chain(labels))
    });
    match selectors {
        Some(errors) if !errors.is_empty() => Err(Status::invalid(
            &Gvk::from_static(AUTHZ, "v1", kind),
            "",
            &errors,
        )),
        _ => Ok(spec),
    }
}

async fn access_review_status(
    authorizer: &RequestAuthorizer,
    user: &UserInfo,
    spec: &SubjectAccessReviewSpec,
) -> Result<Value, Status> {
    let decision = match (&spec.resource_attributes, &spec.non_resource_attributes) {
        (Some(r), _) => {
            let text = |selector: &Option<SelectorAttributes>, requirement| {
                let selector = selector.as_ref();
                selector.map_or(String::new(), |s| s.text(requirement).into_owned())
            };
            let fields = text(&r.field_selector, SelectorRequirementAttributes::of_field);
            let labels = text(&r.label_selector, SelectorRequirementAttributes::of_label);
            let target = AuthorizationTarget::Resource {
                group: &r.group,
                version: &r.version,
                resource: &r.resource,
                subresource: &r.subresource,
                namespace: &r.namespace,
                name: &r.name,
                selectors: AuthorizationSelectors {
                    fields: &fields,
                    labels: &labels,
                },
            };
            authorizer.explain(user, &r.verb, target).await?
        }
        (None, p) => {
            let (path, verb) = p.as_ref().map_or(("", ""), |p| (&p.path, &p.verb));
            let target = AuthorizationTarget::NonResource(path);
            authorizer.explain(user, verb, target).await?
        }
    };
    let mut status = json!({"allowed": decision.allowed});
    if decision.denied {
        status["denied"] = true.into();
    }
    if !decision.reason.is_empty() {
        status["reason"] = decision.reason.into();
    }
    if !decision.evaluation_error.is_empty() {
        status["evaluationError"] = decision.evaluation_error.into();
    }
    Ok(status)
}

/// Creates a SelfSubjectAccessReview.
pub async fn self_subject_access_review(
    authorizer: &RequestAuthorizer,
    user: &UserInfo,
    body: Value,
) -> Result<Value, Status> {
    const KIND: &str = "SelfSubjectAccessReview";
    let spec = parse_spec(&body, KIND)?;
    let status = access_review_status(authorizer, user, &spec).await?;
    Ok(review_response(body, AUTHZ, KIND, status))
}

/// Creates a SubjectAccessReview; with a namespace a LocalSubjectAccessReview.
pub async fn subject_access_review(
    authorizer: &RequestAuthorizer,
    namespace: Option<&str>,
    body: Value,
) -> Result<Value, Status> {
    let kind = match namespace {
        Some(_) => "LocalSubjectAccessReview",
        None => "SubjectAccessReview",
    };
    let spec = parse_spec(&body, kind)?;
    let invalid = |field: &str, value: Value, message: &str| {
        let error = FieldError::invalid(field, &value, message);
        Status::invalid(&Gvk::from_static(AUTHZ, "v1", kind), "", &[error])
    };
    if spec.user.is_empty() && spec.groups.is_empty() {
        let message = "at least one of user or group must be specified";
        return Err(invalid("spec.user", "".into(), message));
    }
    if let Some(namespace) = namespace {
        let requested_namespace = spec
            .resource_attributes
            .as_ref()
            .map_or("", |r| r.namespace.as_str());
        if requested_namespace != namespace {
            let message = "must match metadata.namespace";
            return Err(invalid(
                "spec.resourceAttributes.namespace",
                requested_namespace.into(),
                message,
            ));
        }
    }
    let user = UserInfo {
        name: spec.user.clone(),
        uid: spec.uid.clone(),
        groups: spec.groups.clone(),
        extra: spec.extra.clone(),
    };
    let status = access_review_status(authorizer, &user, &spec).await?;
    Ok(review_response(body, AUTHZ, kind, status))
}

/// Creates a SelfSubjectRulesReview.
pub fn self_subject_rules_review(
    authorizer: &RequestAuthorizer,
    user: &UserInfo,
    body: Value,
) -> Result<Value, Status> {
    let namespace = body["spec"]["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let (rules, why_incomplete) = authorizer.subject_rules(user, namespace);
    let mut status = json!({
        "resourceRules": rules.resource_rules,
        "nonResourceRules": rules.non_resource_rules,
        "incomplete": !why_incomplete.is_empty(),
    });
    if !why_incomplete.is_empty() {
        status["evaluationError"] = why_incomplete.into();
    }
    Ok(review_response(
        body,
        AUTHZ,
        "SelfSubjectRulesReview",
        status,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rbac::RbacAuthorizer;
    use machinery::user::SYSTEM_PRIVILEGED_GROUP;

    #[tokio::test]
    async fn reviews_set_status_in_their_body() {
        let authorizer = RequestAuthorizer::from(RbacAuthorizer::new());
        let root = UserInfo {
            name: "root".into(),
            groups: vec![SYSTEM_PRIVILEGED_GROUP.into()],
            ..UserInfo::default()
        };
        let ask = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
        let review = self_subject_access_review(&authorizer, &root, ask.clone())
            .await
            .unwrap();
        assert_eq!(review["status"]["allowed"], true);
        assert_eq!(review["kind"], "SelfSubjectAccessReview");
        let anonymous = UserInfo::default();
        let review = self_subject_access_review(&authorizer, &anonymous, ask.clone())
            .await
            .unwrap();
        assert_eq!(review["status"], json!({"allowed": false}));
        for invalid in [json!({}), json!({"spec": {"user": "x"}}), ask] {
            assert_eq!(
                subject_access_review(&authorizer, None, invalid)
                    .await
                    .unwrap_err()
                    .code,
                422
            );
        }
        let local =
            json!({"spec": {"user": "x", "resourceAttributes": {"verb": "get", "namespace": "b"}}});
        assert_eq!(
            subject_access_review(&authorizer, Some("a"), local)
                .await
                .unwrap_err()
                .code,
            422
        );
        let me = self_subject_review(&root, json!({}));
        assert_eq!(me["status"]["userInfo"]["username"], "root");
    }
}
