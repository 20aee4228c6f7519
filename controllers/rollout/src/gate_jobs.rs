//! Runs the Jobs of gates: a Job is made from the `jobTemplate` of a CronJob, and goes in Works of its
//! own to the clusters of its stage that are done. The members' statuses come back into these Works.
//!
//! status of the Rollout ──[`GateJobs::observe`]──► Works ──► outcome ──► next step
//!
//! Invariants: only Jobs that the status names are made, each once in a cluster; those that it does
//! not name any more are deleted. No object of the namespace of the template says how a Job has ended,
//! so that who may write there opens no gate.

use std::sync::Arc;

use client::{Api, DeleteOptions, Informer, ResourcePath, WriteOptions, ignore_not_found};
use controller_context::{DesiredWork, Error, set_metadata_entry};
use flotilla_runtime::{ClusterLister, Workqueue};
use karmada_api::Work;
use karmada_api::names::{binding_reference_key, execution_space_name, work_name};
use karmada_api::resources::WORKS;
use karmada_api::rollout::{
    JOB_OF, JobGate, ROLLOUTS, RolloutPolicySpec, RolloutStatus, StageJobState, StageJobStatus,
};
use karmada_api::well_known_keys::{
    APPLIED_CLUSTER_OVERRIDES, APPLIED_OVERRIDES, CONFLICT_RESOLUTION,
};
use machinery::bounded_text::truncated;
use machinery::{Gvk, Gvr, Object};
use overrides::OverrideManager;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::decision::{JobObservation, JobOutcome};

static CRON_JOBS: Gvr = Gvr::from_static("batch", "v1", "cronjobs");
const JOB: Gvk = Gvk::from_static("batch", "v1", "Job");
/// In the names of the Works, so that no template has a Work of the same name.
const WORK_KIND: &str = "rollout-job";
const BY_ROLLOUT: &str = "rollout-of-job";
/// The bytes of a reason that a status shows.
const MAX_MESSAGE_BYTES: usize = 256;

/// The Jobs of gates, in the Works of their clusters.
pub(crate) struct GateJobs {
    api: Arc<dyn Api>,
    works: Informer,
    clusters: ClusterLister,
    overrides: OverrideManager,
}

/// The status of a Job in a member.
#[derive(Default, Deserialize)]
#[serde(default)]
struct JobStatus {
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
    pub(crate) fn new(
        api: Arc<dyn Api>,
        works: Informer,
        clusters: ClusterLister,
        overrides: OverrideManager,
    ) -> Self {
        works.add_index(BY_ROLLOUT, |work| {
            let label = work.meta().label(JOB_OF);
            label.map(str::to_owned).into_iter().collect()
        });
        Self {
            api,
            works,
            clusters,
            overrides,
        }
    }

    /// Enqueues the Rollout of each Job that changes. At the start, too: it may have been deleted.
    pub(crate) fn add_event_handler(&self, queue: &Workqueue<String>) {
        let queue = queue.clone();
        self.works.add_event_handler(move |change| {
            let work = change.object();
            if work.meta().label(JOB_OF).is_some()
                && let Some(rollout) = work.annotation(JOB_OF)
            {
                queue.add_event(rollout, change);
            }
        });
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
        let Some(status) = status else {
            return (observations, Ok(()));
        };
        for stage in &status.stages {
            let job = stage.job.as_ref();
            let job = job.filter(|job| job.has_started() && !job.state.is_final());
            let mut stages = policy.stages.iter();
            let gate = stages.find(|other| other.name == stage.name);
            let gate = gate.and_then(|stage| stage.gates.job.as_ref());
            let (Some(job), Some(gate)) = (job, gate) else {
                continue;
            };
            // A cluster that has left holds nobody.
            let clusters = job.clusters.iter().map(String::as_str);
            let clusters = clusters.filter(|name| status.cluster(name).is_some());
            match self.run(rollout, job, gate, clusters.collect()).await {
                Ok(outcome) => observations.extend(outcome.map(|outcome| JobObservation {
                    name: job.name.clone(),
                    outcome,
                })),
                Err(error) => failed.push(error),
            }
        }
        (observations, Error::aggregate(failed))
    }

