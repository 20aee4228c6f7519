//! Keeps users from granting more than they have: a write of a role needs all permissions
//! of its rules or the verb `escalate`; a write of a binding needs all permissions of the
//! referenced role or the verb `bind`.
//!
//! Facts: `pkg/registry/rbac/escalation_check.go`, `pkg/registry/rbac/validation/rule.go`
//! and `pkg/registry/rbac/*/policybased/storage.go` of Kubernetes.

use std::sync::Arc;

use machinery::user::SYSTEM_PRIVILEGED_GROUP;
use machinery::{Gvr, Status, UserInfo};

use crate::rbac::{
    AuthorizationSelectors, AuthorizationTarget, PolicyRule, RbacAuthorizer, UncoveredRules,
    quoted_list,
};
use crate::request_auth::RequestAuthorizer;

/// A role or binding that a user writes.
#[derive(Clone, Copy, Debug)]
pub struct RoleWrite<'a> {
    pub user: &'a UserInfo,
    pub gvr: &'a Gvr,
    /// Empty for cluster-scoped kinds.
    pub namespace: &'a str,
    /// The name in the URL; empty for a creation.
    pub url_name: &'a str,
    /// The name of the object.
    pub name: &'a str,
}

/// The role that a binding references.
#[derive(Clone, Copy, Debug)]
pub struct ReferencedRole<'a> {
    /// `roles` or `clusterroles`.
    pub resource: &'static str,
    pub api_group: &'a str,
    pub name: &'a str,
}

/// Decides whether a user may write a role or a binding.
pub struct RoleEscalationCheck {
    rules: Arc<RbacAuthorizer>,
    authorizer: Arc<RequestAuthorizer>,
}

impl RoleEscalationCheck {
    /// `rules` says what a user may do; `authorizer` decides about `escalate` and `bind`.
    pub fn new(rules: Arc<RbacAuthorizer>, authorizer: Arc<RequestAuthorizer>) -> Self {
        Self { rules, authorizer }
    }

    /// Whether nothing is checked: the superusers may grant everything.
    pub fn is_exempt(user: &UserInfo) -> bool {
        user.in_group(SYSTEM_PRIVILEGED_GROUP)
    }

    /// Whether the user may write any rules into the role.
    pub async fn may_escalate(&self, write: RoleWrite<'_>) -> Result<bool, Status> {
        let target = AuthorizationTarget::Resource {
            group: &write.gvr.group,
            version: "*",
            resource: &write.gvr.resource,
            subresource: "",
            namespace: write.namespace,
            name: write.url_name,
            selectors: AuthorizationSelectors::default(),
        };
        self.is_authorized(write.user, "escalate", target).await
    }

    /// Whether the user may bind the role in the namespace of the binding.
    pub async fn may_bind(
        &self,
        write: RoleWrite<'_>,
        role: ReferencedRole<'_>,
    ) -> Result<bool, Status> {
        let target = AuthorizationTarget::Resource {
            group: role.api_group,
            version: "*",
            resource: role.resource,
            subresource: "",
            namespace: write.namespace,
            name: role.name,
            selectors: AuthorizationSelectors::default(),
        };
        self.is_authorized(write.user, "bind", target).await
    }

    async fn is_authorized(
        &self,
        user: &UserInfo,
        verb: &str,
        target: AuthorizationTarget<'_>,
    ) -> Result<bool, Status> {
        match self.authorizer.authorize(user, verb, target).await {
            Ok(()) => Ok(true),
            Err(status) if status.code == 403 => Ok(false),
            Err(status) => Err(status),
        }
    }

    /// Fails with 403, listing what is missing, unless the user has all permissions of
    /// `rules` in the namespace.
    pub fn check_rules(&self, write: RoleWrite<'_>, rules: &[PolicyRule]) -> Result<(), Status> {
        let user = write.user;
        let message = match self.rules.check_covered(user, write.namespace, rules) {
            Ok(()) => return Ok(()),
            Err(UncoveredRules::Missing(lines)) => format!(
                "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
                user.name,
                quoted_list(&user.groups),
                lines.join("\n")
            ),
            Err(UncoveredRules::TooMany) => format!(
                "user {:?} (groups={}) is attempting to grant RBAC permissions that are too many to be compared with those currently held",
                user.name,
                quoted_list(&user.groups)
            ),
        };
        Err(Status::forbidden(write.gvr, write.name, message))
    }

    /// Fails with 403 unless the user may do everything, as an aggregation rule, which
    /// can gather any rules, requires.
    pub fn check_full_authority(&self, write: RoleWrite<'_>) -> Result<(), Status> {
        let full_rule = PolicyRule::everything();
        match self
            .rules
            .check_covered(write.user, write.namespace, &full_rule)
        {
            Ok(()) => Ok(()),
            Err(_) => Err(Status::forbidden(
                write.gvr,
                write.name,
                "must have cluster-admin privileges to use the aggregationRule",
            )),
        }
    }
}
