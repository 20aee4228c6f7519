//! Evaluates the CEL expressions of admission for one request: match conditions of webhooks
//! and policies, validations, mutations. Evaluation itself is synchronous; when it needs a
//! decision of the authorizer, the check is made here and the evaluation repeated.

mod match_conditions;
mod versioned_request;

use async_trait::async_trait;
use kubernetes_cel::{AuthorizationCheck, AuthorizationDecision, AuthorizationDecisions};
use machinery::UserInfo;
use parking_lot::Mutex;

pub(crate) use match_conditions::{
    MatchOutcome, compile_match_conditions, evaluate_match_conditions,
};
pub(crate) use versioned_request::VersionedRequest;

/// Decides the checks that expressions make with the variable `authorizer`.
#[async_trait]
pub trait ExpressionAuthorizer: Send + Sync {
    async fn authorize(
        &self,
        requester: &UserInfo,
        check: &AuthorizationCheck,
    ) -> AuthorizationDecision;
}

/// The authorizer's decisions for one request. Each check is made once.
pub(crate) struct RequestDecisions<'a> {
    requester: &'a UserInfo,
    authorizer: &'a dyn ExpressionAuthorizer,
    decisions: Mutex<AuthorizationDecisions>,
}

impl<'a> RequestDecisions<'a> {
    pub(crate) fn new(requester: &'a UserInfo, authorizer: &'a dyn ExpressionAuthorizer) -> Self {
        Self {
            requester,
            authorizer,
            decisions: Mutex::default(),
        }
    }

    /// Evaluates until no further decision is needed. The cost of checks bounds how many
    /// there can be.
    pub(crate) async fn evaluate<T>(
        &self,
        mut run: impl FnMut(&AuthorizationDecisions) -> Result<T, Box<AuthorizationCheck>>,
    ) -> T {
        loop {
            let check = {
                let decisions = self.decisions.lock();
                match run(&decisions) {
                    Ok(result) => return result,
                    Err(check) => check,
                }
            };
            let decision = self.authorizer.authorize(self.requester, &check).await;
            self.decisions.lock().insert(*check, decision);
        }
    }
}
