//! Runs the detector: holds its state, starts its workers and reconciles templates.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use client::{Api, Informer, Patch, ResourcePath, TaskGroup, WriteOptions};
use controller_context::{
    Error, NamespaceGates, PropagationContext, TemplateInformers, TemplateKey,
};
use flotilla_runtime::{
    ControllerName, EventRecorder, Expectations, HostWorkloadFilter, LastAppliedVersionByKey,
    PriorityQueueLane, ReconcileAction, RestMapping, Workqueue, run_workers,
};
use interpreter::ResourceInterpreter;
use karmada_api::resources::{
    BINDINGS, CLUSTER_BINDINGS, CLUSTER_OVERRIDES, CLUSTER_POLICIES, OVERRIDES, POLICIES,
    REPLICA_PREFERENCES, WORKS,
};
use karmada_api::well_known_keys::CLAIMED_BY;
use karmada_api::{FeatureGates, KarmadaFeature, PropagationPolicy};
use machinery::time::Clock;
use machinery::{Gvr, Object};
use parking_lot::Mutex;
use scheduler::{DecisionExplanationCache, SchedulerClusterCache};
use serde_json::Value;
use tokio::time::Instant;

use crate::applied_policy::AppliedVersions;
use crate::deleted_template::DeletedTemplate;
use crate::metrics::DETECTOR_METRICS;
use crate::options::DetectorOptions;
use crate::policy_claim::PolicyClaim;
use crate::policy_matching::{ParsedPolicy, highest_ranked, lookup_keys};
use crate::recent_matches::{LatePolicyKeys, RecentMatches};
use crate::type_config_status::TypeConfigStatusController;
use crate::waiting_objects::WaitingObjects;

pub(crate) static PRIORITY_CLASSES: Gvr =
    Gvr::from_static("scheduling.k8s.io", "v1", "priorityclasses");
pub(crate) const BY_KIND: &str = "kind";
/// A worker mostly waits for its two writes, and the store commits concurrent writes together.
const TEMPLATE_WORKERS: usize = 8;

/// Why a template is reconciled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TemplateReconcileTrigger {
    /// The template itself has changed: its binding has to record the new version.
    pub(crate) template_changed: bool,
    /// Nothing has changed but what Karmada's controllers write.
    pub(crate) by_karmada: bool,
}

/// Creates and updates the bindings of templates that a policy matches.
pub struct ResourceDetector {
    pub(crate) api: Arc<dyn Api>,
    pub(crate) recorder: EventRecorder,
    pub(crate) clusters: SchedulerClusterCache,
    pub(crate) interpreter: ResourceInterpreter,
    pub(crate) scheduler_name: String,
    pub(crate) decisions: DecisionExplanationCache,
    pub(crate) templates: Arc<TemplateInformers>,
    pub(crate) policies: Informer,
    pub(crate) cluster_policies: Informer,
    pub(crate) overrides: Informer,
    pub(crate) cluster_overrides: Informer,
    pub(crate) priority_classes: Informer,
    pub(crate) replica_preferences: Informer,
    pub(crate) bindings: Informer,
    pub(crate) cluster_bindings: Informer,
    /// The updates of bindings that the informers do not show yet.
    pub(crate) binding_writes: Expectations<String>,
    pub(crate) namespace_gates: NamespaceGates,
    pub(crate) works: Informer,
    pub(crate) queue: Workqueue<TemplateKey>,
    /// `namespace/name` of a policy, or the name of a cluster policy.
    pub(crate) policy_queue: Workqueue<String>,
    /// Names of namespaces whose contents may go elsewhere.
    pub(crate) gated_namespaces: Workqueue<String>,
    pub(crate) triggers: Mutex<HashMap<TemplateKey, TemplateReconcileTrigger>>,
    pub(crate) applied_policies: LastAppliedVersionByKey<TemplateKey, AppliedVersions>,
    /// Templates that no policy matches.
    pub(crate) waiting_objects: Mutex<WaitingObjects>,
    pub(crate) recent_matches: Mutex<RecentMatches>,
    pub(crate) deleted_templates: Mutex<HashMap<TemplateKey, DeletedTemplate>>,
    pub(crate) host_workloads: HostWorkloadFilter,
    /// Templates that a policy matches and the host runs itself.
    pub(crate) excluded_templates: Mutex<HashSet<TemplateKey>>,
    pub(crate) clock: Arc<dyn Clock>,
    feature_gates: FeatureGates,
}