    /// The outcome of a Job in clusters; `None` if none of them is left, or an older step asks.
    async fn run(
        &self,
        rollout: &Object,
        job: &StageJobStatus,
        gate: &JobGate,
        clusters: Vec<&str>,
    ) -> Result<Option<JobOutcome>, Error> {
        let key = binding_reference_key(rollout.namespace(), rollout.name());
        let (mut outcomes, mut missing) = (Vec::new(), Vec::new());
        for cluster in clusters {
            let Some(work) = self.find(rollout, &job.name, cluster).await? else {
                missing.push(cluster);
                continue;
            };
            outcomes.push(match work.meta().label(JOB_OF) == Some(&*key) {
                true => outcome_of(cluster, &work),
                false => JobOutcome::Failed(format!(
                    "the Work {} is not one of this rollout",
                    work.meta().key()
                )),
            });
        }
        if missing.is_empty() {
            return Ok(joint_outcome(outcomes));
        }
        if job.state == StageJobState::Running {
            let reason = format!("the Job was deleted in {}", missing.join(", "));
            return Ok(Some(JobOutcome::Failed(reason)));
        }
        // An outdated status could name a Job that has run and was deleted.
        if !self
            .is_current(&rollout.meta().key(), Some(rollout))
            .await?
        {
            return Ok(None);
        }
        self.make(rollout, &job.name, gate, missing).await
    }

    /// The Work with a Job for a cluster. That it is absent is not read from a cache: it may be older
    /// than the status.
    async fn find(
        &self,
        rollout: &Object,
        job: &str,
        cluster: &str,
    ) -> Result<Option<Object>, Error> {
        let namespace = execution_space_name(cluster);
        let name = work_name(WORK_KIND, job, rollout.namespace());
        let work = self.works.get(&namespace, &name);
        if work.is_some() {
            return Ok(work);
        }
        let at = ResourcePath::object(&WORKS, &namespace, &name);
        Ok(ignore_not_found(self.api.get(at).await)?)
    }

    /// Makes the Works of a Job for clusters.
    async fn make(
        &self,
        rollout: &Object,
        name: &str,
        gate: &JobGate,
        clusters: Vec<&str>,
    ) -> Result<Option<JobOutcome>, Error> {
        let at = ResourcePath::object(&CRON_JOBS, rollout.namespace(), &gate.cron_job);
        let cron_job = match self.api.get(at).await {
            Ok(cron_job) => cron_job,
            Err(error) => return refusal(error),
        };
        let job = job_of(rollout, name, &cron_job)?;
        for cluster in clusters {
            let work = match self.work(rollout, name, &job, cluster)? {
                Ok(work) => work,
                Err(reason) => return Ok(Some(JobOutcome::Failed(reason))),
            };
            let namespace = execution_space_name(cluster);
            let at = ResourcePath::collection(&WORKS, &namespace);
            let options = WriteOptions::default();
            let created = self.api.create(at, work.into(), &options).await;
            if let Err(error) = created
                && !error.is_already_exists()
            {
                return refusal(error);
            }
        }
        Ok(Some(JobOutcome::Running))
    }

    /// The Work with a Job for a cluster, or why an override policy does not allow it.
    fn work(
        &self,
        rollout: &Object,
        name: &str,
        job: &Value,
        cluster: &str,
    ) -> Result<Result<Value, String>, Error> {
        let mut manifest = job.clone();
        let meta = Object::from_value(job).map_err(Error::blocked)?;
        let candidates = self.overrides.candidates(&JOB, meta.meta());
        let mut annotations =
            Map::from_iter([(JOB_OF.to_owned(), Value::from(rollout.meta().key()))]);
        if let Some(listed) = self.clusters.get(cluster) {
            let applied = candidates.apply(&mut manifest, &JOB, &listed.attributes());
            let record = match applied {
                Ok(record) => record,
                Err(failure) => {
                    let reason = failure.to_string();
                    return Ok(Err(truncated(&reason, MAX_MESSAGE_BYTES).into_owned()));
                }
            };
            for (key, applied) in [
                (
                    APPLIED_CLUSTER_OVERRIDES,
                    record.cluster_policies_annotation(),
                ),
                (APPLIED_OVERRIDES, record.policies_annotation()),
            ] {
                annotations.extend(applied.map(|text| (key.to_owned(), text.into())));
            }
        }
        set_metadata_entry(&mut manifest, "annotations", CONFLICT_RESOLUTION, "abort");
        let key = binding_reference_key(rollout.namespace(), rollout.name());
        let draft = DesiredWork {
            namespace: execution_space_name(cluster),
            name: work_name(WORK_KIND, name, rollout.namespace()),
            labels: Map::from_iter([(JOB_OF.to_owned(), key.into())]),
            annotations,
            owner_references: Vec::new(),
            manifest,
            suspend_dispatching: None,
            preserve_resources_on_deletion: None,
        };
        let body = draft.into_body(None, rollout.uid())?;
        Ok(Ok(body.unwrap_or_default()))
    }

    /// Whether a Rollout that was read from the cache, or that it did not have, is the last version.
    async fn is_current(&self, key: &str, rollout: Option<&Object>) -> Result<bool, Error> {
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        let at = ResourcePath::object(&ROLLOUTS, namespace, name);
        let current = ignore_not_found(self.api.get(at).await)?;
        let revision = |object: &Object| object.revision();
        Ok(current.as_ref().map(revision) == rollout.map(revision))
    }

