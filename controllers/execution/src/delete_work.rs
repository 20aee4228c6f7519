//! Deletes or releases the objects in a member when their Work is deleted.

use std::sync::Arc;
use std::time::Duration;

use client::{
    Api, DeleteOptions, DeletionPropagation, ResourcePath, WriteOptions, ignore_not_found,
};
use controller_context::Error;
use flotilla_runtime::{ReconcileAction, RestMapping, remove_finalizers};
use karmada_api::resources::WORKS;
use karmada_api::rollout::JOB_OF;
use karmada_api::well_known_keys::{
    BINDING_ID, BINDING_NAME, BINDING_NAMESPACE, CLUSTER_BINDING_ID, CLUSTER_BINDING_NAME,
    CLUSTER_POLICY_ID, CLUSTER_POLICY_NAME, MANAGED, MANAGED_ANNOTATIONS, MANAGED_LABELS,
    MANAGED_VALUE, POLICY_ID, POLICY_NAME, POLICY_NAMESPACE, REMOVAL_AWAITED_BY,
    TEMPLATE_GENERATION, TEMPLATE_UID, WORK_FINALIZER, WORK_ID, WORK_NAME, WORK_NAMESPACE,
};
use machinery::Object;
use serde_json::Value;

use crate::compare::UpdateMode;
use crate::controller::ExecutionController;
use crate::manifest::{EncodedManifest, EncodedWork, MappedManifest};
use crate::member_update::{FieldOwnership, MemberObjectDecision, left_alone_label};
use crate::metrics::EXECUTION_METRICS;
use crate::propagation::{PropagationReason, waiting_condition};
use crate::protected_object::ProtectedObject;

/// How often a member is asked whether an object is gone whose end a template waits for. Its watch
/// usually says so earlier.
const REMOVAL_CHECK_INTERVAL: Duration = Duration::from_secs(5);

const KARMADA_LABELS: [&str; 6] = [
    BINDING_ID,
    CLUSTER_BINDING_ID,
    WORK_ID,
    MANAGED,
    POLICY_ID,
    CLUSTER_POLICY_ID,
];
const KARMADA_ANNOTATIONS: [&str; 12] = [
    MANAGED_ANNOTATIONS,
    MANAGED_LABELS,
    BINDING_NAMESPACE,
    BINDING_NAME,
    CLUSTER_BINDING_NAME,
    TEMPLATE_UID,
    TEMPLATE_GENERATION,
    WORK_NAME,
    WORK_NAMESPACE,
    POLICY_NAMESPACE,
    POLICY_NAME,
    CLUSTER_POLICY_NAME,
];

impl ExecutionController {
    /// Deletes the member's objects, or releases them, and then removes the Work's finalizer.
    pub(crate) async fn delete_work(
        &self,
        cluster: &str,
        object: &Object,
        work: &EncodedWork,
    ) -> Result<ReconcileAction, Error> {
        if !work.finalizers.iter().any(|f| f == WORK_FINALIZER) {
            return Ok(ReconcileAction::Done);
        }
        let is_awaited = object.meta().label(REMOVAL_AWAITED_BY).is_some();
        // Nothing can be deleted in a cluster that no longer exists.
        if let Some(listed) = self.clusters.get(cluster) {
            if listed.cluster.is_ready() {
                let mut remaining = Vec::new();
                for manifest in &work.manifests {
                    let manifest = EncodedManifest::new(manifest.clone());
                    let Some(target) = self.resolve_deletion_target(cluster, &manifest).await?
                    else {
                        continue;
                    };
                    if work.preserve_resources_on_deletion {
                        self.preserve_object(cluster, &target).await?;
                    } else {
                        self.delete_object(cluster, &target).await?;
                        if is_awaited && self.is_being_removed(cluster, &target).await? {
                            remaining.push(target.object_key());
                        }
                    }
                }
                if !remaining.is_empty() {
                    let message = format!("{} is being deleted", remaining.join(", "));
                    let reason = PropagationReason::WaitingForRemoval;
                    let condition = waiting_condition(reason, message);
                    self.update_conditions(object, work, &[condition]).await?;
                    return Ok(ReconcileAction::RequeueAfter(REMOVAL_CHECK_INTERVAL));
                }
            } else if !listed.is_terminating() {
                // Reconciled again when the cluster becomes ready or is deleted.
                let message = format!("cluster {cluster} is not Ready");
                let condition = waiting_condition(PropagationReason::WaitingForRemoval, message);
                self.update_conditions(object, work, &[condition]).await?;
                return Ok(ReconcileAction::Done);
            }
        }
        remove_finalizers(&*self.control_plane, &WORKS, object, &[WORK_FINALIZER]).await?;
        Ok(ReconcileAction::Done)
    }

