//! Runs the Jobs of gates: a Job is made from the `jobTemplate` of a CronJob, and a PropagationPolicy
//! sends it to the clusters of its stage that are done. The members' statuses come back into it as
//! into any template.
//!
//! status of the Rollout ──[`GateJobs::observe`]──► PropagationPolicy, then Job ──► outcome ──► next step
//!
//! Invariants: only Jobs that the status names are made, each once; those that it does not name any
//! more are deleted. Both kinds belong to the Rollout.

use std::sync::Arc;

use client::{
    Api, DeleteOptions, DeletionPropagation, Informer, ListWatchSelector, ResourcePath,
    WriteOptions, ignore_not_found,
};
use controller_context::{Error, PropagationContext};
use flotilla_runtime::Workqueue;
use karmada_api::names::binding_reference_key;
use karmada_api::resources::POLICIES;
use karmada_api::rollout::{
    JOB_OF, JobGate, ROLLOUTS, RolloutPhase, RolloutPolicySpec, RolloutStatus, StageJobState,
    StageJobStatus, StageRolloutStatus,
};
use karmada_api::well_known_keys::BINDING_NAME;
use machinery::bounded_text::truncated;
use machinery::{Gvr, Object};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::decision::{JobObservation, JobOutcome};
use crate::resolver::is_owned_by;

static JOBS: Gvr = Gvr::from_static("batch", "v1", "jobs");
static CRON_JOBS: Gvr = Gvr::from_static("batch", "v1", "cronjobs");
const BY_BINDING: &str = "binding";
/// The bytes of a reason that a status shows.
const MAX_MESSAGE_BYTES: usize = 256;

