//! Applies one manifest of a Work to its member cluster: creates the object, or changes what differs.

use std::time::Duration;

use client::{Api, ResourcePath, WriteOptions, ignore_not_found};
use flotilla_runtime::ReconcileError;
use karmada_api::history::DriftRepair;
use karmada_api::well_known_keys::{CONFLICT_RESOLUTION, LEFT_ALONE_VALUE};
use machinery::Object;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cluster_executor::{ClusterExecutor, SyncedObjectVersion};
use crate::compare::UpdateMode;
use crate::controller::ExecutionController;
use crate::drift_repair::deletion_repair;
use crate::field_managers::FieldManagers;
use crate::initial_list::wait_for_initial_list;
use crate::manifest::{EncodedManifest, MappedManifest, content_hash};
use crate::member_update::{
    FieldOwnership, MemberObjectDecision, MemberObjectWrite, left_alone_label,
};
use crate::metrics::EXECUTION_METRICS;
use crate::propagation::{
    MemberOperation, PropagationFailure, PropagationReason, TIMEOUT_MESSAGE, is_timeout,
};
use crate::protected_object::ProtectedObject;
use crate::repair_backoff::RepairTiming;

/// Failures because of a missing namespace that are retried without an event: the namespace's own
/// Work may be in progress.
const MAX_SILENT_NAMESPACE_ATTEMPTS: u32 = 8;
/// Attempts to write an object that others keep changing, and the delay before the object is read
/// again (`retry.DefaultRetry` of client-go, as in Karmada).
const MAX_CONFLICT_ATTEMPTS: u32 = 5;
const CONFLICT_RETRY_DELAY: Duration = Duration::from_millis(10);
/// The Work whose manifest is applied.
pub(crate) struct WorkToApply<'a> {
    pub(crate) cluster: &'a str,
    pub(crate) executor: &'a ClusterExecutor,
    /// `namespace/name`.
    pub(crate) key: &'a str,
    pub(crate) generation: i64,
    pub(crate) mode: UpdateMode,
    /// How often the Work has failed before.
    pub(crate) attempt: u32,
    /// The fields in which overrides win over what the member retains.
    pub(crate) overridden_fields: &'a [String],
    /// The objects as they were when the Work was applied last.
    pub(crate) last_synced: &'a [SyncedObjectVersion],
}

impl WorkToApply<'_> {
    /// Whether a write repairs what was written before, and therefore may have to wait.
    fn repairs(&self) -> bool {
        self.mode == UpdateMode::Repair || self.attempt > 0
    }
}

/// A manifest that is being applied.
struct ManifestApplyAttempt<'a> {
    work: &'a WorkToApply<'a>,
    api: &'a dyn Api,
    target: &'a MappedManifest<'a>,
    /// The content of the object as the last write left it, if all of it was written here.
    last_written: Option<u64>,
    /// The drift that the next write of the object repairs.
    repair: Mutex<Option<DriftRepair>>,
}

/// The outcome for a manifest that was applied.
pub(crate) struct AppliedManifest {
    /// `None` while a repair waits.
    pub(crate) synced: Option<SyncedObjectVersion>,
    pub(crate) wrote: bool,
    /// How long a repair waits.
    pub(crate) repair_delay: Option<Duration>,
    /// Why the object is left alone, if the member says so.
    pub(crate) left_alone: Option<String>,
    /// The drift that the write repaired.
    pub(crate) repair: Option<DriftRepair>,
}

