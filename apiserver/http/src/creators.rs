//! Adapts the reviews and token requests of `auth` to the [`Creator`] trait of the
//! registry's resource table.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use auth::rbac::Authorizer;
use auth::{Authenticator, reviews};
use client::At;
use machinery::{Gvr, Object, Status};
use registry::{Creator, Ctx};
use serde_json::Value;

const AUTHN: &str = "authentication.k8s.io";
const AUTHZ: &str = "authorization.k8s.io";

#[derive(Clone, Copy)]
enum Question {
    Token,
    WhoAmI,
    MayI,
    MayThey,
    MayTheyHere,
    WhatMayI,
    TokenRequest,
}

struct Review {
    question: Question,
    authenticator: Arc<Authenticator>,
    authorizer: Arc<Authorizer>,
}

#[async_trait]
impl Creator for Review {
    async fn create(
        &self,
        ctx: &Ctx,
        at: At<'_>,
        body: Value,
        parent: Option<&Object>,
    ) -> Result<Value, Status> {
        let rights = &self.authorizer;
        match self.question {
            Question::Token => reviews::token_review(&self.authenticator, body).await,
            Question::WhoAmI => Ok(reviews::self_subject_review(&ctx.user, body)),
            Question::MayI => reviews::self_subject_access_review(rights, &ctx.user, body),
            Question::MayThey => reviews::subject_access_review(rights, None, body),
            Question::MayTheyHere => {
                reviews::subject_access_review(rights, Some(at.namespace), body)
            }
            Question::WhatMayI => reviews::self_subject_rules_review(rights, &ctx.user, body),
            Question::TokenRequest => {
                let account = parent.ok_or_else(|| Status::not_found(at.resource, at.name))?;
                self.authenticator.token_request(account, body).await
            }
        }
    }
}

/// The creators of the review and token resources, for `registry::Options::creators`.
pub fn creators(
    authenticator: &Arc<Authenticator>,
    authorizer: &Arc<Authorizer>,
) -> HashMap<(Gvr, &'static str), Arc<dyn Creator>> {
    let rows = [
        (AUTHN, "tokenreviews", "", Question::Token),
        (AUTHN, "selfsubjectreviews", "", Question::WhoAmI),
        (AUTHZ, "selfsubjectaccessreviews", "", Question::MayI),
        (AUTHZ, "subjectaccessreviews", "", Question::MayThey),
        (
            AUTHZ,
            "localsubjectaccessreviews",
            "",
            Question::MayTheyHere,
        ),
        (AUTHZ, "selfsubjectrulesreviews", "", Question::WhatMayI),
        ("", "serviceaccounts", "token", Question::TokenRequest),
    ];
    rows.into_iter()
        .map(|(group, resource, sub, question)| {
            let review: Arc<dyn Creator> = Arc::new(Review {
                question,
                authenticator: Arc::clone(authenticator),
                authorizer: Arc::clone(authorizer),
            });
            ((Gvr::constant(group, "v1", resource), sub), review)
        })
        .collect()
}
