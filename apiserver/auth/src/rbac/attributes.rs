//! The requests that are authorized.

/// The target of a request to authorize (kube-apiserver's `authorizer.Attributes`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizationTarget<'a> {
    /// Empty strings mean "none"; the namespace is empty at the cluster scope.
    Resource {
        group: &'a str,
        version: &'a str,
        resource: &'a str,
        subresource: &'a str,
        namespace: &'a str,
        name: &'a str,
        selectors: AuthorizationSelectors<'a>,
    },
    /// A non-resource path.
    NonResource(&'a str),
}

/// The selectors of a list, a watch or a deletion of a collection; empty without them. Webhooks
/// and hosts get what can be parsed of them; RBAC does not look at them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuthorizationSelectors<'a> {
    pub fields: &'a str,
    pub labels: &'a str,
}

impl AuthorizationTarget<'_> {
    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::Resource { namespace, .. } => namespace,
            Self::NonResource(_) => "",
        }
    }
}

/// Whether a non-resource path needs no permission: the probes work without
/// credentials.
pub fn always_allowed(path: &str) -> bool {
    ["/healthz", "/livez", "/readyz"].iter().any(|open| {
        path.strip_prefix(open)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}
