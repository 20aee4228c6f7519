//! Applies the manifests of a Work to its member cluster.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::{Api, EncodedObjectBody, ResourcePath, WriteOptions, ignore_not_found};
use controller_context::{Error, estimate_encoded_tree_bytes};
use flotilla_runtime::{Informer, InvolvedObject, ReconcileAction, ReconcileError, RestMapping};
use machinery::Object;
use openapi::karmada::well_known_keys::CONFLICT_RESOLUTION;
use serde_json::Value;
use tokio::time::Instant;

use crate::cluster_executor::{SyncedObjectVersion, SyncedWorkAndObjectVersions};
use crate::compare::{ComparisonMode, changed, desired_object};
use crate::conditions::{
    APPLIED, DISPATCHING_MESSAGE, SUSPENDED_MESSAGE, applied_condition, dispatching_condition,
    is_changed,
};
use crate::controller::ExecutionController;
use crate::manifest::{EncodedManifest, EncodedWork};
use crate::metrics::EXECUTION_METRICS;

/// Timeout of the first list of a member's objects.
const INITIAL_LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// Failures because of a missing namespace that are retried without an event: the namespace's own
/// Work may be in progress.
const MAX_SILENT_NAMESPACE_ATTEMPTS: u32 = 8;
/// Attempts to write an object that others keep changing, and the delay before the object is read
/// again (`retry.DefaultRetry` of client-go, as in Karmada).
const MAX_CONFLICT_ATTEMPTS: u32 = 5;
const CONFLICT_RETRY_DELAY: Duration = Duration::from_millis(10);
/// A comparison has a tree of the manifest and one of the observed object, and a pruned copy
/// of each.
const COPIES: usize = 2;

/// A manifest and the resource that it is applied to.
pub(crate) struct MappedManifest<'a> {
    pub(crate) mapping: Arc<RestMapping>,
    pub(crate) manifest: &'a EncodedManifest,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl<'a> MappedManifest<'a> {
    pub(crate) fn new(mapping: Arc<RestMapping>, manifest: &'a EncodedManifest) -> Self {
        Self {
            mapping,
            manifest,
            namespace: &manifest.namespace,
            name: &manifest.name,
        }
    }
}

/// What becomes of an object that a member has.
pub(crate) enum MemberObjectDecision {
    Nothing,
    Write(EncodedObjectBody),
    /// Somebody else's object: not ours to change.
    Foreign,
}

/// The result of applying the manifests of a Work.
#[derive(Default)]
struct WorkSyncResult {
    targets: Vec<SyncedObjectVersion>,
    wrote: bool,
    failure: Option<WorkSyncFailure>,
}

/// The condition's message about manifests that are not applied, and the reasons alone.
struct WorkSyncFailure {
    text: String,
    reasons: String,
    /// Whether the member did not answer for one of them.
    unanswered: bool,
}

/// A manifest that is being applied.
struct ManifestApplyAttempt<'a> {
    cluster: &'a str,
    api: &'a dyn Api,
    target: &'a MappedManifest<'a>,
    comparison_mode: ComparisonMode,
    /// How often its Work has failed before.
    attempt: u32,
}

impl ManifestApplyAttempt<'_> {
    fn count_create(&self, success: bool) {
        let again = self.comparison_mode == ComparisonMode::Subset;
        EXECUTION_METRICS.record_create(
            success,
            self.target.mapping.api_version_and_kind(),
            self.cluster,
            again,
        );
    }

    fn count_update(&self, success: bool, wrote: bool) {
        EXECUTION_METRICS.record_update(
            success,
            self.target.mapping.api_version_and_kind(),
            self.cluster,
            wrote,
        );
    }
}

/// The result of one write of a manifest.
enum ManifestWriteOutcome {
    Written(Object),
    /// The object was up to date before.
    Unchanged(Object),
    /// The member rejected the write, because the object has changed or no longer exists.
    Outdated(Option<Object>, client::Error),
}

/// Why a manifest is not applied.
pub(crate) enum ManifestApplyError {
    /// Retried without an event: what is missing may be about to be created.
    Retryable(String),
    Failed(String),
    /// The member did not answer.
    Unanswered(String),
}

impl ManifestApplyError {
    fn from_client_error(e: &client::Error) -> Self {
        match e {
            // The message of a timed-out call is our own text.
            client::Error::Protocol(text) => Self::Failed(text.clone()),
            e if e.is_unanswered() => Self::Unanswered(e.to_string()),
            e => Self::Failed(e.to_string()),
        }
    }
}