/// The Jobs of gates, and their PropagationPolicies.
pub(crate) struct GateJobs {
    api: Arc<dyn Api>,
    jobs: Informer,
    policies: Informer,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FinishedJob {
    status: FinishedJobStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FinishedJobStatus {
    conditions: Vec<JobCondition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct JobCondition {
    #[serde(rename = "type")]
    condition_type: String,
    status: String,
    message: String,
}

impl GateJobs {
    pub(crate) fn new(context: &PropagationContext) -> Self {
        let select = |resource: &Gvr| {
            let selector = ListWatchSelector::all(resource).labels(JOB_OF);
            let informer = context.controller.select(&selector);
            informer.add_index(BY_BINDING, |object| {
                let label = object.meta().label(JOB_OF);
                label.map(str::to_owned).into_iter().collect()
            });
            informer
        };
        Self {
            api: Arc::clone(&context.controller.control_plane),
            jobs: select(&JOBS),
            policies: select(&POLICIES),
        }
    }

    pub(crate) async fn wait_synced(&self) {
        self.jobs.wait_for_cache_sync().await;
        self.policies.wait_for_cache_sync().await;
    }

    /// Enqueues the Rollout of each object that changes.
    pub(crate) fn add_event_handlers(&self, queue: &Workqueue<String>) {
        for informer in [&self.jobs, &self.policies] {
            let queue = queue.clone();
            informer.add_event_handler(move |change| {
                let object = change.object();
                if let Some(binding) = object.annotation(BINDING_NAME)
                    && !change.in_initial_list
                {
                    queue.add(format!("{}/{binding}", object.namespace()));
                }
            });
        }
    }

    /// How far the Jobs are that the status of a Rollout names; those that do not exist yet are
    /// made. One that could not be asked or made holds nothing but its stage: the error is for after
    /// the step.
    pub(crate) async fn observe(
        &self,
        rollout: &Object,
        status: Option<&RolloutStatus>,
        policy: &RolloutPolicySpec,
    ) -> (Vec<JobObservation>, Result<(), Error>) {
        let (mut observations, mut failed) = (Vec::new(), Vec::new());
        for stage in status.map(|status| &*status.stages).unwrap_or_default() {
            let job = stage.job.as_ref();
            let job = job.filter(|job| job.has_started() && !job.state.is_final());
            let mut stages = policy.stages.iter();
            let gate = stages.find(|other| other.name == stage.name);
            let gate = gate.and_then(|stage| stage.gates.job.as_ref());
            let (Some(job), Some(gate)) = (job, gate) else {
                continue;
            };
            match self.run(rollout, stage, job, gate).await {
                Ok(outcome) => observations.extend(outcome.map(|outcome| JobObservation {
                    name: job.name.clone(),
                    outcome,
                })),
                Err(error) => failed.push(error),
            }
        }
        (observations, Error::aggregate(failed))
    }

    async fn run(
        &self,
        rollout: &Object,
        stage: &StageRolloutStatus,
        job: &StageJobStatus,
        gate: &JobGate,
    ) -> Result<Option<JobOutcome>, Error> {
        match self.find(rollout, &job.name).await? {
            Some(object) if !is_owned_by(&object, rollout) => foreign(rollout, "Job", &object),
            Some(object) => Ok(Some(outcome_of(&object))),
            None if job.state == StageJobState::Running => {
                Ok(Some(JobOutcome::Failed("the Job was deleted".to_owned())))
            }
            None => self.make(rollout, stage, &job.name, gate).await,
        }
    }

    /// The Job with a name. That it is absent is not read from a cache: it may be older than the
    /// status.
    async fn find(&self, rollout: &Object, name: &str) -> Result<Option<Object>, Error> {
        let job = self.jobs.get(rollout.namespace(), name);
        if job.is_some() {
            return Ok(job);
        }
        let at = ResourcePath::object(&JOBS, rollout.namespace(), name);
        Ok(ignore_not_found(self.api.get(at).await)?)
    }

    /// Makes the PropagationPolicy of a Job, and once the controllers see it, the Job, which no
    /// other policy claims then. `None`: the event of the policy leads to the next step.
    async fn make(
        &self,
        rollout: &Object,
        stage: &StageRolloutStatus,
        name: &str,
        gate: &JobGate,
    ) -> Result<Option<JobOutcome>, Error> {
        // An outdated status could name a Job that has run and was deleted.
        if !self.is_current(rollout).await? {
            return Ok(None);
        }
        let namespace = rollout.namespace();
        let body = match self.policies.get(namespace, name) {
            None => propagation_policy(rollout, stage, name),
            Some(policy) if !is_owned_by(&policy, rollout) => {
                return foreign(rollout, "PropagationPolicy", &policy);
            }
            Some(_) => {
                let at = ResourcePath::object(&CRON_JOBS, namespace, &gate.cron_job);
                match self.api.get(at).await {
                    Ok(cron_job) => job_of(rollout, name, &cron_job)?,
                    Err(error) => return refusal(error),
                }
            }
        };
        let is_job = body["kind"] == "Job";
        let resource = if is_job { &JOBS } else { &POLICIES };
        let at = ResourcePath::collection(resource, namespace);
        let options = WriteOptions::default();
        match self.api.create(at, body.into(), &options).await {
            Ok(_) => Ok(is_job.then_some(JobOutcome::Running)),
            Err(error) => refusal(error),
        }
    }

    /// Whether the version of a Rollout that was read from the cache is the last one.
    async fn is_current(&self, rollout: &Object) -> Result<bool, Error> {
        let at = ResourcePath::of_object(&ROLLOUTS, rollout);
        let current = ignore_not_found(self.api.get(at).await)?;
        Ok(current.is_some_and(|current| current.revision() == rollout.revision()))
    }

    /// Deletes the Jobs of a Rollout that its status does not name any more.
    pub(crate) async fn prune(
        &self,
        rollout: &Object,
        status: &RolloutStatus,
    ) -> Result<(), Error> {
        let key = binding_reference_key(rollout.namespace(), rollout.name());
        let is_unused = |object: &Object| {
            let mut jobs = status.stages.iter().filter_map(|stage| stage.job.as_ref());
            is_owned_by(object, rollout) && jobs.all(|job| job.name != object.name())
        };
        let mut unused = Vec::new();
        for (resource, informer) in [(&JOBS, &self.jobs), (&POLICIES, &self.policies)] {
            let mut objects = informer.by_index(BY_BINDING, &key);
            objects.retain(|object| is_unused(object) && !object.meta().deleting);
            unused.extend(objects.into_iter().map(|object| (resource, object)));
        }
        if unused.is_empty() || !self.is_current(rollout).await? {
            return Ok(());
        }
        for (resource, object) in &unused {
            let options = DeleteOptions {
                uid: Some(object.uid().to_owned()),
                // By default what belongs to a Job is orphaned.
                propagation: Some(DeletionPropagation::Background),
                ..DeleteOptions::default()
            };
            let at = ResourcePath::of_object(resource, object);
            ignore_not_found(self.api.delete(at, &options).await)?;
        }
        Ok(())
    }
}

/// Makes the Job fail if its name is that of an object of someone else, which is left alone: a retry
/// takes another name. One of an earlier Rollout is about to be collected.
fn foreign(rollout: &Object, kind: &str, object: &Object) -> Result<Option<JobOutcome>, Error> {
    let reason = format!("the {kind} {} is not one of this rollout", object.name());
    let key = binding_reference_key(rollout.namespace(), rollout.name());
    match object.meta().label(JOB_OF) == Some(&*key) {
        true => Err(Error::blocked(reason)),
        false => Ok(Some(JobOutcome::Failed(reason))),
    }
}

/// Makes the Job fail if a request is refused for good, and else asks again.
fn refusal(error: client::Error) -> Result<Option<JobOutcome>, Error> {
    match &error {
        client::Error::Status(status) if matches!(status.code, 400 | 403 | 404 | 422) => {
            let reason = truncated(&status.message, MAX_MESSAGE_BYTES).into_owned();
            Ok(Some(JobOutcome::Failed(reason)))
        }
        _ => Err(error.into()),
    }
}

fn outcome_of(job: &Object) -> JobOutcome {
    let view = machinery::json::from_slice::<FinishedJob>(&job.bytes()).unwrap_or_default();
    let condition = |kind: &str| {
        let mut conditions = view.status.conditions.iter();
        conditions.find(|c| c.condition_type == kind && c.status == "True")
    };
    if let Some(failed) = condition("Failed") {
        let reason = truncated(&failed.message, MAX_MESSAGE_BYTES).into_owned();
        JobOutcome::Failed(reason)
    } else if condition("Complete").is_some() {
        JobOutcome::Succeeded
    } else {
        JobOutcome::Running
    }
}

/// The metadata of what belongs to a Rollout, with further labels and annotations.
fn metadata(rollout: &Object, name: &str, more: &Value) -> Value {
    let entries = |map: &str, key: &str, value: &str| {
        let mut entries: Map<String, Value> = more[map].as_object().cloned().unwrap_or_default();
        entries.insert(key.to_owned(), value.into());
        entries
    };
    let (namespace, binding) = (rollout.namespace(), rollout.name());
    let owner = json!({"apiVersion": ROLLOUTS.api_version(), "kind": "Rollout",
        "name": binding, "uid": rollout.uid(), "controller": true});
    json!({
        "name": name, "namespace": namespace, "ownerReferences": [owner],
        "labels": entries("labels", JOB_OF, &binding_reference_key(namespace, binding)),
        "annotations": entries("annotations", BINDING_NAME, binding),
    })
}

/// Sends a Job to the clusters of its stage that are done, whatever their taints and whatever other
/// policies select it.
fn propagation_policy(rollout: &Object, stage: &StageRolloutStatus, name: &str) -> Value {
    let clusters = stage.clusters.iter();
    let clusters = clusters.filter(|cluster| cluster.phase == RolloutPhase::Done);
    let names: Vec<&str> = clusters.map(|cluster| &*cluster.name).collect();
    json!({
        "apiVersion": POLICIES.api_version(), "kind": "PropagationPolicy",
        "metadata": metadata(rollout, name, &Value::Null),
        "spec": {
            "resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job", "name": name}],
            "priority": i32::MAX,
            "placement": {
                "clusterAffinity": {"clusterNames": names},
                "clusterTolerations": [{"operator": "Exists"}],
            },
        },
    })
}

/// The Job that a CronJob would create. It stays until the Rollout has no use for it: one that its
/// time to live deletes would be made again.
fn job_of(rollout: &Object, name: &str, cron_job: &Object) -> Result<Value, Error> {
    let tree = cron_job.value().map_err(Error::blocked)?;
    let template = &tree["spec"]["jobTemplate"];
    let mut spec = template["spec"].clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("ttlSecondsAfterFinished");
    }
    Ok(json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": metadata(rollout, name, &template["metadata"]), "spec": spec,
    }))
}
