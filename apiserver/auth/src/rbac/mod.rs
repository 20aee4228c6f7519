//! Role-based access control, evaluated in memory.
//!
//! The RBAC objects are listed and watched through `client::Api`. A decision takes a
//! read lock and never awaits.

mod follow;
mod policy;
mod rule;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use client::Api;
use machinery::user::MASTERS;
use machinery::{Gvr, Status, UserInfo};
use parking_lot::RwLock;
use tokio::sync::watch;

use policy::Policy;
pub use rule::{Rule, Rules};

/// The target of a request to authorize (kube-apiserver's `authorizer.Attributes`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
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
    Path(&'a str),
}

/// A decision with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    /// The grant that allows it; empty when nothing does.
    pub reason: String,
    /// Evaluation errors: roles that bindings reference and that do not exist.
    pub error: String,
}

/// Paths that need no permission, so that probes work without credentials.
pub(crate) fn always_allowed(path: &str) -> bool {
    ["/healthz", "/livez", "/readyz"].iter().any(|open| {
        path.strip_prefix(open)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// Authorizes requests by RBAC.
pub struct Authorizer {
    policy: RwLock<Policy>,
    synced: watch::Sender<u8>,
}

/// Bits of [`RbacAuthorizer::synced`]: one per watched resource.
const ALL_SYNCED: u8 = 0b1111;

impl Authorizer {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            policy: RwLock::new(Policy::default()),
            synced: watch::channel(0).0,
        })
    }

    /// Watches the RBAC objects; the future never completes.
    pub fn run(self: Arc<Self>, api: Arc<dyn Api>) -> impl Future<Output = ()> + Send {
        follow::run(self, api)
    }

    /// Whether all RBAC objects have been listed once.
    pub fn synced(&self) -> bool {
        *self.synced.borrow() == ALL_SYNCED
    }

    /// Waits until [`Self::has_synced`].
    pub async fn wait_synced(&self) {
        let mut receiver = self.synced.subscribe();
        let _ = receiver.wait_for(|bits| *bits == ALL_SYNCED).await;
    }

    /// Whether `user` may `verb` the target.
    pub fn allows(&self, user: &UserInfo, verb: &str, target: Target<'_>) -> bool {
        if user.in_group(MASTERS) {
            return true;
        }
        if let Target::Path(path) = target
            && always_allowed(path)
        {
            return true;
        }
        self.policy
            .read()
            .first_grant(user, target.namespace(), |rule| rule.covers(verb, target))
            .is_some()
    }

    /// Like [`Self::allows`], with the reason, for reviews.
    pub fn explain(&self, user: &UserInfo, verb: &str, target: Target<'_>) -> Decision {
        let granted = |reason: String| Decision {
            allowed: true,
            reason,
            error: String::new(),
        };
        if user.in_group(MASTERS) {
            return granted(String::new());
        }
        if let Target::Path(path) = target
            && always_allowed(path)
        {
            return granted(String::new());
        }
        let policy = self.policy.read();
        match policy.first_grant(user, target.namespace(), |rule| rule.covers(verb, target)) {
            Some(grant) => granted(format!("RBAC: allowed by {grant}")),
            None => Decision {
                allowed: false,
                reason: String::new(),
                error: policy.missing_roles(user, target.namespace()),
            },
        }
    }

    /// Everything `user` may do in a namespace, cluster-wide grants included.
    pub fn rules(&self, user: &UserInfo, namespace: &str) -> Rules {
        if user.in_group(MASTERS) {
            return Rules::everything();
        }
        let mut rules = Rules::default();
        self.policy.read().first_grant(user, namespace, |rule| {
            rules.add(rule);
            false
        });
        rules
    }

    /// The 403 of a denied request, with Kubernetes' message.
    pub fn forbidden(user: &UserInfo, verb: &str, target: Target<'_>) -> Status {
        match target {
            Target::Path(path) => Status::failure(
                403,
                "Forbidden",
                format!(
                    "forbidden: User {:?} cannot {verb} path {path:?}",
                    user.name
                ),
            ),
            Target::Resource {
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

impl Target<'_> {
    fn namespace(&self) -> &str {
        match self {
            Self::Resource { namespace, .. } => namespace,
            Self::Path(_) => "",
        }
    }
}

/// A binding that grants access, as reasons show it.
struct Grant {
    namespace: String,
    binding: String,
    role_kind: &'static str,
    role: String,
    subject: String,
}

impl fmt::Display for Grant {
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