impl ExecutionController {
    pub(crate) async fn apply_work(
        &self,
        cluster: &str,
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
        if suspended {
            self.update_conditions(object, work, &[dispatch]).await?;
            return Ok(ReconcileAction::Done);
        }
        let current = work.condition(APPLIED);
        let generation = object.meta().generation;
        let was_applied =
            current.is_some_and(|c| c.status == "True" && c.observed_generation == generation);
        let ready = self
            .clusters
            .get(cluster)
            .is_some_and(|c| c.cluster.is_ready());
        if !ready {
            // The Applied condition stays as it is: the Work waits for the cluster.
            self.update_conditions(object, work, &[dispatch]).await?;
            return Ok(ReconcileAction::Done);
        }
        let equality = if was_applied || self.synced_work(object).is_some() {
            ComparisonMode::Subset
        } else {
            ComparisonMode::Exact
        };
        let began = Instant::now();
        let made = self
            .apply_manifests(cluster, &work.manifests, equality, attempt)
            .await;
        let succeeded = made.as_ref().is_ok_and(|made| made.failure.is_none());
        EXECUTION_METRICS
            .sync_workload_outcomes
            .observe(began.elapsed(), succeeded);
        let made = made?;
        let key = object.meta().key();
        if let Some(failure) = made.failure {
            let WorkSyncFailure { text, reasons, .. } = failure;
            let message =
                format!("Failed to sync work({key}) to cluster({cluster}), err: {reasons}");
            let about = Self::work_reference(object);
            self.recorder.warning(&about, "SyncFailed", message);
            self.invalidate_synced(object);
            let conditions = [dispatch, applied_condition(Err(text.clone()))];
            self.update_conditions(object, work, &conditions).await?;
            return Err(match failure.unanswered {
                true => Error::Unanswered(text),
                false => Error::Blocked(text),
            });
        }
        if made.wrote {
            let text = format!("Sync work({key}) to cluster({cluster}) successful.");
            let about = Self::work_reference(object);
            self.recorder.normal(&about, "SyncSucceed", text);
        }
        self.update_conditions(object, work, &[dispatch, applied_condition(Ok(()))])
            .await?;
        let synced_versions = SyncedWorkAndObjectVersions {
            uid: object.uid().to_owned(),
            generation,
            objects: made.targets,
        };
        self.record_synced(object, synced_versions);
        Ok(ReconcileAction::Done)
    }

    /// Applies every manifest, even after failures. Returns an error only for failures that are
    /// retried without an event.
    async fn apply_manifests(
        &self,
        cluster: &str,
        manifests: &[Bytes],
        equality: ComparisonMode,
        attempt: u32,
    ) -> Result<WorkSyncResult, Error> {
        let (mut made, mut failed) = (WorkSyncResult::default(), Vec::new());
        // They are kept for as long as the Work.
        made.targets.reserve_exact(manifests.len());
        let (mut awaited, mut unanswered) = (None, false);
        for manifest in manifests {
            let manifest = &EncodedManifest::new(manifest.clone());
            let applied = self.apply_manifest(cluster, manifest, equality, attempt);
            let applied = applied.await;
            unanswered |= matches!(applied, Err(ManifestApplyError::Unanswered(_)));
            match applied {
                Ok((target, wrote)) => {
                    made.targets.push(target);
                    made.wrote |= wrote;
                    if wrote {
                        self.record_template_event(cluster, manifest, None);
                    }
                }
                Err(ManifestApplyError::Retryable(why)) => awaited = Some(why),
                Err(ManifestApplyError::Failed(why) | ManifestApplyError::Unanswered(why)) => {
                    self.record_template_event(cluster, manifest, Some(&why));
                    failed.push(why);
                }
            }
        }
        if let Some(why) = awaited {
            if failed.is_empty() {
                return Err(Error::Blocked(why));
            }
            failed.push(why);
        }
        if !failed.is_empty() {
            let (done, total) = (made.targets.len(), manifests.len());
            let mut visited = HashSet::new();
            failed.retain(|why| visited.insert(why.clone()));
            let reasons = match failed.as_slice() {
                [one] => one.clone(),
                many => format!("[{}]", many.join(", ")),
            };
            made.failure = Some(WorkSyncFailure {
                text: format!("Failed to apply all manifests ({done}/{total}): {reasons}"),
                reasons,
                unanswered,
            });
        }
        Ok(made)
    }

