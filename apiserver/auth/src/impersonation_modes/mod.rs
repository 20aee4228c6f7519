//! Authorizes impersonation by the constrained modes (KEP-5284) and by the verb `impersonate`.
//!
//! A constrained mode needs two permissions: `impersonate:MODE` on the identity, and
//! `impersonate-on:MODE:VERB` on what the request itself does. The first mode that passes wins.
//! Source of the rules: `pkg/endpoints/filters/impersonation` of k8s.io/apiserver 1.36.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::hash::{BuildHasher, RandomState};

use machinery::names::validate_dns1123_subdomain;
use machinery::user::{SYSTEM_PRIVILEGED_GROUP, split_service_account_username};
use machinery::{Status, UserInfo};
use parking_lot::Mutex;

use crate::impersonation::ImpersonatedUser;
use crate::rbac::{AuthorizationSelectors, AuthorizationTarget, RbacAuthorizer};
use crate::request_auth::RequestAuthorizer;
use crate::token::service_account_groups;

const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";
const NODE_USERNAME_PREFIX: &str = "system:node:";
const NODES_GROUP: &str = "system:nodes";
/// The node of the Pod that a service account token is bound to.
const NODE_NAME_EXTRA: &str = "authentication.kubernetes.io/node-name";
/// The extras that authorizers see instead of the extras of a service account that acts as its
/// node.
const ASSOCIATED_NODE_KEYS_EXTRA: &str = "authentication.kubernetes.io/associated-node-keys";
/// From so many values on, the permission for all values is checked first.
const MANY_CHECKS: usize = 4;
/// Requesters whose last mode is remembered.
const MAX_REMEMBERED_REQUESTERS: usize = 10_000;
const HTTP_PATH_PATTERN: &str = "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+";

/// The ways to impersonate, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImpersonationMode {
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    /// The verb `impersonate`, which Kubernetes has had before the others.
    Legacy,
}

const MODES: [ImpersonationMode; 5] = [
    ImpersonationMode::AssociatedNode,
    ImpersonationMode::ArbitraryNode,
    ImpersonationMode::ServiceAccount,
    ImpersonationMode::UserInfo,
    ImpersonationMode::Legacy,
];

impl ImpersonationMode {
    /// The verb on the identity.
    fn verb(self) -> &'static str {
        match self {
            Self::AssociatedNode => "impersonate:associated-node",
            Self::ArbitraryNode => "impersonate:arbitrary-node",
            Self::ServiceAccount => "impersonate:serviceaccount",
            Self::UserInfo => "impersonate:user-info",
            Self::Legacy => "impersonate",
        }
    }

    fn is_constrained(self) -> bool {
        self != Self::Legacy
    }

    /// The verb on what the request does; `None` without constraint.
    fn verb_on_request(self, verb: &str) -> Option<String> {
        let mode = self.verb().strip_prefix("impersonate:")?;
        Some(format!("impersonate-on:{mode}:{verb}"))
    }

    /// The group of users, groups, nodes and service accounts.
    fn identity_group(self) -> &'static str {
        if self.is_constrained() {
            AUTHENTICATION_GROUP
        } else {
            ""
        }
    }

    /// Whether the mode is for this user at all.
    fn applies(self, impersonated: &ImpersonatedUser, requester: &UserInfo) -> bool {
        let node = node_of_username(&impersonated.user);
        let account = split_service_account_username(&impersonated.user);
        match self {
            Self::AssociatedNode => {
                impersonated.has_only_name()
                    && node.is_some()
                    && split_service_account_username(&requester.name).is_some()
                    && associated_node(requester) == node
            }
            Self::ArbitraryNode => impersonated.has_only_name() && node.is_some(),
            Self::ServiceAccount => impersonated.has_only_name() && account.is_some(),
            Self::UserInfo => node.is_none() && account.is_none(),
            Self::Legacy => true,
        }
    }
}

/// Decides about the requests of users. The authorizer is a trait so that tests can answer.
pub(crate) trait ImpersonationAuthorizer: Sync {
    fn check(
        &self,
        user: &UserInfo,
        verb: &str,
        target: AuthorizationTarget<'_>,
    ) -> impl Future<Output = Result<(), Status>> + Send;
}

impl ImpersonationAuthorizer for RequestAuthorizer {
    async fn check(
        &self,
        user: &UserInfo,
        verb: &str,
        target: AuthorizationTarget<'_>,
    ) -> Result<(), Status> {
        self.authorize(user, verb, target).await
    }
}

/// The user that a request acts as, and by which permission.
#[derive(Debug, PartialEq, Eq)]
pub struct AuthorizedImpersonation {
    pub user: UserInfo,
    /// The verb of the constrained mode; `None` by the verb `impersonate`.
    pub constraint: Option<&'static str>,
}

