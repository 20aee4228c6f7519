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

struct DemandedResource {
    kind: Gvk,
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
    /// it is new. 429 while as many others are read as can be.
    pub(crate) fn add(&self, resource: &Gvr, kind: &Gvk) -> Result<(Arc<()>, bool), Status> {
        let now = Instant::now();
        let mut demanded = self.by_resource.lock();
        if let Some(entry) = demanded.get_mut(resource) {
            let is_new = std::mem::replace(&mut entry.kind, kind.clone()) != *kind;
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
            kind: kind.clone(),
            last_read: now,
            usage: Arc::clone(&usage),
        };
        demanded.insert(resource.clone(), entry);
        Ok((usage, true))
    }

    /// The resources that are left once those are dropped that nobody reads any more.
    pub(crate) fn retain_read(&self) -> BTreeMap<Gvr, Gvk> {
        let mut demanded = self.by_resource.lock();
        demanded.retain(|_, entry| entry.is_read() || entry.last_read.elapsed() < IDLE_TIMEOUT);
        let kept = demanded.iter();
        kept.map(|(gvr, entry)| (gvr.clone(), entry.kind.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(demanded: &DemandedResources, number: usize) -> Result<(Arc<()>, bool), Status> {
        let name = format!("r{number}");
        demanded.add(&Gvr::new("", "v1", &name), &Gvk::new("", "v1", "R"))
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
