//! Role based access control, evaluated in memory.
//!
//! Enters: RBAC objects by list and watch through `client::Api`; a user, a verb
//! and a target. Leaves: a verdict, its reason, or the rules that hold for a
//! user. An evaluation takes a read lock and no await.

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

/// What somebody wants to do something to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// Empty strings mean "none"; a namespace is empty at the cluster scope.
    Resource {
        group: &'a str,
        version: &'a str,
        resource: &'a str,
        subresource: &'a str,
        namespace: &'a str,
        name: &'a str,
    },
    /// A path outside the resources.
    Path(&'a str),
}

/// A verdict with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    /// Why it is allowed; empty when nothing allows it.
    pub reason: String,
    /// Roles that bindings name and that are not there.
    pub error: String,
}

/// Paths that need no right, so that probes work without credentials.
pub(crate) fn always_allowed(path: &str) -> bool {
    ["/healthz", "/livez", "/readyz"].iter().any(|open| {
        path.strip_prefix(open)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// Decides who may do what.
pub struct Authorizer {
    policy: RwLock<Policy>,
    synced: watch::Sender<u8>,
}

/// Bits of [`Authorizer::synced`]: one per followed resource.
const ALL_SYNCED: u8 = 0b1111;

impl Authorizer {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            policy: RwLock::new(Policy::default()),
            synced: watch::channel(0).0,
        })
    }

    /// Follows the RBAC objects for as long as the future is polled; it never
    /// ends by itself.
    pub fn run(self: Arc<Self>, api: Arc<dyn Api>) -> impl Future<Output = ()> + Send {
        follow::run(self, api)
    }

    /// Whether all RBAC objects have been read once.
    pub fn synced(&self) -> bool {
        *self.synced.borrow() == ALL_SYNCED
    }

    /// Resolves when [`Self::synced`].
    pub async fn wait_synced(&self) {
        let mut receiver = self.synced.subscribe();
        let _ = receiver.wait_for(|bits| *bits == ALL_SYNCED).await;
    }

    /// Whether `user` may do `verb` to `target`.
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

    /// The same with its reason, for reviews.
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

    /// The 403 of a refusal, in Kubernetes' words.
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

/// Which binding grants what, as reasons name it.
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
