//! Keeps one ClusterProfile for each Cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::{
    Api, DeleteOptions, Informer, InvolvedObject, ListWatchSelector, Patch, ResourcePath, Result,
    WriteOptions,
};
use flotilla_runtime::{
    ControllerContext, EventRecorder, ReconcileAction, StatusWriter, Workqueue,
    create_missing_definitions, run_workers,
};
use karmada_api::Cluster;
use karmada_api::resources::CLUSTERS;
use karmada_api::well_known_keys::SKIP_AUTO_PROPAGATION;
use machinery::bootstrap_token::{CLUSTER_INFO, CLUSTER_INFO_NAMESPACE};
use machinery::{Gvr, Object};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::CLUSTER_PROFILES;
use crate::address::ControlPlaneAddress;
use crate::profile::{API_VERSION, KIND, desired_profile, desired_status, is_own, profile_patch};

static NAMESPACES: Gvr = Gvr::from_static("", "v1", "namespaces");
static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");
const WORKERS: usize = 2;

struct ClusterProfileController {
    api: Arc<dyn Api>,
    clusters: Informer,
    profiles: Informer,
    cluster_info: Informer,
    recorder: EventRecorder,
    /// The namespace of the profiles.
    namespace: Arc<str>,
    /// By name: the uid of the profile of another cluster manager that was reported.
    reported: Mutex<BTreeMap<Box<str>, Box<str>>>,
}

/// The namespace and the name of a ClusterProfile, whether it exists or not.
type ProfileKey = (Arc<str>, Arc<str>);

/// Starts the controller for profiles in a namespace; it stops with the tasks of the context.
/// Returns when it has listed what it watches.
pub async fn start(context: &ControllerContext, namespace: &str) {
    create_missing_definitions(context, &[&CLUSTER_PROFILES]);
    let cluster_info = ListWatchSelector::all(&CONFIG_MAPS)
        .namespace(CLUSTER_INFO_NAMESPACE)
        .fields(format!("metadata.name={CLUSTER_INFO}"));
    let controller = Arc::new(ClusterProfileController {
        api: Arc::clone(&context.control_plane),
        clusters: context.informer(&CLUSTERS),
        profiles: context.informer(&CLUSTER_PROFILES),
        cluster_info: context.select(&cluster_info),
        recorder: context.recorder.clone(),
        namespace: namespace.into(),
        reported: Mutex::default(),
    });
    let queue = Workqueue::new();
    controller.add_event_handlers(&queue);
    for informer in [
        &controller.clusters,
        &controller.profiles,
        &controller.cluster_info,
    ] {
        informer.wait_for_cache_sync().await;
    }
    run_workers(
        &context.tasks,
        "cluster_profile",
        &queue,
        WORKERS,
        move |(namespace, name): ProfileKey| {
            let controller = Arc::clone(&controller);
            async move { controller.reconcile(&namespace, &name).await }
        },
    );
}

impl ClusterProfileController {
    fn add_event_handlers(&self, queue: &Workqueue<ProfileKey>) {
        let (profiles, namespace) = (queue.clone(), Arc::clone(&self.namespace));
        self.clusters.add_event_handler(move |change| {
            let key = (Arc::clone(&namespace), change.key().into());
            profiles.add_event(key, change);
        });
        let profiles = queue.clone();
        self.profiles.add_event_handler(move |change| {
            let Some(profile) = change.new.or(change.old) else {
                return;
            };
            let key = (profile.namespace().into(), profile.name().into());
            profiles.add_event(key, change);
        });
        let (profiles, namespace) = (queue.clone(), Arc::clone(&self.namespace));
        let clusters = self.clusters.clone();
        self.cluster_info.add_event_handler(move |_| {
            for cluster in clusters.list() {
                profiles.add((Arc::clone(&namespace), cluster.name().into()));
            }
        });
    }

    async fn reconcile(&self, namespace: &str, name: &str) -> Result<ReconcileAction> {
        let existing = self.profiles.get(namespace, name);
        let cluster = match *namespace == *self.namespace {
            true => self.clusters.get("", name),
            // The profiles were in another namespace before.
            false => None,
        };
        match (cluster, existing) {
            (None, None) => Ok(ReconcileAction::Done),
            (None, Some(profile)) => self.delete_stale(&profile).await,
            // The profile goes with it.
            (Some(cluster), _) if cluster.meta().deleting => Ok(ReconcileAction::Done),
            (Some(cluster), existing) => self.sync_profile(&cluster, existing).await,
        }
    }

