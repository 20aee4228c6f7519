//! A lister of the Clusters of the control plane, decoded once per version.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::{Api, Informer, InformerFactory, ListWatchSelector};
use karmada_api::resources::CLUSTERS;
use karmada_api::{Cluster, ClusterAttributes};
use machinery::Object;
use parking_lot::RwLock;

/// A Cluster and its decoded form.
#[derive(Clone)]
pub struct ListedCluster {
    pub object: Object,
    pub cluster: Arc<Cluster>,
}

impl ListedCluster {
    /// `None` if the Cluster cannot be decoded.
    pub fn new(object: &Object) -> Option<Self> {
        Some(Self {
            object: object.clone(),
            cluster: object.decode().ok()?,
        })
    }

    pub fn name(&self) -> &str {
        self.object.name()
    }

    pub fn is_terminating(&self) -> bool {
        self.object.meta().deleting
    }

    /// The properties that affinities match.
    pub fn attributes(&self) -> ClusterAttributes<'_> {
        self.cluster.attributes(&self.object)
    }
}

/// Lists the Clusters as an informer reports them. Clones share the copy.
#[derive(Clone)]
pub struct ClusterLister {
    clusters: Arc<RwLock<BTreeMap<String, ListedCluster>>>,
    informer: Informer,
}

impl ClusterLister {
    /// The lister of all Clusters that `api` serves.
    pub fn watch(api: &Arc<dyn Api>, informers: &InformerFactory) -> Self {
        Self::new(informers.get(api, &ListWatchSelector::all(&CLUSTERS)))
    }

    /// Lists what an informer of Clusters has.
    pub fn new(informer: Informer) -> Self {
        let clusters = Arc::<RwLock<BTreeMap<String, ListedCluster>>>::default();
        let written = Arc::clone(&clusters);
        informer.add_event_handler(move |event| {
            let mut clusters = written.write();
            match event.new.and_then(ListedCluster::new) {
                Some(cluster) => clusters.insert(cluster.name().to_owned(), cluster),
                None => clusters.remove(event.object().name()),
            };
        });
        Self { clusters, informer }
    }

    pub fn get(&self, name: &str) -> Option<ListedCluster> {
        self.clusters.read().get(name).cloned()
    }

    /// All Clusters, by name.
    pub fn list(&self) -> Vec<ListedCluster> {
        self.clusters.read().values().cloned().collect()
    }

    pub fn informer(&self) -> &Informer {
        &self.informer
    }
}
