//! Applies the manifests of a Work to its member cluster.

use std::collections::HashSet;
use std::time::Duration;

use controller_context::{APPLIED, Error};
use flotilla_runtime::ReconcileAction;
use karmada_api::history::DriftRepair;
use karmada_api::well_known_keys::TEMPLATE_GENERATION;
use machinery::Object;
use tokio::time::Instant;

use crate::apply_manifest::{ManifestApplyError, WorkToApply};
use crate::cluster_executor::{ClusterExecutor, SyncedObjectVersion, SyncedWork};
use crate::compare::UpdateMode;
use crate::conditions::{
    DISPATCHING_MESSAGE, FIELD_CONFLICT, SUSPENDED_MESSAGE, WorkCondition, applied_condition,
    dispatching_condition, field_conflict_condition, is_changed,
};
use crate::controller::ExecutionController;
use crate::manifest::{EncodedManifest, EncodedWork};
use crate::metrics::EXECUTION_METRICS;
use crate::propagation::{
    FailedObjects, PropagationReason, propagated_condition, waiting_condition,
};
use crate::repair_backoff::RepairQuiet;

/// How often objects that are left alone are looked at. Those that were never managed do not name
/// their Work, so that its label may go without an event for the Work.
const LEFT_ALONE_RECHECK_INTERVAL: Duration = Duration::from_secs(300);

/// The result of applying the manifests of a Work.
#[derive(Default)]
struct WorkSyncResult {
    targets: Vec<SyncedObjectVersion>,
    wrote: bool,
    /// The shortest delay of a repair that waits.
    repair_delay: Option<Duration>,
    /// Why objects are left alone.
    left_alone: Vec<String>,
    repairs: Vec<DriftRepair>,
    failure: Option<WorkSyncFailure>,
}

/// The condition's message about manifests that are not applied, and the reasons alone.
struct WorkSyncFailure {
    text: String,
    reasons: String,
    /// Whether the member did not answer for one of them.
    unanswered: bool,
    objects: FailedObjects,
    /// The repairs of other manifests.
    repairs: Vec<DriftRepair>,
}

impl ExecutionController {
    pub(crate) async fn apply_work(
        &self,
        cluster: &str,
        executor: &ClusterExecutor,
        object: &Object,
        work: &EncodedWork,
        attempt: u32,
    ) -> Result<ReconcileAction, Error> {
        let suspended = work.suspend_dispatching;
        let dispatch = dispatching_condition(suspended);
        if is_changed(&work.conditions, &dispatch) {
            let text = if suspended {
                SUSPENDED_MESSAGE
            } else {
                DISPATCHING_MESSAGE
            };
            self.recorder
                .normal(&Self::work_reference(object), "WorkDispatching", text);
        }
        let ready = self
            .clusters
            .get(cluster)
            .is_some_and(|c| c.cluster.is_ready());
        if suspended || !ready {
            // The Applied condition stays as it is: the Work waits.
            let mut conditions = vec![dispatch];
            if self.update_mode(object, work) == UpdateMode::Edit {
                conditions.push(match suspended {
                    true => waiting_condition(
                        PropagationReason::DispatchingSuspended,
                        SUSPENDED_MESSAGE.to_owned(),
                    ),
                    false => waiting_condition(
                        PropagationReason::ClusterNotReady,
                        format!("cluster {cluster} is not Ready"),
                    ),
                });
            }
            self.update_conditions(object, work, &conditions).await?;
            return Ok(ReconcileAction::Done);
        }
        let key = object.meta().key();
        let generation = object.meta().generation;
        let last = executor.synced_works.get(&key);
        let last = last.filter(|last| last.uid == object.uid());
        let began = Instant::now();
        let work_to_apply = WorkToApply {
            cluster,
            executor,
            key: &key,
            generation,
            mode: self.update_mode(object, work),
            attempt,
            overridden_fields: &work.overridden_fields,
            last_synced: last.as_ref().map_or(&[], |last| &last.objects),
        };
        let manifests: Vec<EncodedManifest> = work.encoded_manifests().collect();
        let result = self.apply_manifests(&work_to_apply, &manifests).await;
        let succeeded = result.as_ref().is_ok_and(|result| result.failure.is_none());
        EXECUTION_METRICS
            .sync_workload_outcomes
            .observe(began.elapsed(), succeeded);
        let mut result = result?;
        if let Some(failure) = result.failure.take() {
            return self
                .record_failure(cluster, object, work, dispatch, failure)
                .await;
        }
        if result.wrote {
            let text = format!("Sync work({key}) to cluster({cluster}) successful.");
            self.recorder
                .normal(&Self::work_reference(object), "SyncSucceed", text);
        }
        self.record_applied(executor, object, work, &manifests, dispatch, result)
            .await
    }

