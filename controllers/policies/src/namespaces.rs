//! Propagates namespaces to every cluster, because namespaced objects need them there.
//!
//! Creates a Work per namespace and cluster, owned by the namespace, with the cluster override
//! policies applied. Source: Karmada's `pkg/controllers/namespace`.

use std::sync::Arc;

use client::{Informer, InvolvedObject};
use controller_context::{
    DesiredWork, Error, NamespaceFilter, PropagationContext, TypeConfigs, WorkClient,
    is_equal_except_status,
};
use flotilla_runtime::{
    ClusterLister, EventRecorder, ListedCluster, ReconcileAction, Workqueue, run_workers,
};
use karmada_api::names;
use karmada_api::well_known_keys::{
    APPLIED_CLUSTER_OVERRIDES, SKIP_AUTO_PROPAGATION, STATUS_COLLECTION,
    STATUS_COLLECTION_DISABLED, is_orphaned_on_deletion,
};
use machinery::{Gvk, Gvr, Object};
use overrides::{
    AppliedOverrides, CandidateOverridePolicies, OverrideFailure, OverrideManager, selects,
};
use serde_json::{Map, Value, json};

use crate::options::PolicyControllersOptions;

static NAMESPACES: Gvr = Gvr::from_static("", "v1", "namespaces");
static NAMESPACE: Gvk = Gvk::from_static("", "v1", "Namespace");
const NAMESPACE_WORKERS: usize = 2;

pub(crate) struct NamespaceSyncController {
    recorder: EventRecorder,
    clusters: ClusterLister,
    overrides: OverrideManager,
    works: WorkClient,
    namespace_filter: NamespaceFilter,
    type_configs: TypeConfigs,
    namespaces: Informer,
    queue: Workqueue<String>,
}