impl ManifestApplyAttempt<'_> {
    /// The state of the object after an outcome; an outdated one is a failure.
    fn applied_manifest(
        &self,
        outcome: ManifestWriteOutcome,
    ) -> Result<AppliedManifest, ManifestApplyError> {
        let mut left_alone = None;
        let (object, wrote, written_content) = match outcome {
            ManifestWriteOutcome::Written(object, content) => (object, true, content),
            ManifestWriteOutcome::Unchanged(object) => (object, false, self.last_written),
            ManifestWriteOutcome::LeftAlone(object, label) => {
                left_alone = Some(format!(
                    "{} has the label {label}={LEFT_ALONE_VALUE} in the cluster",
                    self.object_key()
                ));
                (object, false, None)
            }
            ManifestWriteOutcome::Delayed(delay) => {
                return Ok(AppliedManifest {
                    synced: None,
                    wrote: false,
                    repair_delay: Some(delay),
                    left_alone: None,
                    repair: None,
                });
            }
            ManifestWriteOutcome::Outdated(_, rejection) => {
                return Err(ManifestApplyError::from_client_error(
                    MemberOperation::Update,
                    &rejection,
                ));
            }
        };
        let synced = SyncedObjectVersion {
            resource: self.target.mapping.gvr.clone(),
            namespace: self.target.namespace.to_owned(),
            name: self.target.name.to_owned(),
            revision: object.revision(),
            written_content,
        };
        Ok(AppliedManifest {
            synced: Some(synced),
            wrote,
            repair_delay: None,
            left_alone,
            repair: self.repair.lock().take().filter(|_| wrote),
        })
    }

    fn count_create(&self, success: bool) {
        let again = self.work.mode == UpdateMode::Repair;
        EXECUTION_METRICS.record_create(
            success,
            self.target.mapping.api_version_and_kind(),
            self.work.cluster,
            again,
        );
    }

    fn count_update(&self, success: bool, wrote: bool) {
        EXECUTION_METRICS.record_update(
            success,
            self.target.mapping.api_version_and_kind(),
            self.work.cluster,
            wrote,
        );
    }

    fn path(&self) -> ResourcePath<'_> {
        ResourcePath::object(
            &self.target.mapping.gvr,
            self.target.namespace,
            self.target.name,
        )
    }

    /// The name of the object among those of the Work.
    fn object_key(&self) -> String {
        self.target.object_key()
    }

    fn timing(&self) -> RepairTiming {
        if !self.work.repairs() {
            return RepairTiming::Now;
        }
        let (work, backoff) = (self.work, &self.work.executor.repairs);
        backoff.timing(
            work.key,
            &self.object_key(),
            work.generation,
            Instant::now(),
        )
    }

    fn record_write(&self) {
        if self.work.repairs() {
            let (work, backoff) = (self.work, &self.work.executor.repairs);
            backoff.record(
                work.key,
                &self.object_key(),
                work.generation,
                Instant::now(),
            );
        }
    }

    fn ownership(&self, observed: &Object) -> FieldOwnership {
        match self.work.mode {
            UpdateMode::Repair | UpdateMode::Release => FieldOwnership::Kept,
            UpdateMode::Edit if self.last_written == Some(content_hash(observed)) => {
                FieldOwnership::Own
            }
            UpdateMode::Edit => FieldOwnership::Unknown,
        }
    }

    fn foreign_object_error(&self) -> ManifestApplyError {
        let (cluster, target) = (self.work.cluster, self.target);
        ManifestApplyError::failed(PropagationReason::AlreadyExists)(format!(
            "resource(kind={}, {}/{}) already exists in the cluster {cluster} and the {CONFLICT_RESOLUTION} strategy value is empty, Karmada will not manage this resource",
            target.mapping.kind(),
            target.namespace,
            target.name
        ))
    }
}

/// The result of one write of a manifest.
enum ManifestWriteOutcome {
    /// The object, and its content if all of it was written here.
    Written(Object, Option<u64>),
    /// The object was up to date before.
    Unchanged(Object),
    /// A label of the object keeps this control plane from changing it.
    LeftAlone(Object, &'static str),
    /// A repair waits this long.
    Delayed(Duration),
    /// The member rejected the write, because the object has changed or no longer exists.
    Outdated(Option<Object>, client::Error),
}

/// Why a manifest is not applied.
pub(crate) enum ManifestApplyError {
    /// Retried without an event: what is missing may be about to be created.
    Retryable(String),
    Failed(PropagationFailure),
    /// The member did not answer.
    Unanswered(PropagationFailure),
}

impl ManifestApplyError {
    fn failed(reason: PropagationReason) -> impl FnOnce(String) -> Self {
        move |text| Self::Failed(PropagationFailure { reason, text })
    }

