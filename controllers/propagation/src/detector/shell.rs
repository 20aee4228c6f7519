//! Runs the detector: holds its state, starts its workers and reconciles templates.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use client::{Api, At, Patch, WriteOptions};
use interpreter::Interpreter;
use machinery::time::Clock;
use machinery::{Gvr, Object};
use openapi::karmada::labels::CLAIMED_BY;
use openapi::karmada::resources::{
    BINDINGS, CLUSTER_BINDINGS, CLUSTER_OVERRIDES, CLUSTER_POLICIES, OVERRIDES, POLICIES,
};
use openapi::karmada::{FeatureGates, Gate, PropagationPolicy};
use parking_lot::Mutex;
use flotilla_runtime::{Action, HostWorkloads, Informer, Name, Queue, Recorder, Select, Tasks, run_workers};
use serde_json::Value;
use tokio::time::Instant;

use super::applied_policies::AppliedPolicies;
use super::claim::Claim;
use super::matching::{Policy, best, lookup_keys};
use super::waiting::Waiting;
use crate::error::Error;
use crate::figures::FIGURES;
use crate::kinds::Served;
use crate::run::Deps;
use crate::templates::{Key, Templates};

pub(super) static PRIORITY_CLASSES: Gvr =
    Gvr::constant("scheduling.k8s.io", "v1", "priorityclasses");

pub(super) const BY_KIND: &str = "kind";
/// A worker mostly waits for its two writes, and the store commits concurrent writes together.
const TEMPLATE_WORKERS: usize = 8;

/// Why a template is reconciled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cause {
    /// The template itself has changed: its binding has to record the new version.
    pub(super) template: bool,
    /// Nothing has changed but what Karmada's controllers write.
    pub(super) ours: bool,
}

pub(crate) struct Detector {
    pub(super) api: Arc<dyn Api>,
    pub(super) recorder: Recorder,
    pub(super) clusters: scheduler::Clusters,
    pub(super) interpreter: Interpreter,
    pub(super) scheduler_name: String,
    pub(super) decisions: scheduler::Decisions,
    pub(super) templates: Arc<Templates>,
    pub(super) policies: Informer,
    pub(super) cluster_policies: Informer,
    pub(super) overrides: Informer,
    pub(super) cluster_overrides: Informer,
    pub(super) priority_classes: Informer,
    pub(super) bindings: Informer,
    pub(super) cluster_bindings: Informer,
    pub(super) queue: Queue<Key>,
    /// `namespace/name` of a policy, or the name of a cluster policy.
    pub(super) policy_queue: Queue<String>,
    pub(super) causes: Mutex<HashMap<Key, Cause>>,
    pub(super) applied: AppliedPolicies,
    /// Templates that no policy matches.
    pub(super) waiting: Mutex<Waiting>,
    /// The kind and uid of templates whose deletion was observed.
    pub(super) gone: Mutex<HashMap<Key, (String, String)>>,
    pub(super) host: HostWorkloads,
    /// Templates that a policy matches and the host runs itself.
    pub(super) refused: Mutex<HashSet<Key>>,
    pub(super) clock: Arc<dyn Clock>,
    gates: FeatureGates,
}

impl Detector {
    pub(crate) async fn start(deps: &Deps, templates: &Arc<Templates>, tasks: &Tasks) {
        Self::listening(deps, templates, tasks).await.work(tasks);
    }

