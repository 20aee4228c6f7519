//! Holds the deletion of a template until its copies are gone, if its policy asks for that.
//!
//! KubeFed did the same by a finalizer on its federated objects. Here the template itself has the
//! finalizer, so that it is there only while the policy asks.
//!
//! deleted template ──► mark its Works, delete its binding ──► the Works go when their objects are gone ──► remove the finalizer

use client::{
    InformerEvent, InvolvedObject, ListOptions, Patch, ResourcePath, WriteOptions, ignore_not_found,
};
use controller_context::{Error, TemplateKey};
use flotilla_runtime::{
    PriorityQueueLane, ReconcileAction, RestMapping, add_finalizer, remove_finalizers,
};
use karmada_api::resources::WORKS;
use karmada_api::well_known_keys::{
    REMOVAL_AWAITED_BY, TEMPLATE_UID, WAIT_FOR_REMOVAL, WAIT_FOR_REMOVAL_FINALIZER,
    WAITING_FOR_REMOVAL,
};
use karmada_api::work::WorkSpecManifestIdentities;
use karmada_api::{Work, names};
use machinery::{Object, bounded_text};
use serde::Deserialize;
use serde_json::json;

use crate::controller::{ResourceDetector, TemplateReconcileTrigger, namespaced_name};
use crate::deleted_template::DeletedTemplate;
use crate::policy_matching::ParsedPolicy;

/// The longest text about copies that are waited for.
const MAX_WAITING_BYTES: usize = 1024;

/// Whether a policy holds the deletion of its templates.
pub(crate) fn awaits_removal(policy: &Object) -> bool {
    let annotations = policy.annotations();
    annotations
        .get(WAIT_FOR_REMOVAL)
        .is_some_and(|v| v == "true")
}

fn is_held(template: &Object) -> bool {
    let finalizers = template.finalizers();
    finalizers.iter().any(|f| f == WAIT_FOR_REMOVAL_FINALIZER)
}

/// The clusters that still have a copy, and why.
fn waiting_text(works: &[(String, Object)]) -> Result<String, Error> {
    let mut lines = Vec::new();
    for (cluster, work) in works {
        let view = work.decode::<Work>()?;
        let condition = view.condition("Propagated");
        lines.push(match condition.filter(|c| c.status == "False") {
            Some(c) => format!("{cluster}: {} ({})", c.reason, c.message),
            None => format!("{cluster}: being deleted"),
        });
    }
    if lines.is_empty() {
        lines.push("its binding".to_owned());
    }
    lines.sort();
    let mut text = lines.join("; ");
    bounded_text::truncate(&mut text, MAX_WAITING_BYTES);
    Ok(text)
}

#[derive(Deserialize)]
struct WorkManifests {
    #[serde(default)]
    spec: WorkSpecManifestIdentities,
}

impl ResourceDetector {
    /// Enqueues the template of a Work whose end it waits for.
    pub(crate) fn on_awaited_work_event(&self, change: &InformerEvent<'_>) {
        let work = change.object();
        if work.meta().label(REMOVAL_AWAITED_BY).is_none() {
            return;
        }
        let Ok(view) = machinery::json::from_slice::<WorkManifests>(&work.bytes()) else {
            return;
        };
        let Some(manifest) = view.spec.manifests().first() else {
            return;
        };
        let Some(served) = self.templates.rest_mapper.get(&manifest.gvk()) else {
            return;
        };
        let name = &manifest.metadata;
        let key = TemplateKey {
            gvr: served.gvr.clone(),
            name: namespaced_name(&name.namespace, &name.name),
        };
        let cause = TemplateReconcileTrigger {
            template_changed: false,
            by_karmada: true,
        };
        self.enqueue(key, cause, PriorityQueueLane::of(change));
    }

    /// Gives a template the finalizer, or takes it away, as its policy says.
    pub(crate) async fn sync_removal_finalizer(
        &self,
        served: &RestMapping,
        template: Object,
        policy: &ParsedPolicy,
    ) -> Result<Object, Error> {
        if awaits_removal(&policy.object) {
            let finalizer = WAIT_FOR_REMOVAL_FINALIZER;
            return Ok(add_finalizer(&*self.api, &served.gvr, &template, finalizer).await?);
        }
        self.release_template(served, &template).await?;
        Ok(template)
    }