impl ResourceDetector {
    pub async fn start(context: &PropagationContext, options: DetectorOptions) {
        let templates = Arc::clone(&options.templates);
        let detector = Self::with_event_handlers(context, options).await;
        // The kinds are discovered by now.
        TypeConfigStatusController::start(&detector.api, &templates, &context.controller.tasks);
        detector.start_workers(&context.controller.tasks);
    }

    /// Returns a detector whose event handlers are registered and whose informers have synced,
    /// without workers.
    pub(crate) async fn with_event_handlers(
        context: &PropagationContext,
        options: DetectorOptions,
    ) -> Arc<Self> {
        let detector = Arc::new(Self {
            api: Arc::clone(&context.controller.control_plane),
            recorder: context
                .controller
                .recorder
                .with_component("resource-detector"),
            clusters: options.scheduling.clusters,
            interpreter: context.interpreter.clone(),
            scheduler_name: options.scheduling.scheduler_name,
            decisions: options.scheduling.decisions,
            templates: options.templates,
            policies: context.controller.informer(&POLICIES),
            cluster_policies: context.controller.informer(&CLUSTER_POLICIES),
            overrides: context.controller.informer(&OVERRIDES),
            cluster_overrides: context.controller.informer(&CLUSTER_OVERRIDES),
            priority_classes: context.controller.informer(&PRIORITY_CLASSES),
            replica_preferences: context.controller.informer(&REPLICA_PREFERENCES),
            bindings: context.controller.informer(&BINDINGS),
            cluster_bindings: context.controller.informer(&CLUSTER_BINDINGS),
            binding_writes: Expectations::default(),
            namespace_gates: NamespaceGates::new(context),
            works: context.controller.informer(&WORKS),
            queue: Workqueue::new(),
            policy_queue: Workqueue::new(),
            gated_namespaces: Workqueue::new(),
            triggers: Mutex::default(),
            applied_policies: LastAppliedVersionByKey::default(),
            waiting_objects: Mutex::default(),
            recent_matches: Mutex::default(),
            deleted_templates: Mutex::default(),
            host_workloads: context.host.clone(),
            excluded_templates: Mutex::default(),
            clock: Arc::clone(&context.controller.clock),
            feature_gates: context.feature_gates,
        });
        detector.add_policy_event_handlers();
        detector.add_dependency_event_handlers();
        detector.add_binding_event_handlers();
        detector.add_namespace_event_handlers();
        detector.add_replica_preference_event_handler();
        detector.add_work_event_handler();
        detector.add_interpreter_event_handler();
        detector.add_template_event_handler();
        for informer in [
            &detector.policies,
            &detector.cluster_policies,
            &detector.overrides,
            &detector.cluster_overrides,
            &detector.replica_preferences,
            &detector.bindings,
            &detector.cluster_bindings,
            detector.clusters.informer(),
        ] {
            informer.wait_for_cache_sync().await;
        }
        detector.namespace_gates.wait_synced().await;
        detector.host_workloads.wait_for_cache_sync().await;
        detector.templates.run(&context.controller.tasks).await;
        detector.add_host_event_handler();
        detector
    }

    fn start_workers(self: Arc<Self>, tasks: &TaskGroup) {
        let me = Arc::clone(&self);
        run_workers(
            tasks,
            ControllerName::with_stage("detector", "binding"),
            &self.queue,
            TEMPLATE_WORKERS,
            move |key| {
                let me = Arc::clone(&me);
                async move { me.process_template(&key).await }
            },
        );
        self.start_namespace_worker(tasks);
        let queue = self.policy_queue.clone();
        run_workers(tasks, "policies", &queue, 1, move |key| {
            let me = Arc::clone(&self);
            async move { me.reconcile_policy(&key).await }
        });
    }

    pub(crate) fn feature_gates(&self) -> FeatureGates {
        self.feature_gates
    }

    pub(crate) fn is_enabled(&self, gate: KarmadaFeature) -> bool {
        self.feature_gates.enabled(gate)
    }

    pub(crate) fn enqueue(
        &self,
        key: TemplateKey,
        cause: TemplateReconcileTrigger,
        lane: PriorityQueueLane,
    ) {
        self.merge_trigger(&key, cause);
        self.queue.add_to_lane(key, lane);
    }

    /// A change by anyone but Karmada's controllers overrides the changes by them.
    fn merge_trigger(&self, key: &TemplateKey, cause: TemplateReconcileTrigger) {
        let mut causes = self.triggers.lock();
        let trigger = causes.entry(key.clone()).or_insert(cause);
        trigger.template_changed |= cause.template_changed;
        trigger.by_karmada &= cause.by_karmada;
    }