    /// Returns a detector whose event handlers are registered and whose informers have synced,
    /// without workers.
    pub(super) async fn listening(
        deps: &Deps,
        templates: &Arc<Templates>,
        tasks: &Tasks,
    ) -> Arc<Self> {
        let informer = |resource: &Gvr| deps.informers.get(&deps.control, &Select::all(resource));
        let it = Arc::new(Self {
            api: Arc::clone(&deps.control),
            recorder: deps.recorder.named("resource-detector"),
            clusters: deps.clusters.clone(),
            interpreter: deps.interpreter.clone(),
            scheduler_name: deps.options.scheduler_name.clone(),
            decisions: deps.options.decisions.clone(),
            templates: Arc::clone(templates),
            policies: informer(&POLICIES),
            cluster_policies: informer(&CLUSTER_POLICIES),
            overrides: informer(&OVERRIDES),
            cluster_overrides: informer(&CLUSTER_OVERRIDES),
            priority_classes: informer(&PRIORITY_CLASSES),
            bindings: informer(&BINDINGS),
            cluster_bindings: informer(&CLUSTER_BINDINGS),
            queue: Queue::new(),
            policy_queue: Queue::new(),
            causes: Mutex::default(),
            applied: AppliedPolicies::default(),
            waiting: Mutex::default(),
            gone: Mutex::default(),
            host: deps.host.clone(),
            refused: Mutex::default(),
            clock: Arc::clone(&deps.clock),
            gates: deps.options.gates,
        });
        it.listen_to_policies();
        it.listen_to_needed();
        it.listen_to_bindings();
        it.listen_to_rules();
        it.listen_to_templates();
        for informer in [
            &it.policies,
            &it.cluster_policies,
            &it.overrides,
            &it.cluster_overrides,
            &it.bindings,
            &it.cluster_bindings,
            it.clusters.informer(),
        ] {
            informer.wait_synced().await;
        }
        it.host.wait_synced().await;
        templates.follow(tasks).await;
        it.listen_to_host();
        it
    }

    fn work(self: Arc<Self>, tasks: &Tasks) {
        let me = Arc::clone(&self);
        run_workers(
            tasks,
            Name::stage("detector", "binding"),
            &self.queue,
            TEMPLATE_WORKERS,
            move |key| {
                let me = Arc::clone(&me);
                async move { me.template(&key).await }
            },
        );
        let queue = self.policy_queue.clone();
        run_workers(tasks, "policies", &queue, 1, move |key| {
            let me = Arc::clone(&self);
            async move { me.policy(&key).await }
        });
    }

    pub(super) fn gates(&self) -> FeatureGates {
        self.gates
    }

    pub(super) fn is_on(&self, gate: Gate) -> bool {
        self.gates.is_on(gate)
    }

    pub(super) fn enqueue(&self, key: Key, cause: Cause, low: bool) {
        self.remember(&key, cause);
        self.queue.add_lane(key, low);
    }

    /// A change by anyone but Karmada's controllers overrides the changes by them.
    fn remember(&self, key: &Key, cause: Cause) {
        let mut causes = self.causes.lock();
        let known = causes.entry(key.clone()).or_insert(cause);
        known.template |= cause.template;
        known.ours &= cause.ours;
    }

    pub(super) async fn template(&self, key: &Key) -> Result<Action, Error> {
        let cause = self.causes.lock().remove(key).unwrap_or(Cause {
            template: true,
            ours: false,
        });
        let outcome = match self.reconcile(key, cause).await {
            Err(e) if e.is_namespace_terminating() => Ok(Action::Done),
            other => other,
        };
        if !matches!(outcome, Ok(Action::Done)) {
            self.remember(key, cause);
        }
        outcome
    }

    async fn reconcile(&self, key: &Key, cause: Cause) -> Result<Action, Error> {
        let deleted = self.gone.lock().remove(key);
        if let Some((kind, uid)) = deleted
            && let Err(error) = self.bury(&kind, key, &uid).await
        {
            self.gone.lock().entry(key.clone()).or_insert((kind, uid));
            return Err(error);
        }
        let Some((served, template)) = self.templates.get(key) else {
            self.forget_waiting(key);
            self.applied.invalidate(key);
            self.refused.lock().remove(key);
            return Ok(Action::Done);
        };
        let head = template.head();
        if head.deleting || head.label(CLAIMED_BY).is_some_and(|v| !v.is_empty()) {
            self.forget_waiting(key);
            return Ok(Action::Done);
        }
        if self.host.refuses(&served.gvk) {
            return self.refuse(key, &served, &template).await;
        }
        self.refused.lock().remove(key);
        if let Some(claim) = Claim::on(&template) {
            return self.claimed(key, &served, template, &claim, cause).await;
        }
        // Waiting first: a policy that is created in the meantime finds the template there.
        self.remember_waiting(key);
        let began = Instant::now();
        let best = self.best(&served, &template);
        FIGURES.matched.observe(began.elapsed().as_secs_f64());
        let Some(policy) = best else {
            return Ok(Action::Done);
        };
        self.overrides_exist(&policy)?;
        self.forget_waiting(key);
        self.apply(key, &served, template, &policy, cause).await
    }