    /// Deletes the Jobs of a Rollout, `namespace/name`, that its status does not name any more: all if
    /// the Rollout was deleted.
    pub(crate) async fn prune(
        &self,
        key: &str,
        rollout: Option<&Object>,
        status: Option<&RolloutStatus>,
    ) -> Result<(), Error> {
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        let stages = status.map(|status| &*status.stages).unwrap_or_default();
        let jobs = stages.iter().filter_map(|stage| stage.job.as_ref());
        let used: Vec<String> = jobs
            .map(|job| work_name(WORK_KIND, &job.name, namespace))
            .collect();
        let label = binding_reference_key(namespace, name);
        let mut unused = self.works.by_index(BY_ROLLOUT, &label);
        unused.retain(|work| !work.meta().deleting && used.iter().all(|name| name != work.name()));
        if unused.is_empty() || !self.is_current(key, rollout).await? {
            return Ok(());
        }
        for work in &unused {
            let options = DeleteOptions {
                uid: Some(work.uid().to_owned()),
                ..DeleteOptions::default()
            };
            let at = ResourcePath::of_object(&WORKS, work);
            ignore_not_found(self.api.delete(at, &options).await)?;
        }
        Ok(())
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

/// A Job has succeeded if it has in all clusters, and has failed if it has in one. Otherwise the first
/// cluster that does not have it says why.
fn joint_outcome(outcomes: Vec<JobOutcome>) -> Option<JobOutcome> {
    let mut joint = None;
    for outcome in outcomes {
        joint = match (joint, outcome) {
            (_, failed @ JobOutcome::Failed(_)) => return Some(failed),
            (Some(reason @ JobOutcome::NotApplied(_)), _)
            | (_, reason @ JobOutcome::NotApplied(_)) => Some(reason),
            (Some(JobOutcome::Running), _) => Some(JobOutcome::Running),
            (_, outcome) => Some(outcome),
        };
    }
    joint
}

/// The outcome of a Job, as its member reports it in the Work.
fn outcome_of(cluster: &str, work: &Object) -> JobOutcome {
    if work.meta().deleting {
        return JobOutcome::Failed(format!("the Job was deleted in {cluster}"));
    }
    let Ok(view) = work.decode::<Work>() else {
        return JobOutcome::Running;
    };
    // The status of a Job that the Work does not have is not that of this one.
    match view.condition("Applied") {
        None => return JobOutcome::Running,
        Some(applied) if applied.status != "True" => {
            let reason = match &*applied.message {
                "" => "its Work is not applied",
                message => message,
            };
            let reason = truncated(reason, MAX_MESSAGE_BYTES);
            return JobOutcome::NotApplied(format!("in {cluster}: {reason}"));
        }
        Some(_) => {}
    }
    let reported = view.status.manifest_statuses.first();
    let status = reported.and_then(|manifest| manifest.status.clone());
    let status = status.map(serde_json::from_value::<JobStatus>);
    let status = status.and_then(Result::ok).unwrap_or_default();
    let condition = |kind: &str| {
        let mut conditions = status.conditions.iter();
        conditions.find(|c| c.condition_type == kind && c.status == "True")
    };
    if let Some(failed) = condition("Failed") {
        let reason = truncated(&failed.message, MAX_MESSAGE_BYTES);
        JobOutcome::Failed(format!("in {cluster}: {reason}"))
    } else if condition("Complete").is_some() {
        JobOutcome::Succeeded
    } else {
        JobOutcome::Running
    }
}

/// Whether a label or annotation is one of Karmada or Flotilla: it would say about the Job what is
/// true of another object, such as which policy has claimed it.
fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    ["karmada.io", "flotilla.io"].iter().any(|own| {
        let rest = domain.strip_suffix(own);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// The Job that a CronJob would create, without the labels and annotations that are reserved. It stays
/// until the Rollout has no use for it: one that its time to live deletes would be made again.
fn job_of(rollout: &Object, name: &str, cron_job: &Object) -> Result<Value, Error> {
    let tree = cron_job.value().map_err(Error::blocked)?;
    let template = &tree["spec"]["jobTemplate"];
    let mut spec = template["spec"].clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("ttlSecondsAfterFinished");
    }
    let namespace = rollout.namespace();
    let mut job = json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": namespace}, "spec": spec});
    for map in ["labels", "annotations"] {
        if let Some(entries) = template["metadata"][map].as_object() {
            let mut entries = entries.clone();
            entries.retain(|key, _| !is_reserved(key));
            job["metadata"][map] = entries.into();
        }
    }
    let key = binding_reference_key(namespace, rollout.name());
    set_metadata_entry(&mut job, "labels", JOB_OF, &key);
    Ok(job)
}