    /// Creates or updates one object in the member cluster. Returns the synced version of the
    /// object, and whether the object was written.
    async fn apply_manifest(
        &self,
        cluster: &str,
        manifest: &EncodedManifest,
        equality: ComparisonMode,
        attempt: u32,
    ) -> Result<(SyncedObjectVersion, bool), ManifestApplyError> {
        let place = self
            .resolve_target(manifest)
            .map_err(ManifestApplyError::Failed)?;
        let (resource, namespace) = (&place.mapping.gvr, place.namespace);
        self.idle_informers.record_kind(&place.mapping);
        let informer = self
            .members
            .managed_informer(cluster, resource)
            .map_err(ManifestApplyError::Failed)?;
        wait_for_initial_list(&informer)
            .await
            .map_err(ManifestApplyError::Failed)?;
        let api = self
            .members
            .api(cluster)
            .map_err(ManifestApplyError::Failed)?;
        let target = |revision| SyncedObjectVersion {
            resource: resource.clone(),
            namespace: namespace.to_owned(),
            name: place.name.to_owned(),
            revision,
        };
        let observed = informer.get(namespace, place.name);
        let manifest = ManifestApplyAttempt {
            cluster,
            api: &*api,
            target: &place,
            comparison_mode: equality,
            attempt,
        };
        let (object, wrote) = self.create_or_update(&manifest, observed).await?;
        Ok((target(object.revision()), wrote))
    }

    /// Writes an object until the member has what it should have, or refuses. The object as
    /// the member has it, and whether it was written.
    async fn create_or_update(
        &self,
        of: &ManifestApplyAttempt<'_>,
        mut observed: Option<Object>,
    ) -> Result<(Object, bool), ManifestApplyError> {
        let mut lost = 0;
        loop {
            let known = observed.take();
            let was_known = known.is_some();
            let tried = match known {
                Some(known) => self.update_object(of, known).await?,
                None => self.create_object(of).await?,
            };
            let (now, refused) = match tried {
                ManifestWriteOutcome::Written(written) => return Ok((written, true)),
                ManifestWriteOutcome::Unchanged(object) => return Ok((object, false)),
                ManifestWriteOutcome::Outdated(now, refused) => (now, refused),
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
                    return Err(ManifestApplyError::from_client_error(&refused));
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
        let options = WriteOptions::default();
        let at = ResourcePath::collection(resource, namespace);
        let created = of
            .api
            .create(at, of.target.manifest.body().into(), &options);
        let refused = match self.with_call_timeout(created).await {
            Ok(created) => {
                of.count_create(true);
                return Ok(ManifestWriteOutcome::Written(created));
            }
            Err(e) => e,
        };
        if refused.is_already_exists() {
            return self.read_outdated(of, refused).await;
        }
        if may_exist(&refused) {
            let at = ResourcePath::object(resource, namespace, of.target.name);
            let found = self.with_call_timeout(of.api.get(at)).await.ok();
            // The admission of quotas refuses creates that race with a conflict.
            if found.is_some() || refused.is_conflict() {
                return Ok(ManifestWriteOutcome::Outdated(found, refused));
            }
        }
        of.count_create(false);
        if refused.is_not_found()
            && !namespace.is_empty()
            && of.attempt < MAX_SILENT_NAMESPACE_ATTEMPTS
        {
            return Err(ManifestApplyError::Retryable(refused.to_string()));
        }
        Err(ManifestApplyError::from_client_error(&refused))
    }

    /// Changes an object that the member has.
    async fn update_object(
        &self,
        of: &ManifestApplyAttempt<'_>,
        observed: Object,
    ) -> Result<ManifestWriteOutcome, ManifestApplyError> {
        let outcome = self.compare_and_update(of, observed).await;
        match &outcome {
            Ok(ManifestWriteOutcome::Outdated(..)) => {}
            Ok(ManifestWriteOutcome::Written(_)) => of.count_update(true, true),
            Ok(ManifestWriteOutcome::Unchanged(_)) => of.count_update(true, false),
            Err(_) => of.count_update(false, false),
        }
        outcome
    }

    async fn compare_and_update(
        &self,
        of: &ManifestApplyAttempt<'_>,
        observed: Object,
    ) -> Result<ManifestWriteOutcome, ManifestApplyError> {
        let (place, cluster) = (of.target, of.cluster);
        let kind = &place.mapping.gvk;
        let decided = self
            .decide_update(place, |_| (), &observed, of.comparison_mode)
            .await;
        let body = match decided.map_err(ManifestApplyError::Failed)? {
            MemberObjectDecision::Nothing => return Ok(ManifestWriteOutcome::Unchanged(observed)),
            MemberObjectDecision::Foreign => {
                return Err(ManifestApplyError::Failed(format!(
                    "resource(kind={}, {}/{}) already exists in the cluster {cluster} and the {CONFLICT_RESOLUTION} strategy value is empty, Karmada will not manage this resource",
                    kind.kind, place.namespace, place.name
                )));
            }
            MemberObjectDecision::Write(body) => body,
        };
        // The informer may have a newer one by the time the member answers.
        drop(observed);
        let at = ResourcePath::object(&place.mapping.gvr, place.namespace, place.name);
        let options = WriteOptions::default();
        match self
            .with_call_timeout(of.api.update(at, body.into(), &options))
            .await
        {
            Ok(written) => Ok(ManifestWriteOutcome::Written(written)),
            Err(refused) if refused.is_not_found() => {
                Ok(ManifestWriteOutcome::Outdated(None, refused))
            }
            Err(refused) if refused.is_conflict() => self.read_outdated(of, refused).await,
            Err(e) => Err(ManifestApplyError::from_client_error(&e)),
        }
    }

    /// Reads an object whose write the member refused because it is another by now.
    async fn read_outdated(
        &self,
        of: &ManifestApplyAttempt<'_>,
        refused: client::Error,
    ) -> Result<ManifestWriteOutcome, ManifestApplyError> {
        let at = ResourcePath::object(&of.target.mapping.gvr, of.target.namespace, of.target.name);
        let found = ignore_not_found(self.with_call_timeout(of.api.get(at)).await);
        let observed = found.map_err(|e| ManifestApplyError::from_client_error(&e))?;
        Ok(ManifestWriteOutcome::Outdated(observed, refused))
    }

    /// Compares a manifest, as `change` leaves it, with the object that a member has. The
    /// trees that this takes, and the memory reserved for them, are given back before the
    /// member is written to, so that one that hangs keeps nobody waiting. A webhook that is
    /// asked what to retain holds them until its time limit.
    pub(crate) async fn decide_update(
        &self,
        place: &MappedManifest<'_>,
        change: fn(&mut Value),
        observed: &Object,
        equality: ComparisonMode,
    ) -> Result<MemberObjectDecision, String> {
        let manifest = place.manifest;
        let bytes = estimate_encoded_tree_bytes(manifest.bytes())
            + estimate_encoded_tree_bytes(observed.bytes());
        let _memory = self.memory.reserve(bytes, COPIES).await;
        let observed = observed.value().map_err(|e| e.to_string())?;
        let mut tree = manifest.tree().map_err(|e| e.to_string())?;
        change(&mut tree);
        let Some(desired) = desired_object(tree, &observed) else {
            return Ok(MemberObjectDecision::Foreign);
        };
        let kind = &place.mapping.gvk;
        let retained = self.interpreter.retain(kind, desired, &observed).await;
        let retained = retained.map_err(|e| e.to_string())?;
        let Some(object) = changed(retained, &observed, equality) else {
            return Ok(MemberObjectDecision::Nothing);
        };
        let body = manifest.encode(&object).map_err(|e| e.to_string())?;
        Ok(MemberObjectDecision::Write(body))
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
                let text = format!("the cluster did not answer within {seconds} s");
                Err(client::Error::Protocol(text))
            }
        }
    }

