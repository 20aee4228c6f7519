//! Runs FederatedHPAs: each object is calculated anew in every sync period, and when it changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::{Informer, InvolvedObject, Patch, ResourcePath, Result, WriteOptions};
use flotilla_runtime::{
    ControllerContext, EventRecorder, ReconcileAction, StatusWriter, Workqueue, run_workers,
};
use jiff::Timestamp;
use karmada_api::resources::{BINDINGS, CLUSTERS, FEDERATED_HPAS};
use machinery::time::{Clock, rfc3339_seconds};
use machinery::{LabelSelector, Object};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::decision::{
    BoundsDecision, HpaConditions, bounds_of, decide_by_bounds, normalize, record_change,
};
use super::desired_replicas::MetricsReader;
use super::scaling_history::ScalingHistory;
use super::settings::FederatedHpaSettings;
use super::spec::{FederatedHpa, FederatedHpaStatus};
use super::target_state::{TargetReader, TargetState};
use crate::AutoscalerOptions;
use crate::metrics::{FEDERATED_HPA_METRICS, ScaleAction, ScaleError};

/// Most of a calculation is waiting for members, some of which may not answer.
const WORKERS: usize = 16;
/// Component of the events, as in Karmada.
const COMPONENT: &str = "federatedHPA-controller";

pub(crate) struct FederatedHpaController {
    reader: TargetReader,
    clock: Arc<dyn Clock>,
    recorder: EventRecorder,
    settings: FederatedHpaSettings,
    objects: Informer,
    /// By key, so that those of a namespace are neighbours.
    states: Mutex<BTreeMap<String, AutoscalerState>>,
}

/// The state of an object between calculations.
#[derive(Default)]
struct AutoscalerState {
    uid: String,
    history: ScalingHistory,
    /// The pods that the object scales; none before the first calculation.
    selector: Option<LabelSelector>,
}

/// One calculation.
struct Calculation<'a> {
    key: &'a str,
    object: &'a Object,
    hpa: &'a FederatedHpa,
    about: InvolvedObject,
    status: FederatedHpaStatus,
    now: Timestamp,
    /// The state of it according to its metrics.
    action: ScaleAction,
    error: ScaleError,
}

impl Calculation<'_> {
    fn conditions(&mut self) -> HpaConditions<'_> {
        HpaConditions {
            conditions: &mut self.status.conditions,
            now: self.now,
        }
    }

    fn keep_current(&mut self, replicas: i32) {
        self.status.current_replicas = replicas;
    }
}