    /// Takes the finalizer away from a template that no policy holds.
    pub(crate) async fn release_template(
        &self,
        served: &RestMapping,
        template: &Object,
    ) -> Result<(), Error> {
        if is_held(template) {
            let own = [WAIT_FOR_REMOVAL_FINALIZER];
            remove_finalizers(&*self.api, &served.gvr, template, &own).await?;
        }
        Ok(())
    }

    /// Lets a deleted template go when no member has a copy, or its policy no longer asks for that.
    pub(crate) async fn finalize_template(
        &self,
        key: &TemplateKey,
        served: &RestMapping,
        template: &Object,
    ) -> Result<ReconcileAction, Error> {
        if !is_held(template) {
            return Ok(ReconcileAction::Done);
        }
        let policy = self.claiming_policy(template);
        let policy = policy.filter(|policy| !policy.object.meta().deleting);
        if !policy.is_some_and(|policy| awaits_removal(&policy.object)) {
            self.release_template(served, template).await?;
            return Ok(ReconcileAction::Done);
        }
        let works = self.works_of_template(served, template).await?;
        for (_, work) in &works {
            self.await_work(work, template.uid()).await?;
        }
        let deleted = DeletedTemplate::new(served.kind(), template);
        self.delete_binding_of_deleted_template(&deleted, key)
            .await?;
        if works.is_empty() && !self.has_binding(served, template).await? {
            self.release_template(served, template).await?;
        } else {
            self.record_waiting(served, template, waiting_text(&works)?)
                .await?;
        }
        Ok(ReconcileAction::Done)
    }

    /// The Works of a template, by cluster, read from the server: a cache may lack the last one.
    async fn works_of_template(
        &self,
        served: &RestMapping,
        template: &Object,
    ) -> Result<Vec<(String, Object)>, Error> {
        let name = names::work_name(served.kind(), template.name(), template.namespace());
        let options = ListOptions {
            field_selector: format!("metadata.name={name}"),
            ..ListOptions::default()
        };
        let at = ResourcePath::collection(&WORKS, "");
        let mut works = Vec::new();
        for work in self.api.list(at, &options).await?.items {
            let Some(cluster) = names::cluster_of_execution_space(work.namespace()) else {
                continue;
            };
            let view = work.decode::<Work>()?;
            let mut manifests = view.spec.workload.manifests.iter();
            if manifests.any(|m| m["metadata"]["annotations"][TEMPLATE_UID] == *template.uid()) {
                works.push((cluster.to_owned(), work));
            }
        }
        Ok(works)
    }

    /// Has the execution controller keep a Work until its objects are gone.
    async fn await_work(&self, work: &Object, template_uid: &str) -> Result<(), Error> {
        if work.meta().label(REMOVAL_AWAITED_BY) == Some(template_uid) {
            return Ok(());
        }
        let patch = json!({"metadata": {"uid": work.uid(),
            "labels": {REMOVAL_AWAITED_BY: template_uid}}});
        let at = ResourcePath::of_object(&WORKS, work);
        let options = WriteOptions::default();
        let marked = self.api.patch(at, Patch::Merge(patch), &options).await;
        ignore_not_found(marked)?;
        Ok(())
    }

    async fn has_binding(&self, served: &RestMapping, template: &Object) -> Result<bool, Error> {
        let name = names::binding_name(served.kind(), template.name());
        let (resource, _) = self.binding_resource(template.namespace());
        let at = ResourcePath::object(resource, template.namespace(), &name);
        let binding = ignore_not_found(self.api.get(at).await)?;
        let uid = template.uid();
        Ok(binding.is_some_and(|b| b.meta().controller().is_some_and(|c| *c.uid == *uid)))
    }

    /// Says on the template, once for each change, what its deletion waits for.
    async fn record_waiting(
        &self,
        served: &RestMapping,
        template: &Object,
        text: String,
    ) -> Result<(), Error> {
        if template.annotations().get(WAITING_FOR_REMOVAL) == Some(&text) {
            return Ok(());
        }
        let about = InvolvedObject::new(&served.api_version, served.kind(), template);
        let message = format!("The deletion waits for copies in members: {text}");
        self.recorder.normal(&about, "WaitingForRemoval", message);
        let patch = json!({"metadata": {"uid": template.uid(),
            "annotations": {WAITING_FOR_REMOVAL: text}}});
        let at = ResourcePath::of_object(&served.gvr, template);
        let options = WriteOptions::default();
        let written = self.api.patch(at, Patch::Merge(patch), &options).await;
        ignore_not_found(written)?;
        Ok(())
    }
}
