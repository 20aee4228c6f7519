//! The resources that somebody reads, with a bound on their number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use machinery::{Gvk, Gvr, Status};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The most resources that are cached at once.
const MAX_RESOURCES: usize = 128;
/// A resource that nobody has read for so long is dropped.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// The kind of a cached resource, and from where its objects are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DemandedKind {
    pub(crate) kind: Gvk,
    /// Whether the objects of the control plane are read with those of the members: from the first such
    /// read until the resource is dropped.
    pub(crate) with_control_plane: bool,
}

struct DemandedResource {
    demanded: DemandedKind,
    last_read: Instant,
    /// Held by everybody who reads it now.
    usage: Arc<()>,
}

impl DemandedResource {
    fn is_read(&self) -> bool {
        Arc::strong_count(&self.usage) > 1
    }
}

/// The resources that are read, or were lately.
#[derive(Default)]
pub(crate) struct DemandedResources {
    by_resource: Mutex<BTreeMap<Gvr, DemandedResource>>,
}

impl DemandedResources {
    /// Adds a resource, or notes that it is read again: what to hold while it is read, and whether
    /// anything of it is new. 429 while as many others are read as can be.
    pub(crate) fn add(
        &self,
        resource: &Gvr,
        mut read: DemandedKind,
    ) -> Result<(Arc<()>, bool), Status> {
        let now = Instant::now();
        let mut demanded = self.by_resource.lock();
        if let Some(entry) = demanded.get_mut(resource) {
            read.with_control_plane |= entry.demanded.with_control_plane;
            let is_new = entry.demanded != read;
            entry.demanded = read;
            entry.last_read = now;
            return Ok((Arc::clone(&entry.usage), is_new));
        }
        if demanded.len() >= MAX_RESOURCES {
            let unread = demanded.iter().filter(|(_, entry)| !entry.is_read());
            let oldest = unread.min_by_key(|(_, entry)| entry.last_read);
            let Some(oldest) = oldest.map(|(gvr, _)| gvr.clone()) else {
                let text = format!("the fleet view already reads {MAX_RESOURCES} resources");
                return Err(Status::too_many_requests(text, 10));
            };
            demanded.remove(&oldest);
        }
        let usage = Arc::default();
        let entry = DemandedResource {
            demanded: read,
            last_read: now,
            usage: Arc::clone(&usage),
        };
        demanded.insert(resource.clone(), entry);
        Ok((usage, true))
    }

    /// The resources that are left once those are dropped that nobody reads any more.
    pub(crate) fn retain_read(&self) -> BTreeMap<Gvr, DemandedKind> {
        let mut demanded = self.by_resource.lock();
        demanded.retain(|_, entry| entry.is_read() || entry.last_read.elapsed() < IDLE_TIMEOUT);
        let kept = demanded.iter();
        kept.map(|(gvr, entry)| (gvr.clone(), entry.demanded.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(demanded: &DemandedResources, number: usize) -> Result<(Arc<()>, bool), Status> {
        add_with(demanded, number, false)
    }

    fn add_with(
        demanded: &DemandedResources,
        number: usize,
        with_control_plane: bool,
    ) -> Result<(Arc<()>, bool), Status> {
        let read = DemandedKind {
            kind: Gvk::from_static("", "v1", "R"),
            with_control_plane,
        };
        demanded.add(&Gvr::new("", "v1", format!("r{number}")), read)
    }

    // proves: FLT-demand
    #[test]
    fn the_control_plane_is_read_from_the_first_read_of_both_on() {
        let demanded = DemandedResources::default();
        for (with_control_plane, is_new, is_read) in [
            (false, true, false),
            (true, true, true),
            (true, false, true),
            (false, false, true),
        ] {
            assert_eq!(
                add_with(&demanded, 0, with_control_plane).unwrap().1,
                is_new
            );
            let kinds = demanded.retain_read();
            let mut kinds = kinds.values();
            assert_eq!(kinds.next().unwrap().with_control_plane, is_read);
        }
    }

    // proves: FLV-demand, FLV-bounds
    #[tokio::test(start_paused = true)]
    async fn resources_are_kept_while_they_are_read() {
        let demanded = DemandedResources::default();
        let (usage, is_new) = add(&demanded, 0).unwrap();
        assert!(is_new);
        assert!(!add(&demanded, 0).unwrap().1);
        drop(add(&demanded, 1).unwrap());
        assert_eq!(demanded.retain_read().len(), 2);
        tokio::time::advance(IDLE_TIMEOUT).await;
        assert_eq!(demanded.retain_read().len(), 1);
        drop(usage);
        assert!(demanded.retain_read().is_empty());

        let usages: Vec<_> = (0..MAX_RESOURCES)
            .map(|n| add(&demanded, n).unwrap().0)
            .collect();
        assert_eq!(add(&demanded, MAX_RESOURCES).unwrap_err().code, 429);
        drop(usages);
        assert!(add(&demanded, MAX_RESOURCES).unwrap().1);
        assert_eq!(demanded.retain_read().len(), MAX_RESOURCES);
    }
}