    /// Records that all manifests of a Work are applied, or wait for a repair.
    async fn record_applied(
        &self,
        executor: &ClusterExecutor,
        object: &Object,
        work: &EncodedWork,
        manifests: &[EncodedManifest],
        dispatch: WorkCondition,
        result: WorkSyncResult,
    ) -> Result<ReconcileAction, Error> {
        let is_left_alone = !result.left_alone.is_empty();
        let propagated = match is_left_alone {
            true => {
                let objects = result.left_alone.join("; ");
                waiting_condition(PropagationReason::ManagedLabelFalse, objects)
            }
            false => propagated_condition(manifests),
        };
        let mut conditions = vec![dispatch, applied_condition(Ok(())), propagated];
        conditions.extend(self.report_repairs(object, &result.repairs));
        let quiet_after = self.add_field_conflict(executor, object, work, &mut conditions);
        self.update_conditions(object, work, &conditions).await?;
        if result.repair_delay.is_none() {
            let synced_versions = SyncedWork {
                uid: object.uid().to_owned(),
                generation: object.meta().generation,
                objects: result.targets,
            };
            self.record_synced(object, synced_versions);
        }
        let recheck = is_left_alone.then_some(LEFT_ALONE_RECHECK_INTERVAL);
        let delays = result.repair_delay.into_iter().chain(quiet_after);
        let delay = delays.chain(recheck).min();
        Ok(delay.map_or(ReconcileAction::Done, ReconcileAction::RequeueAfter))
    }

    /// A Work that was applied before is repaired; one of another generation is an edit.
    fn update_mode(&self, object: &Object, work: &EncodedWork) -> UpdateMode {
        let generation = object.meta().generation;
        let was_applied = work
            .condition(APPLIED)
            .is_some_and(|c| c.status == "True" && c.observed_generation == generation);
        match was_applied || self.synced_work(object).is_some() {
            true => UpdateMode::Repair,
            false => UpdateMode::Edit,
        }
    }

    /// Records that manifests of a Work are not applied.
    async fn record_failure(
        &self,
        cluster: &str,
        object: &Object,
        work: &EncodedWork,
        dispatch: WorkCondition,
        failure: WorkSyncFailure,
    ) -> Result<ReconcileAction, Error> {
        let WorkSyncFailure {
            text,
            reasons,
            unanswered,
            objects,
            repairs,
        } = failure;
        let key = object.meta().key();
        let message = format!("Failed to sync work({key}) to cluster({cluster}), err: {reasons}");
        let about = Self::work_reference(object);
        self.recorder.warning(&about, "SyncFailed", message);
        self.invalidate_synced(object);
        let mut conditions = vec![dispatch, applied_condition(Err(text.clone()))];
        conditions.extend(objects.condition());
        conditions.extend(self.report_repairs(object, &repairs));
        self.update_conditions(object, work, &conditions).await?;
        Err(match unanswered {
            true => Error::Unanswered(text),
            false => Error::Blocked(text),
        })
    }

    /// Adds the condition about contested fields, if the Work has it or needs it, and records its
    /// change. Returns when to look again whether they are still contested.
    fn add_field_conflict(
        &self,
        executor: &ClusterExecutor,
        object: &Object,
        work: &EncodedWork,
        conditions: &mut Vec<WorkCondition>,
    ) -> Option<Duration> {
        let (key, now) = (object.meta().key(), Instant::now());
        let was_contested = work
            .condition(FIELD_CONFLICT)
            .is_some_and(|c| c.status == "True");
        let conflicts = executor.repairs.conflicts(&key);
        if conflicts.is_empty() && !was_contested {
            return None;
        }
        let rest = match executor.repairs.quiet(&key, now) {
            RepairQuiet::After(rest) => rest,
            RepairQuiet::Quiet => {
                conditions.push(field_conflict_condition(&[]));
                return None;
            }
            RepairQuiet::Untracked => {
                let objects = work
                    .encoded_manifests()
                    .filter_map(|manifest| Some(self.resolve_target(&manifest).ok()?.object_key()));
                let (objects, generation) = (objects.collect(), object.meta().generation);
                executor.repairs.resume(&key, objects, generation, now)
            }
        };
        if !conflicts.is_empty() {
            let condition = field_conflict_condition(&conflicts);
            if is_changed(&work.conditions, &condition) {
                self.record_field_conflict(object, work, &conflicts);
            }
            conditions.push(condition);
        }
        Some(rest)
    }

