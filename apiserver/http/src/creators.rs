//! Adapts the reviews and token requests of `auth` to the [`UnstoredCreateHandler`] trait of the
//! registry's resource table.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use auth::{LocalAuthenticator, RequestAuthorizer, reviews};
use client::ResourcePath;
use machinery::{Gvr, Object, Status};
use registry::{RequestContext, UnstoredCreateHandler};
use serde_json::Value;

const AUTHN: &str = "authentication.k8s.io";
const AUTHZ: &str = "authorization.k8s.io";

#[derive(Clone, Copy)]
enum AuthApiKind {
    TokenReview,
    SelfSubjectReview,
    SelfSubjectAccessReview,
    SubjectAccessReview,
    LocalSubjectAccessReview,
    SelfSubjectRulesReview,
    TokenRequest,
}

struct AuthApiCreateHandler {
    kind: AuthApiKind,
    authenticator: Arc<LocalAuthenticator>,
    authorizer: RequestAuthorizer,
}

#[async_trait]
impl UnstoredCreateHandler for AuthApiCreateHandler {
    async fn create(
        &self,
        ctx: &RequestContext,
        path: ResourcePath<'_>,
        body: Value,
        parent: Option<&Object>,
    ) -> Result<Value, Status> {
        let rights = &self.authorizer;
        match self.kind {
            AuthApiKind::TokenReview => reviews::token_review(&self.authenticator, body).await,
            AuthApiKind::SelfSubjectReview => Ok(reviews::self_subject_review(&ctx.user, body)),
            AuthApiKind::SelfSubjectAccessReview => {
                reviews::self_subject_access_review(rights, &ctx.user, body).await
            }
            AuthApiKind::SubjectAccessReview => {
                reviews::subject_access_review(rights, None, body).await
            }
            AuthApiKind::LocalSubjectAccessReview => {
                reviews::subject_access_review(rights, Some(path.namespace), body).await
            }
            AuthApiKind::SelfSubjectRulesReview => {
                reviews::self_subject_rules_review(rights, &ctx.user, body)
            }
            AuthApiKind::TokenRequest => {
                let account = parent.ok_or_else(|| Status::not_found(path.resource, path.name))?;
                self.authenticator.token_request(account, body).await
            }
        }
    }
}

/// The creators of the review and token resources, for `registry::RegistryOptions::creators`.
pub fn creators(
    authenticator: &Arc<LocalAuthenticator>,
    authorizer: &RequestAuthorizer,
) -> HashMap<(Gvr, &'static str), Arc<dyn UnstoredCreateHandler>> {
    let rows = [
        (AUTHN, "tokenreviews", "", AuthApiKind::TokenReview),
        (
            AUTHN,
            "selfsubjectreviews",
            "",
            AuthApiKind::SelfSubjectReview,
        ),
        (
            AUTHZ,
            "selfsubjectaccessreviews",
            "",
            AuthApiKind::SelfSubjectAccessReview,
        ),
        (
            AUTHZ,
            "subjectaccessreviews",
            "",
            AuthApiKind::SubjectAccessReview,
        ),
        (
            AUTHZ,
            "localsubjectaccessreviews",
            "",
            AuthApiKind::LocalSubjectAccessReview,
        ),
        (
            AUTHZ,
            "selfsubjectrulesreviews",
            "",
            AuthApiKind::SelfSubjectRulesReview,
        ),
        ("", "serviceaccounts", "token", AuthApiKind::TokenRequest),
    ];
    rows.into_iter()
        .map(|(group, resource, sub, question)| {
            let review: Arc<dyn UnstoredCreateHandler> = Arc::new(AuthApiCreateHandler {
                kind: question,
                authenticator: Arc::clone(authenticator),
                authorizer: authorizer.clone(),
            });
            ((Gvr::from_static(group, "v1", resource), sub), review)
        })
        .collect()
}