    fn from_client_error(operation: MemberOperation, e: &client::Error) -> Self {
        let reason = operation.failure_reason(is_timeout(e));
        match e {
            // The message of a timed-out call is our own text.
            client::Error::Protocol(text) => Self::failed(reason)(text.clone()),
            e if e.is_unanswered() => Self::Unanswered(PropagationFailure {
                reason,
                text: e.to_string(),
            }),
            e => Self::failed(reason)(e.to_string()),
        }
    }
}

impl ExecutionController {
    /// Creates or updates one object in the member cluster.
    pub(crate) async fn apply_manifest(
        &self,
        work: &WorkToApply<'_>,
        manifest: &EncodedManifest,
    ) -> Result<AppliedManifest, ManifestApplyError> {
        let target = self
            .resolve_target(manifest)
            .map_err(ManifestApplyError::failed(PropagationReason::KindNotServed))?;
        let (resource, namespace) = (&target.mapping.gvr, target.namespace);
        self.idle_informers.record_kind(&target.mapping);
        let informer = self
            .members
            .managed_informer(work.cluster, resource)
            .map_err(ManifestApplyError::failed(
                PropagationReason::ClientRetrievalFailed,
            ))?;
        wait_for_initial_list(&informer)
            .await
            .map_err(ManifestApplyError::failed(
                PropagationReason::CachedRetrievalFailed,
            ))?;
        let api = self
            .members
            .api(work.cluster)
            .map_err(ManifestApplyError::failed(
                PropagationReason::ClientRetrievalFailed,
            ))?;
        let is_target = |synced: &&SyncedObjectVersion| {
            synced.resource == *resource
                && synced.namespace == namespace
                && synced.name == target.name
        };
        let last = work.last_synced.iter().find(is_target);
        let attempt = ManifestApplyAttempt {
            work,
            api: &*api,
            target: &target,
            last_written: last.and_then(|synced| synced.written_content),
            repair: Mutex::default(),
        };
        let observed = informer.get(namespace, target.name);
        let outcome = self.create_or_update(&attempt, observed).await?;
        attempt.applied_manifest(outcome)
    }

    /// Writes an object until the member has what it should have, or refuses. The outcome is
    /// Outdated only after too many conflicts.
    async fn create_or_update(
        &self,
        of: &ManifestApplyAttempt<'_>,
        mut observed: Option<Object>,
    ) -> Result<ManifestWriteOutcome, ManifestApplyError> {
        let mut lost = 0;
        loop {
            let cached = observed.take();
            let was_known = cached.is_some();
            let outcome = match cached {
                Some(cached) => self.update_object(of, cached).await?,
                None => self.create_object(of).await?,
            };
            let ManifestWriteOutcome::Outdated(now, rejection) = outcome else {
                return Ok(outcome);
            };
            // An object that a create has revealed is no lost race.
            if was_known || now.is_none() {
                lost += 1;
                if lost == MAX_CONFLICT_ATTEMPTS {
                    if was_known {
                        of.count_update(false, false);
                    } else {
                        of.count_create(false);
                    }
                    return Ok(ManifestWriteOutcome::Outdated(None, rejection));
                }
                tokio::time::sleep(CONFLICT_RETRY_DELAY).await;
            }
            observed = now;
        }
    }

    /// Creates an object that the member does not have, as far as its watch tells. The
    /// member may refuse the create before it compares names (ports, admission webhooks,
    /// quotas), so every refusal is followed by a question for the object.
    async fn create_object(
        &self,
        of: &ManifestApplyAttempt<'_>,
    ) -> Result<ManifestWriteOutcome, ManifestApplyError> {
        let (resource, namespace) = (&of.target.mapping.gvr, of.target.namespace);
        if let RepairTiming::After { delay, unexplained } = of.timing() {
            if unexplained {
                let text = format!("{}: is deleted after each repair", of.object_key());
                let backoff = &of.work.executor.repairs;
                backoff.explain(of.work.key, &of.object_key(), text);
            }
            return Ok(ManifestWriteOutcome::Delayed(delay));
        }
        if of.work.mode == UpdateMode::Repair {
            *of.repair.lock() = Some(deletion_repair(of.target));
        }
        let options = WriteOptions::default();
        let at = ResourcePath::collection(resource, namespace);
        let created = of
            .api
            .create(at, of.target.manifest.body().into(), &options);
        let rejection = match self.with_call_timeout(created).await {
            Ok(created) => {
                of.count_create(true);
                of.record_write();
                let content = content_hash(&created);
                return Ok(ManifestWriteOutcome::Written(created, Some(content)));
            }
            Err(e) => e,
        };
        if rejection.is_already_exists() {
            return self.read_outdated(of, rejection).await;
        }
        if may_exist(&rejection) {
            let existing = self.with_call_timeout(of.api.get(of.path())).await.ok();
            // The admission of quotas refuses creates that race with a conflict.
            if existing.is_some() || rejection.is_conflict() {
                return Ok(ManifestWriteOutcome::Outdated(existing, rejection));
            }
        }
        of.count_create(false);
        if rejection.is_not_found()
            && !namespace.is_empty()
            && of.work.attempt < MAX_SILENT_NAMESPACE_ATTEMPTS
        {
            return Err(ManifestApplyError::Retryable(rejection.to_string()));
        }
        Err(ManifestApplyError::from_client_error(
            MemberOperation::Create,
            &rejection,
        ))
    }