    fn record_template_event(
        &self,
        cluster: &str,
        manifest: &EncodedManifest,
        failure: Option<&str>,
    ) {
        let about = InvolvedObject {
            api_version: manifest.api_version.clone(),
            kind: manifest.kind.clone(),
            namespace: manifest.namespace.clone(),
            name: manifest.name.clone(),
            uid: manifest.template_uid(),
            resource_version: String::new(),
        };
        let name = format!("{}/{}", about.namespace, about.name);
        match failure {
            None => {
                let text = format!("Successfully applied resource({name}) to cluster {cluster}");
                self.recorder.normal(&about, "SyncSucceed", text);
            }
            Some(why) => {
                // Unlike above, without a slash for cluster-scoped objects.
                let name = name.trim_start_matches('/');
                let text = format!(
                    "Failed to create or update resource({name}) in member cluster({cluster}): {why}"
                );
                self.recorder.warning(&about, "SyncFailed", text);
            }
        }
    }
}

/// Whether the object may exist although its create was rejected. Every rejection may come before
/// the API server compares the name, except those for a missing namespace, credentials or load.
fn may_exist(refused: &client::Error) -> bool {
    let status = refused.status();
    status.is_some_and(|status| !matches!(status.code, 401 | 404 | 429))
}

/// Waits until the informer of a member's objects has synced: before that its cache is incomplete.
/// Does not wait for a list that fails.
async fn wait_for_initial_list(informer: &Informer) -> Result<(), String> {
    if informer.has_synced() {
        return Ok(());
    }
    if informer.last_error().is_none() {
        let first = tokio::time::timeout(INITIAL_LIST_TIMEOUT, informer.wait_for_cache_sync());
        if first.await.is_ok() {
            return Ok(());
        }
    }
    let why = informer.last_error();
    let why = why.unwrap_or_else(|| "no answer yet".to_owned());
    Err(format!("cannot list {}: {why}", informer.resource()))
}