    pub(crate) async fn process_template(
        &self,
        key: &TemplateKey,
    ) -> Result<ReconcileAction, Error> {
        let cause = self
            .triggers
            .lock()
            .remove(key)
            .unwrap_or(TemplateReconcileTrigger {
                template_changed: true,
                by_karmada: false,
            });
        let late = self.recent_matches.lock().take_late_policies(key);
        let outcome = match self.reconcile_template(key, cause, &late).await {
            Err(e) if e.is_namespace_terminating() => Ok(ReconcileAction::Done),
            other => other,
        };
        if !matches!(outcome, Ok(ReconcileAction::Done)) {
            self.merge_trigger(key, cause);
            self.recent_matches.lock().add_late_policies(key, late);
        }
        outcome
    }

    async fn reconcile_template(
        &self,
        key: &TemplateKey,
        cause: TemplateReconcileTrigger,
        late: &LatePolicyKeys,
    ) -> Result<ReconcileAction, Error> {
        let deleted = self.deleted_templates.lock().remove(key);
        if let Some(deleted) = deleted
            && let Err(error) = self.delete_binding_of_deleted_template(&deleted, key).await
        {
            self.deleted_templates
                .lock()
                .entry(key.clone())
                .or_insert(deleted);
            return Err(error);
        }
        let Some((served, template)) = self.templates.get(key) else {
            self.remove_waiting(key);
            self.applied_policies.invalidate(key);
            self.excluded_templates.lock().remove(key);
            return Ok(ReconcileAction::Done);
        };
        let head = template.meta();
        if head.deleting {
            self.remove_waiting(key);
            return self.finalize_template(key, &served, &template).await;
        }
        if head.label(CLAIMED_BY).is_some_and(|v| !v.is_empty()) {
            self.remove_waiting(key);
            return Ok(ReconcileAction::Done);
        }
        if self.host_workloads.is_excluded(&served.gvk) {
            return self.exclude_template(key, &served, &template).await;
        }
        self.excluded_templates.lock().remove(key);
        if let Some(claim) = PolicyClaim::on_object(&template) {
            return self
                .reconcile_claimed_template(key, &served, template, &claim, cause, late)
                .await;
        }
        // Waiting first: a policy that is created in the meantime finds the template there.
        self.add_waiting(key);
        self.record_match(key, &template);
        let began = Instant::now();
        let best = self.best_matching_policy(&served, &template);
        DETECTOR_METRICS
            .match_policy_duration
            .observe(began.elapsed().as_secs_f64());
        let Some(policy) = best else {
            self.release_template(&served, &template).await?;
            return Ok(ReconcileAction::Done);
        };
        self.check_dependent_overrides(&policy)?;
        self.remove_waiting(key);
        self.apply_policy(key, &served, template, &policy, cause)
            .await
    }

    async fn reconcile_claimed_template(
        &self,
        key: &TemplateKey,
        served: &RestMapping,
        template: Object,
        claim: &PolicyClaim,
        cause: TemplateReconcileTrigger,
        late: &LatePolicyKeys,
    ) -> Result<ReconcileAction, Error> {
        self.remove_waiting(key);
        let Some(mut policy) = self.claiming_policy(&template) else {
            self.release_claim(served, &template, claim).await?;
            return Ok(ReconcileAction::Done);
        };
        if policy.object.meta().deleting {
            // The deletion of the policy, now or at its end, removes the claim.
            return Ok(ReconcileAction::Done);
        }
        if !policy.matches(served, template.meta()) {
            return Ok(ReconcileAction::Done);
        }
        if let Some(better) = self.better_late_policy(late, served, &template, &policy) {
            policy = better;
        } else if self
            .preempt_claimed_template(served, &template, claim)
            .await?
        {
            // The change of the claim is reconciled next.
            return Ok(ReconcileAction::Done);
        }
        self.check_dependent_overrides(&policy)?;
        self.apply_policy(key, served, template, &policy, cause)
            .await
    }

    /// The policy that has claimed a template, if it still exists.
    pub(crate) fn claiming_policy(&self, template: &Object) -> Option<ParsedPolicy> {
        let claim = PolicyClaim::on_object(template)?;
        let informer = if claim.is_cluster_scoped() {
            &self.cluster_policies
        } else {
            &self.policies
        };
        ParsedPolicy::new(informer.get(&claim.namespace, &claim.name)?)
    }