impl NamespaceSyncController {
    pub(crate) async fn start(context: &PropagationContext, options: &PolicyControllersOptions) {
        let controller = Arc::new(Self {
            recorder: context
                .controller
                .recorder
                .with_component("override-manager"),
            clusters: context.clusters.clone(),
            overrides: options.overrides.clone(),
            works: options.works.clone(),
            namespace_filter: options.namespace_filter.clone(),
            type_configs: options.type_configs.clone(),
            namespaces: context.controller.informer(&NAMESPACES),
            queue: Workqueue::new(),
        });
        controller.namespaces.wait_for_cache_sync().await;
        controller.add_event_handlers();
        let queue = controller.queue.clone();
        run_workers(
            &context.controller.tasks,
            "namespaces",
            &queue,
            NAMESPACE_WORKERS,
            move |name| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&name).await }
            },
        );
    }

    fn add_event_handlers(self: &Arc<Self>) {
        let queue = self.queue.clone();
        self.namespaces.add_event_handler(move |change| {
            let same = |old: &Object, new: &Object| is_equal_except_status(old, new);
            if let Some(new) = change.new
                && !change.old.is_some_and(|old| same(old, new))
            {
                queue.add_event(new.name().to_owned(), change);
            }
        });
        let controller = Arc::downgrade(self);
        self.clusters.informer().add_event_handler(move |change| {
            if let Some(controller) = controller.upgrade()
                && change.old.is_none()
                && !change.in_initial_list
            {
                controller.enqueue_matching(|_| true);
            }
        });
        let controller = Arc::downgrade(self);
        self.type_configs.on_change(move |targets| {
            if let Some(controller) = controller.upgrade()
                && targets.iter().any(|target| target.is(&NAMESPACE))
            {
                controller.enqueue_matching(|_| true);
            }
        });
        let controller = Arc::downgrade(self);
        self.overrides
            .add_cluster_policy_event_handler(move |change| {
                let Some(controller) = controller.upgrade() else { return };
                let generation = |o: &Object| o.meta().generation;
                let same =
                    matches!((change.old, change.new), (Some(a), Some(b)) if generation(a) == generation(b));
                if !change.in_initial_list && !same {
                    let versions = [change.old, change.new];
                    controller.enqueue_matching(|namespace| {
                        let mut all = versions.iter().flatten();
                        all.any(|p| selects(p, &NAMESPACE, namespace.meta()))
                    });
                }
            });
        // Recreates the Work of a namespace if somebody deletes it.
        let controller = Arc::downgrade(self);
        self.works.informer.add_event_handler(move |change| {
            if let (Some(controller), Some(old), None) =
                (controller.upgrade(), change.old, change.new)
                && let Some(owner) = old.meta().controller().filter(|o| &*o.kind == "Namespace")
            {
                controller.queue.add_low(owner.name.to_string());
            }
        });
    }

    fn enqueue_matching(&self, which: impl Fn(&Object) -> bool) {
        for namespace in self.namespaces.list_where(|n| which(n)) {
            self.queue.add_low(namespace.name().to_owned());
        }
    }

    async fn reconcile(&self, name: &str) -> Result<ReconcileAction, Error> {
        let disabled = self.type_configs.is_disabled(&NAMESPACE);
        if disabled || name == "default" || !self.namespace_filter.allows(name) {
            return Ok(ReconcileAction::Done);
        }
        let Some(namespace) = self.namespaces.get("", name) else {
            return Ok(ReconcileAction::Done);
        };
        let skip = namespace.meta().label(SKIP_AUTO_PROPAGATION);
        if namespace.meta().deleting || skip.is_some_and(|v| v.eq_ignore_ascii_case("true")) {
            return Ok(ReconcileAction::Done);
        }
        let mut tree = namespace.value()?;
        tree["apiVersion"] = "v1".into();
        tree["kind"] = "Namespace".into();
        let overrides = self.overrides.candidates(&NAMESPACE, namespace.meta());
        let about = InvolvedObject::new("v1", "Namespace", &namespace);
        let mut failed = Vec::new();
        let clusters = self.clusters.list();
        // The cluster in which the control plane runs has the namespace itself.
        let own_id = self.namespaces.get("", "kube-system");
        let own_id = own_id.as_ref().map_or("", |namespace| namespace.uid());
        let is_host = |c: &ListedCluster| !own_id.is_empty() && c.cluster.spec.id == *own_id;
        let targets = clusters
            .iter()
            .filter(|c| !c.is_terminating() && !is_host(c));
        for listed in targets {
            let cluster = listed.name();
            let outcome = match self.build_work(&namespace, tree.clone(), listed, &overrides) {
                Ok((record, draft)) => {
                    let put = self.works.create_or_update(draft, namespace.uid()).await;
                    put.map(|written| {
                        if written {
                            record.record_events(&self.recorder, &about, cluster);
                        }
                    })
                }
                Err(error) => {
                    error.record_event(&self.recorder, &about);
                    Err(Error::blocked(error))
                }
            };
            // A policy that selects the Namespace decides where it goes.
            if let Err(e) = outcome
                && !matches!(e, Error::ForeignWork(_))
            {
                failed.push(Error::Blocked(format!(
                    "sync namespace({name}) to cluster({cluster}) failed due to: {e}"
                )));
            }
        }
        Error::aggregate(failed).map(|()| ReconcileAction::Done)
    }

    fn build_work(
        &self,
        namespace: &Object,
        mut copy: Value,
        cluster: &ListedCluster,
        overrides: &CandidateOverridePolicies,
    ) -> Result<(AppliedOverrides, DesiredWork), OverrideFailure> {
        let record = overrides.apply(&mut copy, &NAMESPACE, &cluster.attributes())?;
        let mut annotations = Map::new();
        if !self.type_configs.collects_status(&NAMESPACE) {
            annotations.insert(STATUS_COLLECTION.into(), STATUS_COLLECTION_DISABLED.into());
        }
        if let Some(text) = record.cluster_policies_annotation() {
            annotations.insert(APPLIED_CLUSTER_OVERRIDES.into(), text.into());
        }
        let owner = json!({"apiVersion": "v1", "kind": "Namespace", "name": namespace.name(),
            "uid": namespace.uid(), "controller": true, "blockOwnerDeletion": true});
        let draft = DesiredWork {
            namespace: names::execution_space_name(cluster.name()),
            name: names::work_name("Namespace", namespace.name(), ""),
            labels: Map::new(),
            annotations,
            owner_references: vec![owner],
            manifest: copy,
            suspend_dispatching: None,
            preserve_resources_on_deletion: is_orphaned_on_deletion(&namespace.annotations())
                .then_some(true),
        };
        Ok((record, draft))
    }
}