    /// Deletes a profile whose Cluster is gone, if it was made for one.
    async fn delete_stale(&self, profile: &Object) -> Result<ReconcileAction> {
        let mut owners = profile.owner_references().iter();
        let has_owner = owners.any(|owner| &*owner.kind == "Cluster");
        if !has_owner || profile.meta().deleting || !is_own(&profile.value()?) {
            return Ok(ReconcileAction::Done);
        }
        let at = ResourcePath::of_object(&CLUSTER_PROFILES, profile);
        let options = DeleteOptions {
            uid: Some(profile.uid().to_owned()),
            ..DeleteOptions::default()
        };
        let deleted = self.api.delete(at, &options).await;
        ReconcileAction::after_write(deleted, ReconcileAction::Done)
    }

    async fn sync_profile(
        &self,
        cluster: &Object,
        existing: Option<Object>,
    ) -> Result<ReconcileAction> {
        let desired = desired_profile(cluster.name(), cluster.uid());
        let profile = match existing {
            Some(profile) => {
                let value = profile.value()?;
                if !is_own(&value) {
                    self.report_foreign(cluster, &profile, &value);
                    return Ok(ReconcileAction::Done);
                }
                match profile_patch(&value, &desired) {
                    None => Ok(profile),
                    Some(patch) => {
                        let at = ResourcePath::of_object(&CLUSTER_PROFILES, &profile);
                        let options = WriteOptions::default();
                        self.api.patch(at, Patch::Merge(patch), &options).await
                    }
                }
            }
            None => self.create(cluster.name(), desired).await,
        };
        let profile = match profile {
            Ok(profile) => profile,
            // Its event comes.
            Err(error) if error.is_already_exists() => return Ok(ReconcileAction::Done),
            Err(error) => {
                return ReconcileAction::after_write(Err::<(), _>(error), ReconcileAction::Done);
            }
        };
        let created = cluster.value()?["metadata"]["creationTimestamp"].clone();
        let info = self.cluster_info.get(CLUSTER_INFO_NAMESPACE, CLUSTER_INFO);
        let status = desired_status(
            cluster.name(),
            created.as_str().unwrap_or_default(),
            &*cluster.decode::<Cluster>()?,
            info.and_then(|info| ControlPlaneAddress::from_config_map(&info))
                .as_ref(),
        );
        let writer = StatusWriter::new(&*self.api, "cluster_profile");
        let written = writer
            .update(&CLUSTER_PROFILES, &profile, Some(status))
            .await;
        ReconcileAction::after_write(written, ReconcileAction::Done)
    }

    /// Creates a profile, and its namespace if that does not exist.
    async fn create(&self, name: &str, mut body: Value) -> Result<Object> {
        body["apiVersion"] = API_VERSION.into();
        body["kind"] = KIND.into();
        body["metadata"]["name"] = name.into();
        body["metadata"]["namespace"] = (*self.namespace).into();
        let at = ResourcePath::collection(&CLUSTER_PROFILES, &self.namespace);
        let options = WriteOptions::default();
        match self.api.create(at, body.clone().into(), &options).await {
            Err(error) if error.is_not_found() => self.create_namespace().await?,
            created => return created,
        }
        self.api.create(at, body.into(), &options).await
    }

    /// Creates the namespace of the profiles, which is no template.
    async fn create_namespace(&self) -> Result<()> {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata":
            {"name": *self.namespace, "labels": {SKIP_AUTO_PROPAGATION: "true"}}});
        let at = ResourcePath::collection(&NAMESPACES, "");
        let options = WriteOptions::default();
        match self.api.create(at, body.into(), &options).await {
            Err(error) if !error.is_already_exists() => Err(error),
            _ => Ok(()),
        }
    }

    /// Says once that another cluster manager has the name.
    fn report_foreign(&self, cluster: &Object, profile: &Object, value: &Value) {
        let before = self
            .reported
            .lock()
            .insert(cluster.name().into(), profile.uid().into());
        if before.as_deref() == Some(profile.uid()) {
            return;
        }
        let manager = &value["spec"]["clusterManager"]["name"];
        let message = format!(
            "ClusterProfile {} belongs to the cluster manager {manager} and is left alone",
            profile.meta().key()
        );
        let about = InvolvedObject::new("cluster.karmada.io/v1alpha1", "Cluster", cluster);
        self.recorder
            .warning(&about, "ClusterProfileTaken", message);
    }
}