/// Authorizes impersonation, and remembers for each requester the mode that passed last: it is
/// tried first.
#[derive(Default)]
pub struct ImpersonationModes {
    hasher: RandomState,
    last: Mutex<HashMap<u64, ImpersonationMode>>,
}

impl ImpersonationModes {
    /// Returns the user to act as. Fails with the first refusal when no mode passes. `verb` and
    /// `target` belong to the request.
    pub async fn authorize(
        &self,
        authorizer: &RequestAuthorizer,
        requester: &UserInfo,
        impersonated: &ImpersonatedUser,
        verb: &str,
        target: AuthorizationTarget<'_>,
    ) -> Result<AuthorizedImpersonation, Status> {
        self.authorize_with(authorizer, requester, impersonated, verb, target)
            .await
    }

    async fn authorize_with(
        &self,
        authorizer: &impl ImpersonationAuthorizer,
        requester: &UserInfo,
        impersonated: &ImpersonatedUser,
        verb: &str,
        target: AuthorizationTarget<'_>,
    ) -> Result<AuthorizedImpersonation, Status> {
        let key = self.hasher.hash_one(&requester.name);
        let last = self.last.lock().get(&key).copied();
        let other_modes = MODES.into_iter().filter(|mode| Some(*mode) != last);
        let mut first_refusal = None;
        for mode in last.into_iter().chain(other_modes) {
            if !mode.applies(impersonated, requester) {
                continue;
            }
            let check = ImpersonationCheck {
                authorizer,
                requester,
                impersonated,
                mode,
            };
            match check.authorize(verb, target).await {
                Ok(user) => {
                    if last != Some(mode) {
                        self.remember(key, mode);
                    }
                    let constraint = mode.is_constrained().then(|| mode.verb());
                    return Ok(AuthorizedImpersonation { user, constraint });
                }
                Err(status) => {
                    first_refusal.get_or_insert(status);
                }
            }
        }
        Err(first_refusal.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
    }

    fn remember(&self, requester: u64, mode: ImpersonationMode) {
        let mut last = self.last.lock();
        // Only an order is lost.
        if last.len() >= MAX_REMEMBERED_REQUESTERS {
            last.clear();
        }
        last.insert(requester, mode);
    }
}

/// One request by one mode.
struct ImpersonationCheck<'a, A> {
    authorizer: &'a A,
    requester: &'a UserInfo,
    impersonated: &'a ImpersonatedUser,
    mode: ImpersonationMode,
}

impl<A: ImpersonationAuthorizer> ImpersonationCheck<'_, A> {
    async fn authorize(
        &self,
        verb: &str,
        target: AuthorizationTarget<'_>,
    ) -> Result<UserInfo, Status> {
        let without_extras;
        let requester = match self.mode {
            ImpersonationMode::AssociatedNode => {
                without_extras = requester_on_any_node(self.requester);
                &without_extras
            }
            _ => self.requester,
        };
        if let Some(verb) = self.mode.verb_on_request(verb) {
            self.authorizer.check(requester, &verb, target).await?;
        }
        self.check_name(requester).await?;
        let impersonated = self.impersonated;
        if !impersonated.uid.is_empty() {
            let uid = identity(AUTHENTICATION_GROUP, "uids", "", "", &impersonated.uid);
            self.check(requester, uid).await?;
        }
        self.check_groups(requester).await?;
        self.check_extra(requester).await?;
        Ok(impersonated.to_user_info(self.default_groups()))
    }

    async fn check(
        &self,
        requester: &UserInfo,
        target: AuthorizationTarget<'_>,
    ) -> Result<(), Status> {
        let verb = self.mode.verb();
        self.authorizer.check(requester, verb, target).await
    }

    async fn check_name(&self, requester: &UserInfo) -> Result<(), Status> {
        let (group, user) = (self.mode.identity_group(), self.impersonated.user.as_str());
        let node = node_of_username(user).filter(|_| self.mode.is_constrained());
        let target = match (node, split_service_account_username(user)) {
            // The node is the requester's own, so the permission is for whichever it is.
            (Some(_), _) if self.mode == ImpersonationMode::AssociatedNode => {
                identity(group, "nodes", "", "", "*")
            }
            (Some(node), _) => identity(group, "nodes", "", "", node),
            (None, Some((namespace, name))) => {
                identity(group, "serviceaccounts", "", namespace, name)
            }
            (None, None) => identity(group, "users", "", "", user),
        };
        self.check(requester, target).await
    }

    async fn check_groups(&self, requester: &UserInfo) -> Result<(), Status> {
        let (group, groups) = (self.mode.identity_group(), &self.impersonated.groups);
        let target = |name| identity(group, "groups", "", "", name);
        if self.mode.is_constrained() {
            if groups.iter().any(String::is_empty) {
                let message = "impersonating the empty string group is not allowed";
                return Err(self.forbidden(requester, target(""), message));
            }
            if groups.iter().any(|g| g == SYSTEM_PRIVILEGED_GROUP) {
                let message = "impersonating the system:masters group is not allowed";
                return Err(self.forbidden(requester, target(SYSTEM_PRIVILEGED_GROUP), message));
            }
            let is_many = groups.len() >= MANY_CHECKS;
            if is_many && self.check(requester, target("*")).await.is_ok() {
                return Ok(());
            }
        }
        for name in groups {
            self.check(requester, target(name)).await?;
        }
        Ok(())
    }

    async fn check_extra(&self, requester: &UserInfo) -> Result<(), Status> {
        let extra = &self.impersonated.extra;
        let target = |key, value| identity(AUTHENTICATION_GROUP, "userextras", key, "", value);
        if self.mode.is_constrained() {
            if let Err(message) = validate_extra(extra) {
                return Err(self.forbidden(requester, target("", ""), &message));
            }
            let values: usize = extra.values().map(Vec::len).sum();
            let is_many = extra.len() >= MANY_CHECKS || values >= MANY_CHECKS;
            if is_many && self.check(requester, target("*", "*")).await.is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            for value in values {
                self.check(requester, target(key, value)).await?;
            }
        }
        Ok(())
    }

    fn forbidden(
        &self,
        requester: &UserInfo,
        target: AuthorizationTarget<'_>,
        message: &str,
    ) -> Status {
        let mut status = RbacAuthorizer::forbidden(requester, self.mode.verb(), target);
        status.message.push_str(": ");
        status.message.push_str(message);
        status
    }

    /// The groups of a user for whom none were named.
    fn default_groups(&self) -> Vec<String> {
        let user = &self.impersonated.user;
        match split_service_account_username(user) {
            Some((namespace, _)) => service_account_groups(namespace),
            None if self.mode.is_constrained() && node_of_username(user).is_some() => {
                vec![NODES_GROUP.to_owned()]
            }
            None => Vec::new(),
        }
    }
}