    /// Changes an object that the member has.
    async fn update_object(
        &self,
        of: &ManifestApplyAttempt<'_>,
        observed: Object,
    ) -> Result<ManifestWriteOutcome, ManifestApplyError> {
        if let Some(protected) = ProtectedObject::of(of.target.manifest, &observed) {
            let text = protected.message(&of.object_key(), of.work.cluster);
            return Err(ManifestApplyError::failed(PropagationReason::AlreadyExists)(text));
        }
        let old = observed.revision();
        let outcome = self.compare_and_update(of, observed).await;
        match &outcome {
            Ok(ManifestWriteOutcome::Outdated(..) | ManifestWriteOutcome::Delayed(_)) => {}
            Ok(ManifestWriteOutcome::Written(new, _)) => {
                of.count_update(true, new.revision() != old);
            }
            Ok(_) => of.count_update(true, false),
            Err(_) => of.count_update(false, false),
        }
        outcome
    }

    async fn compare_and_update(
        &self,
        of: &ManifestApplyAttempt<'_>,
        mut observed: Object,
    ) -> Result<ManifestWriteOutcome, ManifestApplyError> {
        let mut ownership = of.ownership(&observed);
        let write = loop {
            if let Some(label) = left_alone_label(&observed) {
                return Ok(ManifestWriteOutcome::LeftAlone(observed, label));
            }
            let (fields, mode) = (of.work.overridden_fields, of.work.mode);
            let decided =
                self.decide_update(of.target, |_| (), fields, &observed, mode, &ownership);
            match decided.await.map_err(ManifestApplyError::Failed)? {
                MemberObjectDecision::Nothing => {
                    return Ok(ManifestWriteOutcome::Unchanged(observed));
                }
                MemberObjectDecision::Foreign => return Err(of.foreign_object_error()),
                MemberObjectDecision::Write(write) => break write,
                MemberObjectDecision::NeedsFieldManagers => {
                    match self.with_call_timeout(of.api.get(of.path())).await {
                        Ok(current) => observed = current,
                        Err(e) if e.is_not_found() => {
                            return Ok(ManifestWriteOutcome::Outdated(None, e));
                        }
                        Err(e) => {
                            return Err(ManifestApplyError::from_client_error(
                                MemberOperation::Update,
                                &e,
                            ));
                        }
                    }
                    ownership = FieldManagers::from_object(&observed)
                        .map_or(FieldOwnership::Own, FieldOwnership::Managers);
                }
            }
        };
        if let RepairTiming::After { delay, unexplained } = of.timing() {
            if unexplained {
                self.explain_repair(of, &observed).await;
            }
            return Ok(ManifestWriteOutcome::Delayed(delay));
        }
        if of.work.mode == UpdateMode::Repair {
            let fields = of.work.overridden_fields;
            let repair = self.find_drift(of.api, of.target, fields, &observed).await;
            *of.repair.lock() = repair;
        }
        let is_whole = matches!(ownership, FieldOwnership::Own);
        match self.write_update(of, write).await? {
            // The remaining fields may contradict the manifest, such as the other choice of a union.
            ManifestWriteOutcome::Outdated(_, rejection) if is_invalid(&rejection) && !is_whole => {
                self.write_whole(of, &observed, &rejection).await
            }
            outcome => fail_if_invalid(outcome),
        }
    }

    /// Asks the member, once for each repair that waits, which field somebody else sets.
    async fn explain_repair(&self, of: &ManifestApplyAttempt<'_>, observed: &Object) {
        let current = self.with_call_timeout(of.api.get(of.path())).await;
        let current = current.as_ref().unwrap_or(observed);
        let fields = of.work.overridden_fields;
        let contested = self.find_contested_field(of.target, fields, current);
        if let Some(text) = contested.await {
            let backoff = &of.work.executor.repairs;
            backoff.explain(of.work.key, &of.object_key(), text);
        }
    }