    fn record_field_conflict(&self, object: &Object, work: &EncodedWork, conflicts: &[String]) {
        let text = conflicts.join("; ");
        let abouts = work
            .encoded_manifests()
            .map(|manifest| manifest.template_reference());
        for about in abouts.chain([Self::work_reference(object)]) {
            self.recorder.warning(&about, "FieldConflict", text.clone());
        }
    }

    /// Applies every manifest, even after failures. Returns an error only for failures that are
    /// retried without an event.
    async fn apply_manifests(
        &self,
        work: &WorkToApply<'_>,
        manifests: &[EncodedManifest],
    ) -> Result<WorkSyncResult, Error> {
        let (mut result, mut failed) = (WorkSyncResult::default(), Vec::new());
        // They are kept for as long as the Work.
        result.targets.reserve_exact(manifests.len());
        let (mut retry_reason, mut unanswered, mut done) = (None, false, 0);
        let mut objects = FailedObjects::default();
        for manifest in manifests {
            let applied = self.apply_manifest(work, manifest).await;
            unanswered |= matches!(applied, Err(ManifestApplyError::Unanswered(_)));
            match applied {
                Ok(applied) => {
                    done += 1;
                    result.targets.extend(applied.synced);
                    result.wrote |= applied.wrote;
                    result.left_alone.extend(applied.left_alone);
                    let delays = result.repair_delay.into_iter().chain(applied.repair_delay);
                    result.repair_delay = delays.min();
                    if applied.wrote {
                        self.record_template_event(work.cluster, manifest, None);
                    }
                    if let Some(repair) = applied.repair {
                        self.record_repair(work.cluster, manifest, &repair);
                        result.repairs.push(repair);
                    }
                }
                Err(ManifestApplyError::Retryable(reason)) => retry_reason = Some(reason),
                Err(
                    ManifestApplyError::Failed(failure) | ManifestApplyError::Unanswered(failure),
                ) => {
                    self.record_template_event(work.cluster, manifest, Some(&failure.text));
                    let version = self.propagated_generation(work.cluster, manifest);
                    objects.add(&manifest.object_key(), &failure, version.as_deref());
                    failed.push(failure.text);
                }
            }
        }
        if let Some(reason) = retry_reason {
            if failed.is_empty() {
                return Err(Error::Blocked(reason));
            }
            failed.push(reason);
        }
        if !failed.is_empty() {
            let total = manifests.len();
            let mut visited = HashSet::new();
            failed.retain(|reason| visited.insert(reason.clone()));
            let reasons = match failed.as_slice() {
                [one] => one.clone(),
                many => format!("[{}]", many.join(", ")),
            };
            result.failure = Some(WorkSyncFailure {
                text: format!("Failed to apply all manifests ({done}/{total}): {reasons}"),
                reasons,
                unanswered,
                objects,
                repairs: std::mem::take(&mut result.repairs),
            });
        }
        Ok(result)
    }

    /// The template's generation of which a member has the object of a manifest.
    pub(crate) fn propagated_generation(
        &self,
        cluster: &str,
        manifest: &EncodedManifest,
    ) -> Option<String> {
        let mapping = self.rest_mapper.get(&manifest.gvk())?;
        let informer = self.members.find_managed_informer(cluster, &mapping.gvr)?;
        let observed: Object = informer.get(&manifest.namespace, &manifest.name)?;
        observed.annotations().get(TEMPLATE_GENERATION).cloned()
    }

    fn record_template_event(
        &self,
        cluster: &str,
        manifest: &EncodedManifest,
        failure: Option<&str>,
    ) {
        let about = manifest.template_reference();
        let name = format!("{}/{}", about.namespace, about.name);
        match failure {
            None => {
                let text = format!("Successfully applied resource({name}) to cluster {cluster}");
                self.recorder.normal(&about, "SyncSucceed", text);
            }
            Some(reason) => {
                // Unlike above, without a slash for cluster-scoped objects.
                let name = name.trim_start_matches('/');
                let text = format!(
                    "Failed to create or update resource({name}) in member cluster({cluster}): {reason}"
                );
                self.recorder.warning(&about, "SyncFailed", text);
            }
        }
    }
}