fn identity<'a>(
    group: &'a str,
    resource: &'a str,
    subresource: &'a str,
    namespace: &'a str,
    name: &'a str,
) -> AuthorizationTarget<'a> {
    AuthorizationTarget::Resource {
        group,
        version: "v1",
        resource,
        subresource,
        namespace,
        name,
        selectors: AuthorizationSelectors::default(),
    }
}

fn node_of_username(user: &str) -> Option<&str> {
    let node = user.strip_prefix(NODE_USERNAME_PREFIX)?;
    validate_dns1123_subdomain(node).ok().map(|()| node)
}

/// The node of the Pod whose token the requester has.
fn associated_node(requester: &UserInfo) -> Option<&str> {
    match requester.extra.get(NODE_NAME_EXTRA).map(Vec::as_slice) {
        Some([node]) => Some(node),
        _ => None,
    }
}

/// A service account that acts as its node, without what differs between nodes.
fn requester_on_any_node(requester: &UserInfo) -> UserInfo {
    let keys = requester.extra.keys().cloned().collect();
    UserInfo {
        extra: BTreeMap::from([(ASSOCIATED_NODE_KEYS_EXTRA.to_owned(), keys)]),
        ..requester.clone()
    }
}

fn validate_extra(extra: &BTreeMap<String, Vec<String>>) -> Result<(), String> {
    for (key, values) in extra {
        if key.is_empty() {
            return Err("impersonating the empty string key in extra is not allowed".into());
        }
        validate_domain_prefixed_path(key).map_err(|message| {
            format!("impersonating an invalid key in extra is not allowed: {message}")
        })?;
        if key.to_lowercase() != *key {
            return Err(format!(
                "impersonating a non-lowercase key in extra is not allowed: {key:?}"
            ));
        }
        if values.is_empty() {
            return Err("impersonating empty values in extra is not allowed".into());
        }
        if values.iter().any(String::is_empty) {
            return Err("impersonating the empty string value in extra is not allowed".into());
        }
    }
    Ok(())
}

/// Kubernetes' `IsDomainPrefixedPath`.
fn validate_domain_prefixed_path(key: &str) -> Result<(), String> {
    let invalid =
        |value: &str, message: &str| format!("extra.key: Invalid value: {value:?}: {message}");
    let (host, path) = key.split_once('/').unwrap_or_default();
    if host.is_empty() || path.is_empty() {
        let message = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return Err(invalid(key, message));
    }
    let mut errors = Vec::new();
    if let Err(message) = validate_dns1123_subdomain(host) {
        errors.push(invalid(host, &message));
    }
    let is_path_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    if !path.bytes().all(is_path_byte) {
        let message = format!("Invalid path (regex used for validation is '{HTTP_PATH_PATTERN}')");
        errors.push(invalid(path, &message));
    }
    match errors.as_slice() {
        [] => Ok(()),
        [only] => Err(only.clone()),
        all => Err(format!("[{}]", all.join(", "))),
    }
}

#[cfg(test)]
mod tests;