    async fn claimed(
        &self,
        key: &Key,
        served: &Served,
        template: Object,
        claim: &Claim,
        cause: Cause,
    ) -> Result<Action, Error> {
        self.forget_waiting(key);
        let Some(policy) = self.policy_of(&template) else {
            self.release(served, &template, claim).await?;
            return Ok(Action::Done);
        };
        if policy.object.head().deleting {
            // The deletion of the policy, now or at its end, removes the claim.
            return Ok(Action::Done);
        }
        if !policy.matches(served, template.head()) {
            return Ok(Action::Done);
        }
        self.overrides_exist(&policy)?;
        self.apply(key, served, template, &policy, cause).await
    }

    /// The policy that has claimed a template, if it still exists.
    pub(super) fn policy_of(&self, template: &Object) -> Option<Policy> {
        let claim = Claim::on(template)?;
        let informer = if claim.is_of_cluster() {
            &self.cluster_policies
        } else {
            &self.policies
        };
        Policy::new(informer.get(&claim.namespace, &claim.name)?)
    }

    pub(super) fn best(&self, served: &Served, template: &Object) -> Option<Policy> {
        let find = |informer: &Informer, namespace: &str| {
            let keys = lookup_keys(namespace, served, template.head()).into_iter();
            let found = keys.flat_map(|key| informer.by_index(BY_KIND, &key));
            best(found, served, template.head())
        };
        let namespace = template.namespace();
        let local = (!namespace.is_empty())
            .then(|| find(&self.policies, namespace))
            .flatten();
        local.or_else(|| find(&self.cluster_policies, ""))
    }

    pub(super) fn overrides_exist(&self, policy: &Policy) -> Result<(), Error> {
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

    pub(super) fn remember_waiting(&self, key: &Key) {
        self.waiting.lock().insert(key);
    }

    pub(super) fn forget_waiting(&self, key: &Key) {
        self.waiting.lock().remove(key);
    }

    pub(super) async fn patch(&self, at: At<'_>, patch: Value) -> Result<Object, Error> {
        let options = WriteOptions::default();
        Ok(self.api.patch(at, Patch::Merge(patch), &options).await?)
    }
}

pub(super) fn name_of(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::Options;
    use crate::flow_tests::{DEPLOYMENTS, Plane, deployment, policy, until};
    use crate::kinds::{Kinds, Scope, Skips};
    use serde_json::json;

    /// A detector without workers; the test takes the keys from the queue.
    pub(crate) async fn without_workers(plane: &mut Plane) -> Arc<Detector> {
        let deps = plane.deps(Options::default(), None);
        let kinds = Arc::new(Kinds::new(Skips::new(&[]).unwrap()));
        let (api, informers) = (Arc::clone(&deps.control), deps.informers.clone());
        let templates = Templates::new(api, informers, kinds, Scope::new(&[]).unwrap());
        Detector::listening(&deps, &templates, &plane.tasks).await
    }

    impl Detector {
        /// Reconciles the templates that are in the queue now.
        pub(crate) async fn work_off(&self) {
            while !self.queue.is_empty() {
                let key = self.queue.get().await.unwrap();
                self.template(&key).await.unwrap();
                self.queue.done(&key);
            }
        }
    }

    // proves: DET-policy-lane
    #[tokio::test]
    async fn policy_changes_are_queued_behind_user_changes() {
        let mut plane = Plane::new();
        for name in ["first", "second"] {
            plane.control.seed(&DEPLOYMENTS, deployment(name));
        }
        let it = without_workers(&mut plane).await;
        it.work_off().await;
        plane.control.seed(&POLICIES, policy(json!({})));
        until("policy in cache", || it.policies.get_key("n/p").is_some()).await;
        it.policy("n/p").await.unwrap();
        assert!(!it.queue.is_empty(), "the policy takes what has waited");
        plane.control.seed(&DEPLOYMENTS, deployment("third"));
        let key = Key {
            gvr: DEPLOYMENTS.clone(),
            name: "n/third".into(),
        };
        until("cause recorded", || it.causes.lock().contains_key(&key)).await;
        assert_eq!(it.queue.get().await.unwrap(), key);
        plane.tasks.stop().await;
    }
}
