//! A resource of a member whose objects are documents of a backend store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::ShutdownToken;
use machinery::{Gvk, Object};
use watchcache::ReadFreshness;

use crate::member_resource::NamespaceScope;
use crate::resource_caches::MemberCacher;

/// The prefix of all indexes, as in Karmada.
const INDEX_PREFIX: &str = "kubernetes";

/// The source of the documents of one resource of one member.
pub(crate) struct IndexedSelection {
    pub(crate) cluster: String,
    /// The UID of the Cluster: of the documents of an index it marks those of this control plane.
    pub(crate) cluster_uid: String,
    pub(crate) kind: Gvk,
    /// The namespaces that the registries of the store select; the cache may have others, too.
    pub(crate) scope: NamespaceScope,
    pub(crate) member: Arc<MemberCacher>,
}

impl IndexedSelection {
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.cluster == other.cluster
            && self.cluster_uid == other.cluster_uid
            && self.kind == other.kind
            && self.scope == other.scope
            && Arc::ptr_eq(&self.member, &other.member)
    }
}

/// A selected resource and its index.
pub(crate) struct IndexedResource {
    pub(crate) selection: IndexedSelection,
    pub(crate) index: Arc<str>,
    /// Triggered when the resource is not selected any more.
    pub(crate) stopped: ShutdownToken,
    is_restored: AtomicBool,
}

/// The present state of an object in the cache.
pub(crate) enum CachedObject {
    Present(Object),
    Absent,
    /// The cache is being filled. When it is, it is compared with the index.
    Unknown,
}

impl IndexedResource {
    /// `None` if the kind is no name of an index.
    pub(crate) fn new(selection: IndexedSelection, stopped: ShutdownToken) -> Option<Self> {
        let index = index_name(&selection.kind)?;
        Some(Self {
            selection,
            index: index.into(),
            stopped,
            is_restored: AtomicBool::new(false),
        })
    }

    /// The object of a key, if it still has this UID.
    pub(crate) async fn read(&self, key: &str, uid: &str) -> CachedObject {
        let cacher = &self.selection.member.cacher;
        if self.stopped.is_triggered() || !cacher.ready() {
            return CachedObject::Unknown;
        }
        match cacher.get(key, ReadFreshness::Any).await {
            Ok(Some(object)) if object.uid() == uid => CachedObject::Present(object),
            Ok(_) => CachedObject::Absent,
            Err(_) => CachedObject::Unknown,
        }
    }

    /// The version of a write that needs the document not to be newer. `None`: it replaces
    /// whatever is there.
    pub(crate) fn document_version(&self, resource_version: u64) -> Option<u64> {
        let fits = i64::try_from(resource_version).is_ok();
        (fits && !self.is_restored.load(Ordering::Relaxed)).then_some(resource_version)
    }

    /// Records that documents are newer than the objects of the member for good, which was
    /// restored from a backup then.
    pub(crate) fn set_restored(&self) {
        self.is_restored.store(true, Ordering::Relaxed);
    }

    /// The resource in messages.
    pub(crate) fn name(&self) -> String {
        let selection = &self.selection;
        format!("cluster {:?}: {}", selection.cluster, selection.kind.kind)
    }
}

/// `kubernetes-<lowercase kind>`; `None` for a kind with characters that an index may not have.
fn index_name(kind: &Gvk) -> Option<String> {
    let valid = !kind.kind.is_empty()
        && kind.kind.len() <= 63
        && kind
            .kind
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-');
    valid.then(|| format!("{INDEX_PREFIX}-{}", kind.kind.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_named_for_the_kind() {
        let name = |kind: &str| index_name(&Gvk::new("apps", "v1", kind));
        assert_eq!(name("Deployment").unwrap(), "kubernetes-deployment");
        for bad in [
            "",
            "a/_search",
            "A*",
            "a,b",
            "..",
            "\u{e4}",
            &"a".repeat(64),
        ] {
            assert_eq!(name(bad), None, "{bad}");
        }
    }
}