    /// The resource of a manifest. If the control plane does not serve its kind, asks the member
    /// for it; `None`: the member does not serve it either.
    async fn resolve_deletion_target<'a>(
        &self,
        cluster: &str,
        manifest: &'a EncodedManifest,
    ) -> Result<Option<MappedManifest<'a>>, Error> {
        if let Ok(target) = self.resolve_target(manifest) {
            return Ok(Some(target));
        }
        let discovered = self
            .with_call_timeout(self.api(cluster)?.discover())
            .await?;
        let kind = manifest.gvk();
        let version = kind.api_version();
        let mut served = discovered
            .resources
            .iter()
            .map(RestMapping::from_api_resource);
        if let Some(served) = served.find(|served| served.gvk == kind) {
            return Ok(Some(MappedManifest::new(Arc::new(served), manifest)));
        }
        match discovered
            .failed_group_versions
            .iter()
            .find(|(failed, _)| *failed == version)
        {
            Some((_, reason)) => Err(Error::Blocked(format!(
                "the kinds of {version} in cluster {cluster} cannot be read: {reason}"
            ))),
            None => Ok(None),
        }
    }

    async fn get_observed(
        &self,
        cluster: &str,
        target: &MappedManifest<'_>,
    ) -> Result<Option<Object>, Error> {
        // No informer is started for an object that is about to be deleted.
        let informer = self
            .members
            .find_managed_informer(cluster, &target.mapping.gvr);
        let synced = informer.filter(|i| i.has_synced());
        if let Some(object) = synced.and_then(|i| i.get(target.namespace, target.name)) {
            return Ok(Some(object));
        }
        // An object that was just created may not be in the informer yet; deletions are rare enough
        // for a GET.
        let api = self.api(cluster)?;
        let at = ResourcePath::object(&target.mapping.gvr, target.namespace, target.name);
        Ok(ignore_not_found(self.with_call_timeout(api.get(at)).await)?)
    }

    fn api(&self, cluster: &str) -> Result<Arc<dyn Api>, Error> {
        self.members.api(cluster).map_err(Error::Blocked)
    }

    async fn delete_object(&self, cluster: &str, target: &MappedManifest<'_>) -> Result<(), Error> {
        let Some(observed) = self.get_observed(cluster, target).await? else {
            return Ok(());
        };
        let Some(options) = delete_options(target.manifest, &observed) else {
            return Ok(());
        };
        let api = self.api(cluster)?;
        let at = ResourcePath::object(&target.mapping.gvr, target.namespace, target.name);
        let outcome = ignore_not_found(self.with_call_timeout(api.delete(at, &options)).await);
        EXECUTION_METRICS.record_delete(
            outcome.is_ok(),
            target.mapping.api_version_and_kind(),
            cluster,
        );
        outcome?;
        Ok(())
    }

    /// Whether the member still has the managed object, as it does while others hold finalizers.
    async fn is_being_removed(
        &self,
        cluster: &str,
        target: &MappedManifest<'_>,
    ) -> Result<bool, Error> {
        let api = self.api(cluster)?;
        let at = ResourcePath::object(&target.mapping.gvr, target.namespace, target.name);
        let current = ignore_not_found(self.with_call_timeout(api.get(at)).await)?;
        Ok(current.is_some_and(|current| {
            let head = current.meta();
            head.deleting && head.label(MANAGED) == Some(MANAGED_VALUE)
        }))
    }

    /// Keeps the object and removes the labels and annotations that mark it as managed.
    async fn preserve_object(
        &self,
        cluster: &str,
        target: &MappedManifest<'_>,
    ) -> Result<(), Error> {
        let observed = self.get_observed(cluster, target).await?;
        let Some(observed) = observed.filter(|o| left_alone_label(o).is_none()) else {
            return Ok(());
        };
        if ProtectedObject::of(target.manifest, &observed).is_some() {
            return Ok(());
        }
        let decided = self
            .decide_update(
                target,
                strip_karmada_metadata,
                &[],
                &observed,
                UpdateMode::Release,
                &FieldOwnership::Kept,
            )
            .await;
        let MemberObjectDecision::Write(write) =
            decided.map_err(|failure| Error::Blocked(failure.text))?
        else {
            return Ok(());
        };
        let api = self.api(cluster)?;
        let at = ResourcePath::object(&target.mapping.gvr, target.namespace, target.name);
        let written = self
            .with_call_timeout(api.update(at, write.body.into(), &WriteOptions::default()))
            .await;
        EXECUTION_METRICS.record_update(
            written.is_ok(),
            target.mapping.api_version_and_kind(),
            cluster,
            true,
        );
        ignore_not_found(written)?;
        Ok(())
    }
}

