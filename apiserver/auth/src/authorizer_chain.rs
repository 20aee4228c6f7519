//! Several authorizers in order: the first that allows or denies a request decides
//! (`apiserver/pkg/authorization/union` of Kubernetes).

use std::sync::Arc;

use machinery::UserInfo;
use machinery::user::SYSTEM_PRIVILEGED_GROUP;
use parking_lot::RwLock;

use crate::authorizer_metrics::{AuthorizerMetrics, WEBHOOK};
use crate::authorizer_opinion::{AuthorizerOpinion, Decision};
use crate::rbac::{
    AuthorizationTarget, AuthorizerDecision, RbacAuthorizer, SubjectRules, always_allowed,
};
use crate::webhook::WebhookAuthorizer;

/// One authorizer of a chain.
pub enum ChainedAuthorizer {
    Rbac { name: String },
    AlwaysAllow { name: String },
    AlwaysDeny { name: String },
    Webhook(Box<WebhookAuthorizer>),
}

impl ChainedAuthorizer {
    fn kind_and_name(&self) -> (&'static str, &str) {
        match self {
            Self::Rbac { name } => ("RBAC", name),
            Self::AlwaysAllow { name } => ("AlwaysAllow", name),
            Self::AlwaysDeny { name } => ("AlwaysDeny", name),
            Self::Webhook(webhook) => (WEBHOOK, webhook.name()),
        }
    }

    async fn authorize(
        &self,
        rbac: &RbacAuthorizer,
        user: &UserInfo,
        verb: &str,
        target: AuthorizationTarget<'_>,
    ) -> AuthorizerOpinion {
        let opinion = |decision, reason: &str| AuthorizerOpinion {
            decision,
            reason: reason.to_owned(),
            error: String::new(),
        };
        match self {
            Self::AlwaysAllow { .. } => opinion(Decision::Allow, ""),
            Self::AlwaysDeny { .. } => opinion(Decision::NoOpinion, "Everything is forbidden."),
            Self::Webhook(webhook) => webhook.authorize(user, verb, target).await,
            Self::Rbac { .. } => {
                let explained = rbac.explain(user, verb, target);
                let decision = match explained.allowed {
                    true => Decision::Allow,
                    false => Decision::NoOpinion,
                };
                opinion(decision, &explained.reason)
            }
        }
    }
}

/// The authorizers of a server, which may be replaced while it runs.
pub struct AuthorizerChain {
    rbac: Arc<RbacAuthorizer>,
    authorizers: RwLock<Arc<[ChainedAuthorizer]>>,
    metrics: AuthorizerMetrics,
}

impl AuthorizerChain {
    /// `rbac` evaluates the roles for every authorizer of this type.
    pub fn new(
        rbac: Arc<RbacAuthorizer>,
        authorizers: Vec<ChainedAuthorizer>,
        metrics: &AuthorizerMetrics,
    ) -> Arc<Self> {
        Arc::new(Self {
            rbac,
            authorizers: RwLock::new(authorizers.into()),
            metrics: metrics.clone(),
        })
    }

    /// Uses other authorizers from the next request on.
    pub fn replace(&self, authorizers: Vec<ChainedAuthorizer>) {
        *self.authorizers.write() = authorizers.into();
    }

    pub(crate) fn is_former_agent(&self, user: &UserInfo) -> bool {
        self.rbac.is_former_agent(user)
    }

    /// The decision about a request. Superusers may do everything, whatever the authorizers
    /// say.
    pub(crate) async fn authorize(
        &self,
        user: &UserInfo,
        verb: &str,
        target: AuthorizationTarget<'_>,
    ) -> AuthorizerDecision {
        let open = matches!(target, AuthorizationTarget::NonResource(path) if always_allowed(path));
        if open || user.in_group(SYSTEM_PRIVILEGED_GROUP) {
            return AuthorizerDecision::allowed(String::new());
        }
        if self.is_former_agent(user) {
            return AuthorizerDecision::former_agent();
        }
        let authorizers = Arc::clone(&self.authorizers.read());
        let (mut reasons, mut errors) = (Vec::new(), Vec::new());
        for authorizer in authorizers.iter() {
            let opinion = authorizer.authorize(&self.rbac, user, verb, target).await;
            if !opinion.error.is_empty() {
                errors.push(opinion.error);
            }
            let (kind, name) = authorizer.kind_and_name();
            match opinion.decision {
                Decision::Allow => {
                    self.metrics.count_decision(kind, name, "allowed");
                    return AuthorizerDecision::allowed(opinion.reason);
                }
                Decision::Deny => {
                    self.metrics.count_decision(kind, name, "denied");
                    return AuthorizerDecision {
                        denied: true,
                        undecided: !errors.is_empty(),
                        reason: opinion.reason,
                        evaluation_error: errors.join(", "),
                        ..AuthorizerDecision::default()
                    };
                }
                Decision::NoOpinion if opinion.reason.is_empty() => {}
                Decision::NoOpinion => reasons.push(opinion.reason),
            }
        }
        AuthorizerDecision {
            undecided: !errors.is_empty(),
            reason: reasons.join("\n"),
            evaluation_error: errors.join(", "),
            ..AuthorizerDecision::default()
        }
    }

    /// The rights of a user in a namespace, as far as the authorizers can list them, and why the
    /// list is incomplete.
    pub(crate) fn subject_rules(&self, user: &UserInfo, namespace: &str) -> (SubjectRules, String) {
        let mut rules = SubjectRules::default();
        let mut message = Vec::new();
        for authorizer in self.authorizers.read().iter() {
            match authorizer {
                ChainedAuthorizer::Rbac { .. } => {
                    rules.extend(self.rbac.subject_rules(user, namespace));
                }
                ChainedAuthorizer::AlwaysAllow { .. } => rules.extend(SubjectRules::all_access()),
                ChainedAuthorizer::AlwaysDeny { .. } => {}
                ChainedAuthorizer::Webhook(_) => {
                    message.push("webhook authorizer does not support user rule resolution");
                }
            }
        }
        (rules, message.join(", "))
    }
}
