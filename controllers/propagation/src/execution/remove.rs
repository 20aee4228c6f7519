//! Deletes or releases the objects in a member when their Work is deleted.

use std::sync::Arc;

use client::{Api, At, DeleteOptions, Patch, Propagation, WriteOptions};
use machinery::Object;
use openapi::karmada::labels::{
    BINDING_ID, BINDING_NAME, BINDING_NAMESPACE, CLUSTER_BINDING_ID, CLUSTER_BINDING_NAME,
    CLUSTER_POLICY_ID, CLUSTER_POLICY_NAME, MANAGED, MANAGED_ANNOTATIONS, MANAGED_LABELS,
    MANAGED_VALUE, POLICY_ID, POLICY_NAME, POLICY_NAMESPACE, TEMPLATE_GENERATION, TEMPLATE_UID,
    WORK_FINALIZER, WORK_ID, WORK_NAME, WORK_NAMESPACE,
};
use openapi::karmada::resources::WORKS;
use flotilla_runtime::Action;
use serde_json::{Value, json};

use super::apply::{Decision, Place};
use super::compare::Equality;
use super::manifest::{EncodedWork, Manifest};
use super::shell::Execution;
use crate::error::Error;
use crate::figures::FIGURES;
use crate::kinds::Served;

const LABELS: [&str; 6] = [
    BINDING_ID,
    CLUSTER_BINDING_ID,
    WORK_ID,
    MANAGED,
    POLICY_ID,
    CLUSTER_POLICY_ID,
];
const ANNOTATIONS: [&str; 12] = [
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

impl Execution {
    /// Deletes the member's objects, or releases them, and then removes the Work's finalizer.
    pub(super) async fn remove(
        &self,
        cluster: &str,
        object: &Object,
        work: &EncodedWork,
    ) -> Result<Action, Error> {
        if !work.finalizers.iter().any(|f| f == WORK_FINALIZER) {
            return Ok(Action::Done);
        }
        // Nothing can be deleted in a cluster that no longer exists.
        if let Some(member) = self.clusters.get(cluster) {
            if member.cluster.is_ready() {
                for manifest in &work.manifests {
                    let manifest = Manifest::new(manifest.clone());
                    let Some(place) = self.place_to_leave(cluster, &manifest).await? else {
                        continue;
                    };
                    if work.preserve_resources_on_deletion {
                        self.let_go(cluster, &place).await?;
                    } else {
                        self.delete(cluster, &place).await?;
                    }
                }
            } else if !member.is_terminating() {
                // Reconciled again when the cluster becomes ready or is deleted.
                return Ok(Action::Done);
            }
        }
        let rest: Vec<&String> = work
            .finalizers
            .iter()
            .filter(|f| *f != WORK_FINALIZER)
            .collect();
        let patch = json!({"metadata": {
            "resourceVersion": object.revision().to_string(), "finalizers": rest}});
        let at = At::of(&WORKS, object);
        let options = WriteOptions::default();
        match self.control.patch(at, Patch::Merge(patch), &options).await {
            Err(e) if !e.is_not_found() => Err(e.into()),
            _ => Ok(Action::Done),
        }
    }

    /// The resource of a manifest. If the control plane does not serve its kind, asks the member
    /// for it; `None`: the member does not serve it either.
    async fn place_to_leave<'a>(
        &self,
        cluster: &str,
        manifest: &'a Manifest,
    ) -> Result<Option<Place<'a>>, Error> {
        if let Ok(place) = self.place(manifest) {
            return Ok(Some(place));
        }
        let found = self.limited(self.api(cluster)?.resources()).await?;
        let kind = manifest.gvk();
        let version = kind.api_version();
        let mut served = found.resources.iter().map(Served::of);
        if let Some(served) = served.find(|served| served.gvk == kind) {
            return Ok(Some(Place::new(Arc::new(served), manifest)));
        }
        match found.failed.iter().find(|(failed, _)| *failed == version) {
            Some((_, why)) => Err(Error::Blocked(format!(
                "the kinds of {version} in cluster {cluster} cannot be read: {why}"
            ))),
            None => Ok(None),
        }
    }

    async fn observed(&self, cluster: &str, place: &Place<'_>) -> Result<Option<Object>, Error> {
        // No informer is started for an object that is about to be deleted.
        let informer = self.members.followed(cluster, &place.served.gvr);
        let seen = informer.filter(|i| i.is_synced());
        if let Some(found) = seen.and_then(|i| i.get(place.namespace, place.name)) {
            return Ok(Some(found));
        }
        // An object that was just created may not be in the informer yet; deletions are rare enough
        // for a GET.
        let api = self.api(cluster)?;
        let at = At::one(&place.served.gvr, place.namespace, place.name);
        match self.limited(api.get(at)).await {
            Ok(found) => Ok(Some(found)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn api(&self, cluster: &str) -> Result<Arc<dyn Api>, Error> {
        self.members.api(cluster).map_err(Error::Blocked)
    }

    async fn delete(&self, cluster: &str, place: &Place<'_>) -> Result<(), Error> {
        let Some(observed) = self.observed(cluster, place).await? else {
            return Ok(());
        };
        let Some(options) = deletion(&observed) else {
            return Ok(());
        };
        let api = self.api(cluster)?;
        let at = At::one(&place.served.gvr, place.namespace, place.name);
        let outcome = match self.limited(api.delete(at, &options)).await {
            Err(e) if !e.is_not_found() => Err(e.into()),
            _ => Ok(()),
        };
        FIGURES.deleted(outcome.is_ok(), place.served.names(), cluster);
        outcome
    }

    /// Keeps the object and removes the labels and annotations that mark it as managed.
    async fn let_go(&self, cluster: &str, place: &Place<'_>) -> Result<(), Error> {
        let Some(observed) = self.observed(cluster, place).await? else {
            return Ok(());
        };
        let decided = self.decide(place, strip, &observed, Equality::Exact).await;
        let Decision::Write(body) = decided.map_err(Error::Blocked)? else {
            return Ok(());
        };
        let api = self.api(cluster)?;
        let at = At::one(&place.served.gvr, place.namespace, place.name);
        let written = self
            .limited(api.update_encoded(at, body, &WriteOptions::default()))
            .await;
        FIGURES.updated(written.is_ok(), place.served.names(), cluster, true);
        match written {
            Err(e) if !e.is_not_found() => Err(e.into()),
            _ => Ok(()),
        }
    }
}

/// How a member's object is deleted; `None` if it must not be.
fn deletion(observed: &Object) -> Option<DeleteOptions> {
    let head = observed.head();
    let ours = !head.deleting && head.label(MANAGED) == Some(MANAGED_VALUE);
    ours.then(|| DeleteOptions {
        uid: Some(observed.uid().to_owned()),
        propagation: Some(Propagation::Background),
        ..DeleteOptions::default()
    })
}

fn strip(manifest: &mut Value) {
    for (map, keys) in [("labels", &LABELS[..]), ("annotations", &ANNOTATIONS[..])] {
        if let Some(entries) = manifest["metadata"][map].as_object_mut() {
            entries.retain(|key, _| !keys.contains(&key.as_str()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: EXE-delete, EXE-delete-own
    #[test]
    fn managed_objects_are_deleted_in_the_background() {
        let check = |managed: &str, deleted: bool| {
            let mut metadata = json!({"name": "a", "uid": "u", "labels": {MANAGED: managed}});
            if deleted {
                metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            }
            let observed = Object::from_value(&json!({ "metadata": metadata })).unwrap();
            deletion(&observed).map(|options| (options.uid, options.propagation))
        };
        let expected = Some((Some("u".to_owned()), Some(Propagation::Background)));
        assert_eq!(check("true", false), expected);
        assert_eq!(check("false", false), None);
        assert_eq!(check("true", true), None, "it goes already");
    }

    // proves: MBR-bookkeeping
    #[test]
    fn what_is_let_go_loses_the_marks_and_nothing_else() {
        let marks = |keys: &[&str]| {
            let all = keys.iter().map(|k| ((*k).to_owned(), json!("x")));
            Value::Object(all.collect())
        };
        let (mut labels, mut annotations) = (marks(&LABELS), marks(&ANNOTATIONS));
        labels["own"] = "1".into();
        annotations["work.karmada.io/conflict-resolution"] = "abort".into();
        let mut manifest = json!({"metadata": {"name": "a", "labels": labels, "annotations": annotations}, "data": {}});
        strip(&mut manifest);
        assert_eq!(
            manifest,
            json!({"metadata": {"name": "a", "labels": {"own": "1"},
                "annotations": {"work.karmada.io/conflict-resolution": "abort"}}, "data": {}})
        );
        let mut bare = json!({"metadata": {"name": "a"}});
        strip(&mut bare);
        assert_eq!(bare["metadata"]["name"], "a");
    }
}
