//! Maps kinds to the resources that an API server serves (apimachinery's `RESTMapper`, by
//! discovery).
//!
//! Readers take no lock. A group whose discovery fails keeps the kinds that were known.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use client::{Api, ApiResource, Error, ServerResources};
use machinery::{FailureLogLimiter, Gvk, Gvr};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Minimum time between two discoveries that [`RestMapper::resource_for`] makes.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(5);

/// A kind and the resource that serves it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct RestMapping {
    pub gvk: Gvk,
    pub gvr: Gvr,
    pub api_version: String,
    pub namespaced: bool,
}

impl RestMapping {
    pub fn from_api_resource(resource: &ApiResource) -> Self {
        Self {
            gvk: resource.resource.with_kind(resource.kind.clone()),
            gvr: resource.resource.clone(),
            api_version: resource.resource.api_version(),
            namespaced: resource.namespaced,
        }
    }

    pub fn kind(&self) -> &str {
        &self.gvk.kind
    }

    /// `apiVersion` and `kind`.
    pub fn api_version_and_kind(&self) -> (&str, &str) {
        (&self.api_version, &self.gvk.kind)
    }
}

/// A resource as discovery describes it, and its mapping.
#[derive(Debug)]
pub struct DiscoveredResource {
    pub resource: ApiResource,
    pub mapping: Arc<RestMapping>,
}

/// The result of discovery; the preferred version of a group is first.
#[derive(Default)]
struct DiscoverySnapshot {
    resources: Vec<Arc<DiscoveredResource>>,
    by_kind: HashMap<Gvk, Arc<RestMapping>>,
}

/// The kinds that a server serves.
pub struct RestMapper {
    api: Arc<dyn Api>,
    discovery: ArcSwap<DiscoverySnapshot>,
    /// Time of the last discovery; locked during it, so that an older result never replaces a
    /// newer one.
    last_discovery: Mutex<Option<Instant>>,
    /// Groups whose discovery fails at present.
    failures: FailureLogLimiter,
}

impl RestMapper {
    pub fn new(api: Arc<dyn Api>) -> Self {
        Self {
            api,
            discovery: ArcSwap::default(),
            last_discovery: Mutex::default(),
            failures: FailureLogLimiter::new(),
        }
    }

    /// Repeats discovery. Returns whether discovery of every group succeeded.
    pub async fn refresh(&self) -> Result<bool, Error> {
        self.discover(&mut *self.last_discovery.lock().await).await
    }

    async fn discover(&self, last_discovery: &mut Option<Instant>) -> Result<bool, Error> {
        *last_discovery = Some(Instant::now());
        Ok(self.update(self.api.discover().await?))
    }

    fn update(&self, discovered: ServerResources) -> bool {
        for (group, reason) in &discovered.failed_group_versions {
            if self.failures.record_failure(group, reason) {
                tracing::warn!(group, reason, "API discovery of a group failed");
            }
        }
        let old = self.discovery.load();
        let is_kept = |old: &&Arc<DiscoveredResource>| {
            let version = &old.mapping.api_version;
            let failed = discovered.failed_group_versions.iter();
            failed.map(|(failed, _)| failed).any(|f| f == version)
        };
        let kept: Vec<_> = old.resources.iter().filter(is_kept).cloned().collect();
        let mut resources = Vec::new();
        for resource in discovered.resources {
            let mapping = Arc::new(RestMapping::from_api_resource(&resource));
            if self.failures.record_success(&mapping.api_version) {
                let group = &mapping.api_version;
                tracing::info!(group, "API discovery of a group succeeds again");
            }
            resources.push(Arc::new(DiscoveredResource { resource, mapping }));
        }
        for kept in kept {
            if !resources.iter().any(|r: &Arc<_>| r.mapping == kept.mapping) {
                resources.push(kept);
            }
        }
        let mappings = resources.iter().map(|r| &r.mapping);
        let by_kind = mappings.map(|m| (m.gvk.clone(), Arc::clone(m))).collect();
        self.discovery
            .store(Arc::new(DiscoverySnapshot { resources, by_kind }));
        discovered.failed_group_versions.is_empty()
    }

    pub fn find(&self, api_version: &str, kind: &str) -> Option<Arc<RestMapping>> {
        self.get(&Gvk::from_api_version(api_version, kind))
    }

