//! Adapts the reviews and token requests of `auth` to the [`Creator`] trait of the
//! registry's resource table.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use auth::rbac::RbacAuthorizer;
use auth::{LocalAuthenticator, reviews};
use client::ResourcePath;
use machinery::{Gvr, Object, Status};
use registry::{RequestUserAndDeadline, UnstoredCreateHandler};
use serde_json::Value;

const AUTHN: &str = "authentication.k8s.io";
const AUTHZ: &str = "authorization.k8s.io";

#[derive(Clone, Copy)]
enum ReviewKind {
    TokenReview,
    SelfSubjectReview,
    SelfSubjectAccessReview,
    SubjectAccessReview,
    LocalSubjectAccessReview,
    SelfSubjectRulesReview,
    TokenRequest,
}

struct ReviewCreator {
    kind: ReviewKind,
    authenticator: Arc<LocalAuthenticator>,
    authorizer: Arc<RbacAuthorizer>,
}

#[async_trait]
impl UnstoredCreateHandler for ReviewCreator {
    async fn create(
        &self,
        ctx: &RequestUserAndDeadline,
        at: ResourcePath<'_>,
        body: Value,
        parent: Option<&Object>,
    ) -> Result<Value, Status> {
        let rights = &self.authorizer;
        match self.kind {
            ReviewKind::TokenReview => reviews::token_review(&self.authenticator, body).await,
            ReviewKind::SelfSubjectReview => Ok(reviews::self_subject_review(&ctx.user, body)),
            ReviewKind::SelfSubjectAccessReview => {
                reviews::self_subject_access_review(rights, &ctx.user, body)
            }
            ReviewKind::SubjectAccessReview => reviews::subject_access_review(rights, None, body),
            ReviewKind::LocalSubjectAccessReview => {
                reviews::subject_access_review(rights, Some(at.namespace), body)
            }
            ReviewKind::SelfSubjectRulesReview => {
                reviews::self_subject_rules_review(rights, &ctx.user, body)
            }
            ReviewKind::TokenRequest => {
                let account = parent.ok_or_else(|| Status::not_found(at.resource, at.name))?;
                self.authenticator.token_request(account, body).await
            }
        }
    }
}

/// The creators of the review and token resources, for `registry::RegistryOptions::creators`.
pub fn creators(
    authenticator: &Arc<LocalAuthenticator>,
    authorizer: &Arc<RbacAuthorizer>,
) -> HashMap<(Gvr, &'static str), Arc<dyn UnstoredCreateHandler>> {
    let rows = [
        (AUTHN, "tokenreviews", "", ReviewKind::TokenReview),
        (
            AUTHN,
            "selfsubjectreviews",
            "",
            ReviewKind::SelfSubjectReview,
        ),
        (
            AUTHZ,
            "selfsubjectaccessreviews",
            "",
            ReviewKind::SelfSubjectAccessReview,
        ),
        (
            AUTHZ,
            "subjectaccessreviews",
            "",
            ReviewKind::SubjectAccessReview,
        ),
        (
            AUTHZ,
            "localsubjectaccessreviews",
            "",
            ReviewKind::LocalSubjectAccessReview,
        ),
        (
            AUTHZ,
            "selfsubjectrulesreviews",
            "",
            ReviewKind::SelfSubjectRulesReview,
        ),
        ("", "serviceaccounts", "token", ReviewKind::TokenRequest),
    ];
    rows.into_iter()
        .map(|(group, resource, sub, question)| {
            let review: Arc<dyn UnstoredCreateHandler> = Arc::new(ReviewCreator {
                kind: question,
                authenticator: Arc::clone(authenticator),
                authorizer: Arc::clone(authorizer),
            });
            ((Gvr::from_static(group, "v1", resource), sub), review)
        })
        .collect()
}