impl FederatedHpaController {
    pub(crate) async fn start(context: &ControllerContext, options: &AutoscalerOptions) {
        let controller = Arc::new(Self {
            reader: TargetReader {
                api: Arc::clone(&context.control_plane),
                members: Arc::clone(&options.members),
                bindings: context.informer(&BINDINGS),
                clusters: context.informer(&CLUSTERS),
            },
            clock: Arc::clone(&context.clock),
            recorder: context.recorder.with_component(COMPONENT),
            settings: options.federated_hpa,
            objects: context.informer(&FEDERATED_HPAS),
            states: Mutex::default(),
        });
        controller.objects.wait_for_cache_sync().await;
        controller.reader.bindings.wait_for_cache_sync().await;
        controller.reader.clusters.wait_for_cache_sync().await;
        let queue: Workqueue<String> = Workqueue::new();
        let changed = queue.clone();
        controller.objects.add_event_handler(move |change| {
            let generation = |object: Option<&Object>| object.map(|o| o.meta().generation);
            if change.old.is_none() || generation(change.old) != generation(change.new) {
                changed.add_event(change.key(), change);
            }
        });
        run_workers(
            &context.tasks,
            "federated-hpa",
            &queue,
            WORKERS,
            move |key: String| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&key).await }
            },
        );
    }

    async fn reconcile(&self, key: &str) -> Result<ReconcileAction> {
        let Some(object) = self.objects.get_by_key(key) else {
            self.states.lock().remove(key);
            return Ok(ReconcileAction::Done);
        };
        {
            let mut states = self.states.lock();
            let state = states.entry(key.to_owned()).or_default();
            if *state.uid != *object.meta().uid {
                *state = AutoscalerState {
                    uid: object.meta().uid.to_string(),
                    ..AutoscalerState::default()
                };
            }
        }
        let hpa = object.decode::<FederatedHpa>()?;
        let mut calculation = Calculation {
            key,
            object: &object,
            hpa: &hpa,
            about: InvolvedObject::from_object(&object),
            status: hpa.status.clone(),
            now: self.clock.now(),
            action: ScaleAction::default(),
            error: ScaleError::default(),
        };
        let began = Instant::now();
        self.calculate(&mut calculation).await;
        let (action, error) = (calculation.action, calculation.error);
        FEDERATED_HPA_METRICS.record_reconciliation(action, error, began.elapsed());
        let written = self.write_status(&calculation).await;
        // An object that cannot be calculated is tried again in the next period, too.
        let next = ReconcileAction::RequeueAfter(self.settings.sync_period);
        ReconcileAction::after_write(written, next)
    }

    /// Scales the target if that is needed, and brings the status up to date.
    async fn calculate(&self, calculation: &mut Calculation<'_>) {
        let target = &calculation.hpa.spec.scale_target_ref;
        let namespace = calculation.object.namespace();
        let state = match self.reader.read(namespace, target).await {
            Ok(state) => state,
            Err(e) => {
                self.recorder
                    .warning(&calculation.about, e.event_reason, &*e.error);
                calculation.error = ScaleError::Internal;
                let (able, error) = (e.unable_to, e.error);
                let message = format!("the HPA controller was unable to {able}: {error}");
                let mut conditions = calculation.conditions();
                return conditions.set("AbleToScale", false, e.condition_reason, &message);
            }
        };
        let message = "the HPA controller was able to get the target's current scale";
        let mut conditions = calculation.conditions();
        conditions.set("AbleToScale", true, "SucceededGetScale", message);
        for (reason, message) in &state.selector_errors {
            self.recorder
                .warning(&calculation.about, reason, message.clone());
            let message = match *reason {
                "SelectorRequired" => "the HPA target's scale is missing a selector",
                _ => message,
            };
            let mut conditions = calculation.conditions();
            conditions.set("ScalingActive", false, "InvalidSelector", message);
        }
        let current = state.template_replicas;
        let now = calculation.now;
        self.with_state(calculation.key, |own| {
            own.history.record_initial(current, now)
        });
        let bounds = bounds_of(&calculation.hpa.spec);
        match decide_by_bounds(bounds, state.scale.spec_replicas, current) {
            BoundsDecision::Disabled => {
                let message = "scaling is disabled since the replica count of the target is zero";
                let mut conditions = calculation.conditions();
                conditions.set("ScalingActive", false, "ScalingDisabled", message);
                calculation.keep_current(current);
                calculation.status.desired_replicas = current;
                calculation.status.current_metrics = Value::Null;
            }
            BoundsDecision::Rescale(desired, reason) => {
                calculation.status.current_metrics = Value::Null;
                self.rescale(calculation, &state, desired, reason).await;
            }
            BoundsDecision::ByMetrics => self.scale_by_metrics(calculation, &state).await,
        }
    }

    /// Whether the pods are known, and no other object scales them; if not, event and condition say why.
    fn has_own_pods(&self, calculation: &mut Calculation<'_>, state: &TargetState) -> bool {
        const FAILED: &str = "FailedComputeMetricsReplicas";
        if state.members.is_empty()
            && let Some((_, message)) = state.selector_errors.first()
        {
            // The condition says so already.
            self.recorder
                .warning(&calculation.about, FAILED, message.clone());
            return false;
        }
        let Err(message) = self.claim_pods(calculation, state) else {
            return true;
        };
        for reason in ["AmbiguousSelector", FAILED] {
            self.recorder.warning(&calculation.about, reason, &*message);
        }
        let mut conditions = calculation.conditions();
        conditions.set("ScalingActive", false, "AmbiguousSelector", &message);
        false
    }

    async fn scale_by_metrics(&self, calculation: &mut Calculation<'_>, state: &TargetState) {
        let (spec, key) = (&calculation.hpa.spec, calculation.key);
        let current = state.template_replicas;
        if !self.has_own_pods(calculation, state) {
            calculation.error = ScaleError::Internal;
            return calculation.keep_current(current);
        }
        let reader = MetricsReader {
            api: &*self.reader.api,
            namespace: calculation.object.namespace(),
            state,
            settings: &self.settings,
            now: calculation.now,
        };
        let result = reader.desired_replicas(spec).await;
        calculation.error = result.error_label();
        for error in &result.errors {
            self.recorder
                .warning(&calculation.about, error.reason, &*error.error);
        }
        let Some((desired, metric)) = result.desired else {
            if let Some(first) = result.errors.first() {
                let error = &first.error;
                let message = format!("the HPA was unable to compute the replica count: {error}");
                let mut conditions = calculation.conditions();
                conditions.set("ScalingActive", false, first.reason, &message);
            }
            let about = &calculation.about;
            let none = || "no metrics are specified".into();
            let message = result.error.unwrap_or_else(none);
            self.recorder
                .warning(about, "FailedComputeMetricsReplicas", message);
            return calculation.keep_current(current);
        };
        calculation.status.current_metrics = result.statuses.into();
        let message =
            format!("the HPA was able to successfully calculate a replica count from {metric}");
        let mut conditions = calculation.conditions();
        conditions.set("ScalingActive", true, "ValidMetricFound", &message);
        let normalized = self.with_state(key, |own| {
            let replicas = (current, desired);
            normalize(
                spec,
                replicas,
                &self.settings,
                &mut own.history,
                &mut conditions,
            )
        });
        if normalized == current {
            calculation.keep_current(current);
            calculation.status.desired_replicas = current;
            return;
        }
        let reason = match desired > current {
            true => format!("{metric} above target"),
            false => "All metrics below target".to_owned(),
        };
        self.rescale(calculation, state, normalized, &reason).await;
    }

    /// Writes the replicas to the scale of the template.
    async fn rescale(
        &self,
        calculation: &mut Calculation<'_>,
        state: &TargetState,
        desired: i32,
        reason: &str,
    ) {
        let current = state.template_replicas;
        let name = &calculation.hpa.spec.scale_target_ref.name;
        let namespace = calculation.object.namespace();
        let at = ResourcePath::object(&state.resource, namespace, name).subresource("scale");
        let patch = Patch::Merge(json!({"spec": {"replicas": desired}}));
        let written = self
            .reader
            .api
            .patch(at, patch, &WriteOptions::default())
            .await;
        calculation.keep_current(current);
        if let Err(error) = written {
            calculation.error = ScaleError::Internal;
            let message = format!("New size: {desired}; reason: {reason}; error: {error}");
            self.recorder
                .warning(&calculation.about, "FailedRescale", message);
            let message =
                format!("the HPA controller was unable to update the target scale: {error}");
            let mut conditions = calculation.conditions();
            return conditions.set("AbleToScale", false, "FailedUpdateScale", &message);
        }
        calculation.action = ScaleAction::between(current, desired);
        let message = format!("New size: {desired}; reason: {reason}");
        self.recorder
            .normal(&calculation.about, "SuccessfulRescale", message);
        let message =
            format!("the HPA controller was able to update the target scale to {desired}");
        let mut conditions = calculation.conditions();
        conditions.set("AbleToScale", true, "SucceededRescale", &message);
        let (behavior, now) = (calculation.hpa.spec.behavior.as_ref(), calculation.now);
        self.with_state(calculation.key, |own| {
            record_change(behavior, (current, desired), &mut own.history, now);
        });
        calculation.status.desired_replicas = desired;
        calculation.status.last_scale_time = Some(rfc3339_seconds(now));
    }

    /// Remembers which pods the object scales. The error names the objects that scale some of them.
    fn claim_pods(
        &self,
        calculation: &Calculation<'_>,
        state: &TargetState,
    ) -> std::result::Result<(), String> {
        let Ok(selector) = LabelSelector::parse(&state.scale.selector) else {
            return Ok(());
        };
        let namespace = calculation.object.namespace();
        let mut states = self.states.lock();
        if let Some(own) = states.get_mut(calculation.key) {
            own.selector = Some(selector);
        }
        let selects = |selector: &LabelSelector, labels: &BTreeMap<String, String>| {
            selector.matches(|key| labels.get(key).map(String::as_str))
        };
        let mut owners: Vec<&str> = Vec::new();
        let prefix = format!("{namespace}/");
        for (key, other) in states.range(prefix.clone()..) {
            let Some(name) = key.strip_prefix(&prefix) else {
                break;
            };
            let claims = |selector| {
                state
                    .pod_labels
                    .iter()
                    .any(|labels| selects(selector, labels))
            };
            if other.selector.as_ref().is_some_and(claims) {
                owners.push(name);
            }
        }
        if owners.len() < 2 {
            return Ok(());
        }
        owners.sort_unstable();
        let owners: Vec<String> = owners
            .iter()
            .map(|name| format!("{{{name} {namespace}}}"))
            .collect();
        Err(format!(
            "pods by selector {} are controlled by multiple HPAs: [{}]",
            state.scale.selector,
            owners.join(" ")
        ))
    }

    fn with_state<T>(&self, key: &str, change: impl FnOnce(&mut AutoscalerState) -> T) -> T {
        change(self.states.lock().entry(key.to_owned()).or_default())
    }

    async fn write_status(&self, calculation: &Calculation<'_>) -> Result<()> {
        let is_changed = calculation.status != calculation.hpa.status;
        let changed = is_changed.then(|| calculation.status.value());
        let writer = StatusWriter::new(&*self.reader.api, "federated-hpa");
        let written = writer.update(&FEDERATED_HPAS, calculation.object, changed);
        let written = written.await;
        if let Err(error) = &written
            && !error.is_conflict()
            && !error.is_not_found()
        {
            self.recorder
                .warning(&calculation.about, "FailedUpdateStatus", error.to_string());
        }
        written.map(drop)
    }
}