    pub fn get(&self, kind: &Gvk) -> Option<Arc<RestMapping>> {
        self.discovery.load().by_kind.get(kind).cloned()
    }

    /// Whether the server allows all of these verbs on a resource.
    pub fn allows(&self, resource: &Gvr, verbs: &[&str]) -> bool {
        let discovery = self.discovery.load();
        let mut resources = discovery.resources.iter().map(|r| &r.resource);
        resources.any(|r| r.resource == *resource && verbs.iter().all(|verb| r.allows(verb)))
    }

    /// The resources that a condition selects, each in the first version for which it holds:
    /// all versions of a resource share one store, and the server's preferred version is first.
    pub fn preferred(
        &self,
        condition: impl Fn(&ApiResource) -> bool,
    ) -> Vec<Arc<DiscoveredResource>> {
        let discovery = self.discovery.load();
        let mut distinct = HashSet::new();
        let selected = discovery.resources.iter().filter(|discovered| {
            let gvr = &discovered.resource.resource;
            condition(&discovered.resource) && distinct.insert((&gvr.group, &gvr.resource))
        });
        selected.cloned().collect()
    }

    /// The resource of a kind: of a built-in one without discovery; discovery is repeated at a
    /// limited rate for a kind that is missing. An error if the server does not serve the kind.
    pub async fn resource_for(&self, kind: &Gvk) -> Result<Gvr, Error> {
        if let Some(built_in) = openapi::resource_of_kind(kind) {
            return Ok(built_in.clone());
        }
        if let Some(mapping) = self.get(kind) {
            return Ok(mapping.gvr.clone());
        }
        let mut last_discovery = self.last_discovery.lock().await;
        // Another task may have discovered the kind while it held the lock.
        if self.get(kind).is_none()
            && last_discovery.is_none_or(|at| at.elapsed() >= DISCOVERY_INTERVAL)
        {
            self.discover(&mut last_discovery).await?;
        }
        let missing = || Error::Protocol(format!("no matches for kind {kind}"));
        self.get(kind)
            .map(|mapping| mapping.gvr.clone())
            .ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client_fake::FakeApi;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn api_resource(group: &str, version: &str, kind: &str, verbs: &[&str]) -> ApiResource {
        let plural = format!("{}s", kind.to_lowercase());
        ApiResource {
            resource: Gvr::new(group.to_owned(), version.to_owned(), plural),
            kind: kind.into(),
            namespaced: true,
            verbs: verbs.iter().map(|&verb| verb.into()).collect(),
            subresources: vec![],
            categories: vec![],
            short_names: vec![],
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_kind_is_discovered_at_a_limited_rate() {
        let fake = FakeApi::new();
        let mapper = RestMapper::new(fake.clone());
        let find = async |group: &str, kind: &str| {
            let resource = mapper.resource_for(&Gvk::new(group, "v1", kind)).await;
            resource.map(|r| r.to_string()).ok()
        };
        let deployments = Gvr::from_static("apps", "v1", "deployments");
        assert_eq!(
            find("apps", "Deployment").await,
            Some(deployments.to_string())
        );
        assert_eq!(find("example.io", "Thing").await, None);
        let things = Gvr::from_static("example.io", "v1", "things");
        fake.add_resource(api_resource("example.io", "v1", "Thing", &[]));
        assert_eq!(find("example.io", "Thing").await, None);
        tokio::time::advance(DISCOVERY_INTERVAL).await;
        assert_eq!(find("example.io", "Thing").await, Some(things.to_string()));
    }

    // proves: DET-kinds-unreadable
    #[test]
    fn a_group_whose_discovery_fails_keeps_its_kinds() {
        let mapper = RestMapper::new(FakeApi::new());
        let table = [
            (&["x.io", "y.io"][..], &[][..], 2),
            (&["y.io"], &["x.io/v1"], 2),
            (&["y.io"], &[], 1),
        ];
        for (there, failed, expected) in table {
            let served = there
                .iter()
                .map(|group| api_resource(group, "v1", "Thing", &["list", "watch", "delete"]));
            let complete = mapper.update(ServerResources {
                resources: served.collect(),
                failed_group_versions: failed.iter().map(|v| (v.to_string(), "?".into())).collect(),
            });
            assert_eq!(complete, failed.is_empty());
            assert_eq!(mapper.preferred(|r| r.allows("list")).len(), expected);
            assert_eq!(mapper.find("x.io/v1", "Thing").is_some(), expected == 2);
        }
    }

    const VERSIONS: [&str; 4] = ["a.io/v2", "a.io/v1", "b.io/v1", "b.io/v1beta1"];
    const KINDS: [&str; 2] = ["Thing", "Part"];

    /// The result of one discovery of a group and version: nothing, its kinds with or without
    /// the verb `list`, or a failure.
    #[derive(Clone, Debug)]
    enum GeneratedGroupVersionDiscovery {
        Served([Option<bool>; 2]),
        Failed,
    }

    fn discoveries() -> impl Strategy<Value = Vec<[GeneratedGroupVersionDiscovery; 4]>> {
        let result = prop_oneof![
            3 => any::<[Option<bool>; 2]>().prop_map(GeneratedGroupVersionDiscovery::Served),
            1 => Just(GeneratedGroupVersionDiscovery::Failed),
        ];
        prop::collection::vec(prop::array::uniform4(result), 1..6)
    }

    fn server_resources(results: &[GeneratedGroupVersionDiscovery; 4]) -> ServerResources {
        let mut resources = ServerResources {
            resources: vec![],
            failed_group_versions: vec![],
        };
        for (version, result) in VERSIONS.iter().zip(results) {
            let GeneratedGroupVersionDiscovery::Served(kinds) = result else {
                resources
                    .failed_group_versions
                    .push(((*version).into(), "?".into()));
                continue;
            };
            let (group, version) = version.split_once('/').unwrap();
            for (kind, list) in KINDS.iter().zip(kinds) {
                let Some(list) = list else { continue };
                let verbs = if *list {
                    &["get", "list"][..]
                } else {
                    &["get"]
                };
                resources
                    .resources
                    .push(api_resource(group, version, kind, verbs));
            }
        }
        resources
    }

    proptest! {
        /// The model is a map from version and kind to the last successful result.
        #[test]
        fn the_last_successful_discovery_of_each_version_counts(rounds in discoveries()) {
            let mapper = RestMapper::new(FakeApi::new());
            let mut model: BTreeMap<(&str, &str), bool> = BTreeMap::new();
            for round in &rounds {
                let complete = mapper.update(server_resources(round));
                let has_failed = round.iter().any(|r| matches!(r, GeneratedGroupVersionDiscovery::Failed));
                prop_assert_eq!(complete, !has_failed);
                for (version, result) in VERSIONS.iter().zip(round) {
                    let GeneratedGroupVersionDiscovery::Served(kinds) = result else { continue };
                    for (kind, list) in KINDS.iter().zip(kinds) {
                        match list {
                            Some(list) => drop(model.insert((version, kind), *list)),
                            None => drop(model.remove(&(*version, *kind))),
                        }
                    }
                }
                for version in VERSIONS {
                    for kind in KINDS {
                        let actual = mapper.find(version, kind);
                        prop_assert_eq!(actual.is_some(), model.contains_key(&(version, kind)));
                        prop_assert!(actual.is_none_or(|m| m.api_version_and_kind() == (version, kind)));
                    }
                }
                // One version of each resource that some version can list.
                let preferred = mapper.preferred(|r| r.allows("list"));
                let of_model: HashSet<(&str, &str)> = model
                    .iter()
                    .filter(|(_, list)| **list)
                    .map(|((version, kind), _)| (version.split_once('/').unwrap().0, *kind))
                    .collect();
                let mappings: Vec<&RestMapping> = preferred.iter().map(|r| &*r.mapping).collect();
                let of_mapper = mappings.iter().map(|m| (&*m.gvk.group, m.kind()));
                prop_assert_eq!(of_mapper.collect::<HashSet<_>>(), of_model);
                for mapping in &mappings {
                    let (version, kind) = mapping.api_version_and_kind();
                    prop_assert_eq!(model.get(&(version, kind)), Some(&true));
                }
                if !has_failed {
                    // In the order of discovery, so that the preferred version is the first.
                    for mapping in &mappings {
                        let first = VERSIONS.iter().find(|v| {
                            v.starts_with(&*mapping.gvk.group)
                                && model.get(&(**v, mapping.kind())) == Some(&true)
                        });
                        prop_assert_eq!(first, Some(&&*mapping.api_version));
                    }
                }
            }
        }
    }
}
