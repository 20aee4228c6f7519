//! The part of a member that is cached: a resource, in some or all namespaces.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use client::{Api, ResourcePath};
use machinery::{Gvk, Gvr, Object};
use storage::{Error, StoreResult};

use crate::fleet::fleet_value;
use crate::stored_value::stored_value;

/// The namespaces whose objects are cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NamespaceScope {
    All,
    Only(BTreeSet<String>),
}

impl NamespaceScope {
    /// No namespace.
    pub(crate) fn empty() -> Self {
        Self::Only(BTreeSet::new())
    }

    /// Adds a namespace; the empty name stands for all.
    pub(crate) fn add(&mut self, namespace: &str) {
        match self {
            Self::Only(names) if !namespace.is_empty() => {
                names.insert(namespace.to_owned());
            }
            _ => *self = Self::All,
        }
    }

    /// The namespace of the list and the watch: that of the scope if it is only one.
    fn request_namespace(&self) -> &str {
        match self {
            Self::Only(names) if names.len() == 1 => names.first().map_or("", String::as_str),
            _ => "",
        }
    }

    pub(crate) fn contains(&self, object: &Object) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(object.namespace()),
        }
    }
}

/// The form in which objects are cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachedForm {
    /// As in the member, with the annotation of its cluster.
    Search,
    /// As the fleet view shows it.
    Fleet,
}

impl CachedForm {
    /// The first segment of the keys.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::Search => "members",
            Self::Fleet => "fleet",
        }
    }
}

/// A resource of a member.
#[derive(Clone)]
pub(crate) struct MemberResource {
    pub(crate) cluster: String,
    pub(crate) resource: Gvr,
    pub(crate) kind: Gvk,
    pub(crate) form: CachedForm,
    pub(crate) scope: NamespaceScope,
    pub(crate) api: Arc<dyn Api>,
    /// The prefix of the keys; it ends with a slash.
    pub(crate) prefix: String,
}

impl MemberResource {
    pub(crate) fn path(&self) -> ResourcePath<'_> {
        ResourcePath::collection(&self.resource, self.scope.request_namespace())
    }

    pub(crate) fn key(&self, object: &Object) -> Arc<str> {
        format!("{}{}", self.prefix, object.meta().key()).into()
    }

    pub(crate) fn selects(&self, object: &Object) -> bool {
        self.scope.contains(object)
    }

    /// The stored form of an object; `None`, with a log line, for one that has none, so that
    /// it does not fail the others.
    pub(crate) fn stored_value(&self, object: &Object) -> Option<Bytes> {
        let stored = match self.form {
            CachedForm::Search => stored_value(object, &self.cluster).map_err(|e| e.to_string()),
            CachedForm::Fleet => fleet_value(object, &self.cluster, &self.kind),
        };
        stored
            .inspect_err(|error| {
                let (cluster, resource) = (&self.cluster, &self.resource);
                tracing::warn!(%cluster, %resource, ?object, %error, "object is not cached");
            })
            .ok()
    }

    /// An error for a member whose objects have no resourceVersions that can be compared.
    pub(crate) fn check_revision(&self, revision: u64) -> StoreResult<u64> {
        match revision {
            0 => Err(Error::Unavailable(format!(
                "cluster {:?}: the resourceVersions of {} are not numbers",
                self.cluster, self.resource
            ))),
            revision => Ok(revision),
        }
    }
}

/// Whether a watch cannot go on from its revision: it is too old, or the member was restored
/// from a backup.
pub(crate) fn is_revision_lost(error: &client::Error) -> bool {
    let status = error.status();
    error.is_expired() || status.is_some_and(|s| s.has_cause("ResourceVersionTooLarge"))
}

pub(crate) fn store_error(cluster: &str, error: &client::Error) -> Error {
    match is_revision_lost(error) {
        true => Error::Compacted { at: 0 },
        false => Error::Unavailable(format!("cluster {cluster:?}: {error}")),
    }
}
