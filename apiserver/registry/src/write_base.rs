//! The object from which an update or a deletion starts: the cached copy at first, which saves
//! a read of the store, then the newest object.

use client::ResourcePath;
use machinery::{Object, Status};

use crate::registry::Registry;
use crate::resource_table::ResourceInfo;

/// The object that a write starts from: the cached one first, the stored one after a
/// conflict.
pub(crate) struct CachedOrNewestBaseObject<'a> {
    registry: &'a Registry,
    resource: &'a ResourceInfo,
    key: &'a str,
    current: Option<Object>,
    /// Whether `current` was read from the store.
    is_newest: bool,
}

impl<'a> CachedOrNewestBaseObject<'a> {
    /// `key` is the storage key of the object at `path`.
    pub(crate) async fn new(
        registry: &'a Registry,
        resource: &'a ResourceInfo,
        path: ResourcePath<'_>,
        key: &'a str,
        dry_run: bool,
    ) -> Result<Self, Status> {
        // A dry run commits nothing, so no conflict would reveal a stale cached object.
        let current = match dry_run {
            true => None,
            false => registry.get_cached(resource, path.namespace, path.name)?,
        };
        Ok(Self {
            registry,
            resource,
            key,
            current,
            is_newest: false,
        })
    }

    /// Takes the object for the next attempt; `None` if it does not exist.
    pub(crate) async fn take(&mut self) -> Result<Option<Object>, Status> {
        if self.current.is_none() && !self.is_newest {
            self.read_newest().await?;
        }
        Ok(self.current.take())
    }

    /// Whether the taken object was an outdated copy; then the next attempt starts from the
    /// newest object.
    pub(crate) async fn is_outdated(&mut self, base: &Object) -> Result<bool, Status> {
        if self.is_newest {
            return Ok(false);
        }
        self.read_newest().await?;
        let newest = self.current.as_ref().map(Object::revision);
        let is_outdated = newest != Some(base.revision());
        if !is_outdated {
            self.current = None;
        }
        Ok(is_outdated)
    }

    /// Whether the object for the next attempt exists.
    pub(crate) fn exists(&self) -> bool {
        self.current.is_some()
    }

    /// Another writer was faster: the next attempt starts from what it has written, `None` if
    /// it has removed the object.
    pub(crate) fn replace(&mut self, winner: Option<Object>) {
        self.current = winner;
        self.is_newest = true;
    }

    async fn read_newest(&mut self) -> Result<(), Status> {
        self.current = self.registry.get_newest(self.resource, self.key).await?;
        self.is_newest = true;
        Ok(())
    }
}
