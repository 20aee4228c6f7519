//! One resource of all members as the fleet view reads it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use members::{CONTROL_PLANE, FleetResource, FleetSources, MemberResourceCache, RestrictedMembers};

use crate::multi_cluster_cache::{CacheSource, MultiClusterCache};
use crate::resource_caches::{ReaderLimits, ResourceCaches};

/// The longest watch: the next one asks the members again what the user may read.
const MAX_WATCH_DURATION: Duration = Duration::from_secs(600);
/// The longest watch without a member that may be there soon.
const MAX_TRANSIENT_WATCH_DURATION: Duration = Duration::from_secs(30);

/// The caches of a resource that are filled.
pub(crate) struct CachedFleetResource {
    pub(crate) caches: Arc<ResourceCaches>,
    pub(crate) missing: BTreeMap<String, String>,
    pub(crate) usage: Arc<()>,
    pub(crate) sources: FleetSources,
}

impl FleetResource for CachedFleetResource {
    fn clusters(&self) -> Vec<String> {
        let names = self.caches.members.keys();
        let is_of_sources =
            |name: &String| self.sources != FleetSources::Members || *name != CONTROL_PLANE;
        let is_missing = |name: &String| self.missing.contains_key(name);
        let names = names.filter(|name| is_of_sources(name) && !is_missing(name));
        names.cloned().collect()
    }

    fn missing(&self) -> &BTreeMap<String, String> {
        &self.missing
    }

    fn restricted(&self, members: RestrictedMembers) -> Arc<dyn MemberResourceCache> {
        let cached = self.caches.members.iter();
        let selected = cached.filter(|(name, _)| members.clusters.contains(*name));
        let is_filling = |name: &&String| self.caches.members.contains_key(*name);
        let is_transient = members.is_transient || self.missing.keys().any(|n| is_filling(&n));
        let max_watch_duration = match is_transient {
            true => MAX_TRANSIENT_WATCH_DURATION,
            false => MAX_WATCH_DURATION,
        };
        let caches = ResourceCaches {
            kind: self.caches.kind.clone(),
            members: selected
                .map(|(name, member)| (name.clone(), Arc::clone(member)))
                .collect(),
            unreachable: members.missing,
            replaced: self.caches.replaced.clone(),
            reader: Some(ReaderLimits {
                max_watch_duration,
                usage: Arc::clone(&self.usage),
            }),
        };
        Arc::new(MultiClusterCache {
            source: CacheSource::Fixed(Arc::new(caches)),
        })
    }
}
