//! Role-based access control, evaluated in memory.
//!
//! The RBAC objects are listed and watched through `client::Api`. A decision takes a
//! read lock and never awaits.

mod policy;
mod policy_watch;
mod rule;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use client::Api;
use machinery::user::SYSTEM_PRIVILEGED_GROUP;
use machinery::{Gvr, Status, UserInfo};
use parking_lot::RwLock;
use tokio::sync::watch;

use policy::RbacPolicy;
pub use rule::{PolicyRule, SubjectRules};

/// The target of a request to authorize (kube-apiserver's `authorizer.Attributes`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizationAttributes<'a> {
    /// Empty strings mean "none"; the namespace is empty at the cluster scope.
    Resource {
        group: &'a str,
        version: &'a str,
        resource: &'a str,
        subresource: &'a str,
        namespace: &'a str,
        name: &'a str,
    },
    /// A non-resource path.
    NonResource(&'a str),
}

/// A decision with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizerDecision {
    pub allowed: bool,
    /// The grant that allows it; empty when nothing does.
    pub reason: String,
    /// Evaluation errors: roles that bindings reference and that do not exist.
    pub evaluation_error: String,
}

/// Paths that need no permission, so that probes work without credentials.
pub(crate) fn always_allowed(path: &str) -> bool {
    ["/healthz", "/livez", "/readyz"].iter().any(|open| {
        path.strip_prefix(open)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// Authorizes requests by RBAC.
pub struct RbacAuthorizer {
    policy: RwLock<RbacPolicy>,
    synced: watch::Sender<u8>,
}

/// Bits of [`RbacAuthorizer::synced`]: one per watched resource.
const ALL_SYNCED: u8 = 0b1111;

impl RbacAuthorizer {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            policy: RwLock::new(RbacPolicy::default()),
            synced: watch::channel(0).0,
        })
    }

    /// Watches the RBAC objects; the future never completes.
    pub fn run(self: Arc<Self>, api: Arc<dyn Api>) -> impl Future<Output = ()> + Send {
        policy_watch::run(self, api)
    }

    /// Whether all RBAC objects have been listed once.
    pub fn has_synced(&self) -> bool {
        *self.synced.borrow() == ALL_SYNCED
    }

    /// Waits until [`Self::has_synced`].
    pub async fn wait_synced(&self) {
        let mut receiver = self.synced.subscribe();
        let _ = receiver.wait_for(|bits| *bits == ALL_SYNCED).await;
    }

    /// Whether `user` may `verb` the target.
    pub fn allows(&self, user: &UserInfo, verb: &str, target: AuthorizationAttributes<'_>) -> bool {
        if user.in_group(SYSTEM_PRIVILEGED_GROUP) {
            return true;
        }
        if let AuthorizationAttributes::NonResource(path) = target
            && always_allowed(path)
        {
            return true;
        }
        self.policy
            .read()
            .first_grant(user, target.namespace(), |rule| rule.allows(verb, target))
            .is_some()
    }

    /// Like [`Self::allows`], with the reason, for reviews.
    pub fn explain(
        &self,
        user: &UserInfo,
        verb: &str,
        target: AuthorizationAttributes<'_>,
    ) -> AuthorizerDecision {
        let granted = |reason: String| AuthorizerDecision {
            allowed: true,
            reason,
            evaluation_error: String::new(),
        };
        if user.in_group(SYSTEM_PRIVILEGED_GROUP) {
            return granted(String::new());
        }
        if let AuthorizationAttributes::NonResource(path) = target
            && always_allowed(path)
        {
            return granted(String::new());
        }
        let policy = self.policy.read();
        match policy.first_grant(user, target.namespace(), |rule| rule.allows(verb, target)) {
            Some(grant) => granted(format!("RBAC: allowed by {grant}")),
            None => AuthorizerDecision {
                allowed: false,
                reason: String::new(),
                evaluation_error: policy.missing_roles(user, target.namespace()),
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

    /// The 403 of a denied request, with Kubernetes' message.
    pub fn forbidden(user: &UserInfo, verb: &str, target: AuthorizationAttributes<'_>) -> Status {
        match target {
            AuthorizationAttributes::NonResource(path) => Status::failure(
                403,
                "Forbidden",
                format!(
                    "forbidden: User {:?} cannot {verb} path {path:?}",
                    user.name
                ),
            ),
            AuthorizationAttributes::Resource {
                group,
                version,
                resource,
                subresource,
                namespace,
                name,
            } => {
                let shown = if subresource.is_empty() {
                    resource.to_owned()
                } else {
                    format!("{resource}/{subresource}")
                };
                let place = if namespace.is_empty() {
                    "at the cluster scope".to_owned()
                } else {
                    format!("in the namespace {namespace:?}")
                };
                let why = format!(
                    "User {:?} cannot {verb} resource {shown:?} in API group {group:?} {place}",
                    user.name
                );
                Status::forbidden(&Gvr::new(group, version, resource), name, why)
            }
        }
    }
}

impl AuthorizationAttributes<'_> {
    fn namespace(&self) -> &str {
        match self {
            Self::Resource { namespace, .. } => namespace,
            Self::NonResource(_) => "",
        }
    }
}

/// A binding that grants access, as reasons show it.
struct RbacGrant {
    namespace: String,
    binding: String,
    role_kind: &'static str,
    role: String,
    subject: String,
}

impl fmt::Display for RbacGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "ClusterRoleBinding {:?}", self.binding)?;
        } else {
            write!(
                f,
                "RoleBinding {:?}",
                format!("{}/{}", self.binding, self.namespace)
            )?;
        }
        write!(
            f,
            " of {} {:?} to {}",
            self.role_kind, self.role, self.subject
        )
    }
}

#[cfg(test)]
mod tests;