    pub(crate) fn best_matching_policy(
        &self,
        served: &RestMapping,
        template: &Object,
    ) -> Option<ParsedPolicy> {
        let find = |informer: &Informer, namespace: &str| {
            let keys = lookup_keys(namespace, served, template.meta()).into_iter();
            let policies = keys.flat_map(|key| informer.by_index(BY_KIND, &key));
            highest_ranked(policies, served, template.meta())
        };
        let namespace = template.namespace();
        let local = (!namespace.is_empty())
            .then(|| find(&self.policies, namespace))
            .flatten();
        local.or_else(|| find(&self.cluster_policies, ""))
    }

    pub(crate) fn check_dependent_overrides(&self, policy: &ParsedPolicy) -> Result<(), Error> {
        let namespace = policy.object.namespace();
        let informer = if namespace.is_empty() {
            &self.cluster_overrides
        } else {
            &self.overrides
        };
        let needed: &PropagationPolicy = &policy.view;
        let there = |name: &String| informer.get(namespace, name).is_some();
        if needed.spec.dependent_overrides.iter().all(there) {
            Ok(())
        } else {
            Err(Error::blocked("waiting for dependent overrides"))
        }
    }

    pub(crate) fn add_waiting(&self, key: &TemplateKey) {
        self.waiting_objects.lock().insert(key);
    }

    pub(crate) fn remove_waiting(&self, key: &TemplateKey) {
        self.waiting_objects.lock().remove(key);
    }

    pub(crate) async fn patch(&self, at: ResourcePath<'_>, patch: Value) -> Result<Object, Error> {
        let options = WriteOptions::default();
        Ok(self.api.patch(at, Patch::Merge(patch), &options).await?)
    }
}

pub(crate) fn namespaced_name(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::options::InlineSchedulingOptions;
    use controller_context::{NamespaceFilter, SkippedResourceConfig, TypeConfigs};
    use controller_testing::{DEPLOYMENTS, FederationFixture, deployment, policy, wait_until};
    use flotilla_runtime::RestMapper;
    use karmada_api::resources::FEDERATED_TYPE_CONFIGS;
    use serde_json::json;

    /// A detector without workers; the test takes the keys from the queue.
    pub(crate) async fn detector_without_workers(
        plane: &mut FederationFixture,
    ) -> Arc<ResourceDetector> {
        detector_with_gates(plane, FeatureGates::default()).await
    }

    pub(crate) async fn detector_with_gates(
        plane: &mut FederationFixture,
        gates: FeatureGates,
    ) -> Arc<ResourceDetector> {
        let context = plane.context(gates, None);
        let (api, informers) = (
            Arc::clone(&context.controller.control_plane),
            context.controller.informers.clone(),
        );
        let type_configs = TypeConfigs::new(
            context.controller.informer(&FEDERATED_TYPE_CONFIGS),
            SkippedResourceConfig::default(),
        );
        let templates = TemplateInformers::new(
            Arc::clone(&api),
            informers,
            Arc::new(RestMapper::new(api)),
            type_configs,
            NamespaceFilter::new(&[]).unwrap(),
        );
        let clusters = SchedulerClusterCache::new(context.clusters.informer().clone());
        let scheduling = InlineSchedulingOptions::new(clusters);
        let options = DetectorOptions {
            templates,
            scheduling,
        };
        ResourceDetector::with_event_handlers(&context, options).await
    }

    impl ResourceDetector {
        /// Reconciles the templates that are in the queue now.
        pub(crate) async fn reconcile_queued(&self) {
            while !self.queue.is_empty() {
                let key = self.queue.get().await.unwrap();
                self.process_template(&key).await.unwrap();
                self.queue.done(&key);
            }
        }
    }

    // proves: DET-policy-lane
    #[tokio::test]
    async fn policy_changes_are_queued_behind_user_changes() {
        let mut plane = FederationFixture::new();
        for name in ["first", "second"] {
            plane.control_plane.seed(&DEPLOYMENTS, deployment(name));
        }
        let detector = detector_without_workers(&mut plane).await;
        detector.reconcile_queued().await;
        plane.control_plane.seed(&POLICIES, policy(json!({})));
        wait_until("policy in cache", || {
            detector.policies.get_by_key("n/p").is_some()
        })
        .await;
        detector.reconcile_policy("n/p").await.unwrap();
        assert!(
            !detector.queue.is_empty(),
            "the policy takes what has waited"
        );
        plane.control_plane.seed(&DEPLOYMENTS, deployment("third"));
        let key = TemplateKey {
            gvr: DEPLOYMENTS.clone(),
            name: "n/third".into(),
        };
        wait_until("cause recorded", || {
            detector.triggers.lock().contains_key(&key)
        })
        .await;
        assert_eq!(detector.queue.get().await.unwrap(), key);
        plane.tasks.stop().await;
    }
}