    /// Writes the manifest as if nobody else had set a field; without a difference then, what the
    /// member has refused remains the error.
    async fn write_whole(
        &self,
        of: &ManifestApplyAttempt<'_>,
        observed: &Object,
        rejection: &client::Error,
    ) -> Result<ManifestWriteOutcome, ManifestApplyError> {
        let decision = self.decide_update(
            of.target,
            |_| (),
            of.work.overridden_fields,
            observed,
            UpdateMode::Edit,
            &FieldOwnership::Own,
        );
        match decision.await.map_err(ManifestApplyError::Failed)? {
            MemberObjectDecision::Write(write) => {
                fail_if_invalid(self.write_update(of, write).await?)
            }
            _ => Err(ManifestApplyError::from_client_error(
                MemberOperation::Update,
                rejection,
            )),
        }
    }

    async fn write_update(
        &self,
        of: &ManifestApplyAttempt<'_>,
        write: MemberObjectWrite,
    ) -> Result<ManifestWriteOutcome, ManifestApplyError> {
        let options = WriteOptions::default();
        let update = of.api.update(of.path(), write.body.into(), &options);
        match self.with_call_timeout(update).await {
            Ok(written) => {
                of.record_write();
                let content = (!write.keeps_member_fields).then(|| content_hash(&written));
                Ok(ManifestWriteOutcome::Written(written, content))
            }
            Err(rejection) if rejection.is_not_found() || is_invalid(&rejection) => {
                Ok(ManifestWriteOutcome::Outdated(None, rejection))
            }
            Err(rejection) if rejection.is_conflict() => self.read_outdated(of, rejection).await,
            Err(e) => Err(ManifestApplyError::from_client_error(
                MemberOperation::Update,
                &e,
            )),
        }
    }

    /// Reads an object whose write the member refused because it is another by now.
    async fn read_outdated(
        &self,
        of: &ManifestApplyAttempt<'_>,
        rejection: client::Error,
    ) -> Result<ManifestWriteOutcome, ManifestApplyError> {
        let newest = ignore_not_found(self.with_call_timeout(of.api.get(of.path())).await);
        let observed = newest
            .map_err(|e| ManifestApplyError::from_client_error(MemberOperation::Update, &e))?;
        Ok(ManifestWriteOutcome::Outdated(observed, rejection))
    }

    /// Where a manifest goes.
    pub(crate) fn resolve_target<'a>(
        &self,
        manifest: &'a EncodedManifest,
    ) -> Result<MappedManifest<'a>, String> {
        let kind = manifest.gvk();
        match self.rest_mapper.get(&kind) {
            Some(served) => Ok(MappedManifest::new(served, manifest)),
            None => Err(format!(
                "no matches for kind {:?} in version {:?}",
                kind.kind,
                kind.api_version()
            )),
        }
    }

    /// Calls a member with a timeout.
    pub(crate) async fn with_call_timeout<T>(
        &self,
        call: impl Future<Output = client::Result<T>>,
    ) -> client::Result<T> {
        match tokio::time::timeout(self.call_timeout, call).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let seconds = self.call_timeout.as_secs();
                let text = format!("{TIMEOUT_MESSAGE} {seconds} s");
                Err(client::Error::Protocol(text))
            }
        }
    }
}

fn is_invalid(error: &client::Error) -> bool {
    error.status().is_some_and(|status| status.code == 422)
}

/// An update that the member calls invalid is not tried again.
fn fail_if_invalid(
    outcome: ManifestWriteOutcome,
) -> Result<ManifestWriteOutcome, ManifestApplyError> {
    match outcome {
        ManifestWriteOutcome::Outdated(_, rejection) if is_invalid(&rejection) => Err(
            ManifestApplyError::from_client_error(MemberOperation::Update, &rejection),
        ),
        outcome => Ok(outcome),
    }
}

/// Whether the object may exist although its create was rejected. Every rejection may come before
/// the API server compares the name, except those for a missing namespace, credentials or load.
fn may_exist(error: &client::Error) -> bool {
    let status = error.status();
    status.is_some_and(|status| !matches!(status.code, 401 | 404 | 429))
}