/// How a member's object is deleted; `None` if it must not be.
fn delete_options(manifest: &EncodedManifest, observed: &Object) -> Option<DeleteOptions> {
    let head = observed.meta();
    let is_managed = !head.deleting
        && head.label(MANAGED) == Some(MANAGED_VALUE)
        && left_alone_label(observed).is_none()
        && !is_job_of_another_gate(manifest, observed)
        && ProtectedObject::of(manifest, observed).is_none();
    is_managed.then(|| DeleteOptions {
        uid: Some(observed.uid().to_owned()),
        propagation: Some(DeletionPropagation::Background),
        ..DeleteOptions::default()
    })
}

/// Whether the object is the Job of a gate that another Work has made.
fn is_job_of_another_gate(manifest: &EncodedManifest, observed: &Object) -> bool {
    let is_of_work = |key| observed.annotation(key).unwrap_or_default() == manifest.annotation(key);
    observed.meta().label(JOB_OF).is_some()
        && ![WORK_NAMESPACE, WORK_NAME]
            .iter()
            .all(|key| is_of_work(key))
}

fn strip_karmada_metadata(manifest: &mut Value) {
    for (map, keys) in [
        ("labels", &KARMADA_LABELS[..]),
        ("annotations", &KARMADA_ANNOTATIONS[..]),
    ] {
        if let Some(entries) = manifest["metadata"][map].as_object_mut() {
            entries.retain(|key, _| !keys.contains(&key.as_str()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: EXE-delete, EXE-delete-own
    #[test]
    fn managed_objects_are_deleted_in_the_background() {
        let check = |managed: &str, deleted: bool| {
            let mut metadata = json!({"name": "a", "uid": "u", "labels": {MANAGED: managed}});
            if deleted {
                metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            }
            let observed = Object::from_value(&json!({ "metadata": metadata })).unwrap();
            let manifest = EncodedManifest::new(bytes::Bytes::new());
            delete_options(&manifest, &observed).map(|options| (options.uid, options.propagation))
        };
        let expected = Some((Some("u".to_owned()), Some(DeletionPropagation::Background)));
        assert_eq!(check("true", false), expected);
        assert_eq!(check("false", false), None);
        assert_eq!(check("true", true), None, "it goes already");
    }

    // proves: EXE-left-alone
    #[test]
    fn objects_that_the_member_keeps_are_not_deleted() {
        for (key, value, deleted) in [
            ("kubefed.io/managed", "false", false),
            ("flotilla.io/managed", "false", false),
            ("kubefed.io/managed", "true", true),
            ("flotilla.io/managed", "no", true),
        ] {
            let labels = json!({MANAGED: MANAGED_VALUE, key: value});
            let metadata = json!({"name": "a", "uid": "u", "labels": labels});
            let observed = Object::from_value(&json!({ "metadata": metadata })).unwrap();
            let manifest = EncodedManifest::new(bytes::Bytes::new());
            assert_eq!(
                delete_options(&manifest, &observed).is_some(),
                deleted,
                "{key}={value}"
            );
        }
    }

    // proves: ROL-job-foreign
    #[test]
    fn the_job_of_a_gate_is_deleted_by_its_work_only() {
        let annotations = json!({WORK_NAMESPACE: "karmada-es-m1", WORK_NAME: "gate"});
        let labels = json!({MANAGED: MANAGED_VALUE, JOB_OF: "key"});
        let metadata =
            json!({"name": "a", "uid": "u", "labels": labels, "annotations": annotations});
        let observed = Object::from_value(&json!({ "metadata": metadata })).unwrap();
        for (work, deleted) in [("gate", true), ("other", false)] {
            let annotations = json!({WORK_NAMESPACE: "karmada-es-m1", WORK_NAME: work});
            let body = json!({"metadata": {"annotations": annotations}}).to_string();
            let manifest = EncodedManifest::new(body.into());
            let options = delete_options(&manifest, &observed);
            assert_eq!(options.is_some(), deleted, "{work}");
        }
    }

    // proves: MBR-bookkeeping
    #[test]
    fn a_preserved_object_loses_karmadas_metadata_only() {
        let marks = |keys: &[&str]| {
            let all = keys.iter().map(|k| ((*k).to_owned(), json!("x")));
            Value::Object(all.collect())
        };
        let (mut labels, mut annotations) = (marks(&KARMADA_LABELS), marks(&KARMADA_ANNOTATIONS));
        labels["own"] = "1".into();
        annotations["work.karmada.io/conflict-resolution"] = "abort".into();
        let mut manifest = json!({"metadata": {"name": "a", "labels": labels, "annotations": annotations}, "data": {}});
        strip_karmada_metadata(&mut manifest);
        assert_eq!(
            manifest,
            json!({"metadata": {"name": "a", "labels": {"own": "1"},
                "annotations": {"work.karmada.io/conflict-resolution": "abort"}}, "data": {}})
        );
        let mut bare = json!({"metadata": {"name": "a"}});
        strip_karmada_metadata(&mut bare);
        assert_eq!(bare["metadata"]["name"], "a");
    }
}
