//! Role-based access control, evaluated in memory.
//!
//! The RBAC objects are listed and watched through `client::Api`. A decision takes a
//! read lock and never awaits.

mod attributes;
mod policy;
mod policy_watch;
mod rule;
mod rule_coverage;

use std::sync::Arc;

use client::Api;
use machinery::user::SYSTEM_PRIVILEGED_GROUP;
use machinery::{Gvr, Status, UserInfo};

pub use attributes::{AuthorizationSelectors, AuthorizationTarget, always_allowed};
use policy_watch::WatchedPolicy;
pub use rule::{PolicyRule, SubjectRules};
pub use rule_coverage::uncovered_rules;
pub(crate) use rule_coverage::{UncoveredRules, quoted_list};

/// A decision with its reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizerDecision {
    pub allowed: bool,
    /// Whether an authorizer has forbidden it, so that no other one is asked.
    pub denied: bool,
    /// Whether an authorizer failed: without a grant, nobody knows whether it is forbidden.
    pub undecided: bool,
    /// The grant that allows it; empty when nothing does.
    pub reason: String,
    /// Evaluation errors: roles that bindings reference and that do not exist.
    pub evaluation_error: String,
}

impl AuthorizerDecision {
    pub(crate) fn allowed(reason: String) -> Self {
        Self {
            allowed: true,
            reason,
            ..Self::default()
        }
    }

    /// The denial of an agent whose registration has ended.
    pub(crate) fn former_agent() -> Self {
        Self {
            denied: true,
            reason: "the certificate is of an earlier registration of the cluster".into(),
            ..Self::default()
        }
    }
}

/// Authorizes requests by RBAC.
#[derive(Default)]
pub struct RbacAuthorizer {
    policy: WatchedPolicy,
}

impl RbacAuthorizer {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Watches the RBAC objects; the future never completes.
    pub async fn run(self: Arc<Self>, api: Arc<dyn Api>) {
        self.policy.watch(api.as_ref()).await;
    }

    /// Whether all RBAC objects have been listed once.
    pub fn has_synced(&self) -> bool {
        self.policy.has_synced()
    }

    /// Waits until [`Self::has_synced`].
    pub async fn wait_synced(&self) {
        self.policy.wait_synced().await;
    }

    /// Whether `user` may `verb` the target.
    pub fn allows(&self, user: &UserInfo, verb: &str, target: AuthorizationTarget<'_>) -> bool {
        if user.in_group(SYSTEM_PRIVILEGED_GROUP) {
            return true;
        }
        if let AuthorizationTarget::NonResource(path) = target
            && always_allowed(path)
        {
            return true;
        }
        let policy = self.policy.read();
        let grant = policy.first_grant(user, target.namespace(), |rule| rule.allows(verb, target));
        grant.is_some() && !policy.is_former_agent(user)
    }

    /// Whether the user has the certificate of an agent whose registration has ended, and the cluster
    /// has been registered again with others.
    pub(crate) fn is_former_agent(&self, user: &UserInfo) -> bool {
        self.policy.read().is_former_agent(user)
    }

    /// Like [`Self::allows`], with the reason, for reviews.
    pub fn explain(
        &self,
        user: &UserInfo,
        verb: &str,
        target: AuthorizationTarget<'_>,
    ) -> AuthorizerDecision {
        let granted = AuthorizerDecision::allowed;
        if user.in_group(SYSTEM_PRIVILEGED_GROUP) {
            return granted(String::new());
        }
        if let AuthorizationTarget::NonResource(path) = target
            && always_allowed(path)
        {
            return granted(String::new());
        }
        let policy = self.policy.read();
        if policy.is_former_agent(user) {
            return AuthorizerDecision::former_agent();
        }
        match policy.first_grant(user, target.namespace(), |rule| rule.allows(verb, target)) {
            Some(grant) => granted(format!("RBAC: allowed by {grant}")),
            None => AuthorizerDecision {
                evaluation_error: policy.missing_roles(user, target.namespace()),
                ..AuthorizerDecision::default()
            },
        }
    }

    /// Everything `user` may do in a namespace, cluster-wide grants included.
    pub fn subject_rules(&self, user: &UserInfo, namespace: &str) -> SubjectRules {
        if user.in_group(SYSTEM_PRIVILEGED_GROUP) {
            return SubjectRules::all_access();
        }
        let mut rules = SubjectRules::default();
        self.policy.read().first_grant(user, namespace, |rule| {
            rules.add(rule);
            false
        });
        rules
    }

    /// Fails unless `user` has every permission of `rules` in a namespace.
    pub(crate) fn check_covered(
        &self,
        user: &UserInfo,
        namespace: &str,
        rules: &[PolicyRule],
    ) -> Result<(), UncoveredRules> {
        let owned = self.policy.read().rules_of_user(user, namespace);
        let owned: Vec<&PolicyRule> = owned.iter().flat_map(|rules| rules.iter()).collect();
        rule_coverage::check_covered(&owned, rules)
    }

    /// The 403 of a denied request, with Kubernetes' message.
    pub fn forbidden(user: &UserInfo, verb: &str, target: AuthorizationTarget<'_>) -> Status {
        match target {
            AuthorizationTarget::NonResource(path) => Status::failure(
                403,
                "Forbidden",
                format!(
                    "forbidden: User {:?} cannot {verb} path {path:?}",
                    user.name
                ),
            ),
            AuthorizationTarget::Resource {
                group,
                version,
                resource,
                subresource,
                namespace,
                name,
                ..
            } => {
                let resource_text = if subresource.is_empty() {
                    resource.to_owned()
                } else {
                    format!("{resource}/{subresource}")
                };
                let scope = if namespace.is_empty() {
                    "at the cluster scope".to_owned()
                } else {
                    format!("in the namespace {namespace:?}")
                };
                let message = format!(
                    "User {:?} cannot {verb} resource {resource_text:?} in API group {group:?} {scope}",
                    user.name
                );
                Status::forbidden(&Gvr::new(group, version, resource), name, message)
            }
        }
    }
}

#[cfg(test)]
mod tests;
