//! Hears of moves, steps and repairs, and writes them into the histories of their templates.

use std::sync::Arc;

use client::{
    Api, DeleteOptions, Informer, InformerEvent, ResourcePath, WriteOptions, ignore_not_found,
};
use controller_context::{Error, PropagationContext, binding_key_of_work};
use flotilla_runtime::{ClusterLister, ReconcileAction, Workqueue, run_workers};
use karmada_api::binding::ObjectReference;
use karmada_api::history::{
    CLUSTER_TEMPLATE_HISTORIES, HistoryEntry, TEMPLATE_HISTORIES, TemplateHistory,
};
use karmada_api::names::cluster_of_execution_space;
use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS};
use karmada_api::rollout::ROLLOUTS;
use karmada_api::{ResourceBinding, Rollout};
use machinery::time::{Clock, rfc3339_seconds};
use machinery::{Gvr, Object};
use serde_json::{Value, json};

use crate::field_managers::user_of_field;
use crate::metrics::count_entry;
use crate::pending::{PendingEntries, PendingEntry};
use crate::placement::{BindingWrite, POLICY_CHANGED, PlacementMove, placement_move};
use crate::policy::{NamedPolicy, PolicyLister};
use crate::record::{add_entry, is_incomplete};
use crate::repairs::reported_repair;
use crate::rollout_steps::rollout_step;

const HISTORY_WORKERS: usize = 2;

pub struct HistoryController {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    clusters: ClusterLister,
    policies: PolicyLister,
    bindings: Informer,
    cluster_bindings: Informer,
    pending: PendingEntries,
    /// Bindings, by `namespace/name`, or by name if they are ClusterResourceBindings.
    queue: Workqueue<String>,
}

impl HistoryController {
    pub async fn start(context: &PropagationContext, works: &Informer) {
        let controller = Arc::new(Self {
            api: Arc::clone(&context.controller.control_plane),
            clock: Arc::clone(&context.controller.clock),
            clusters: context.clusters.clone(),
            policies: PolicyLister::new(&context.controller),
            bindings: context.controller.informer(&BINDINGS),
            cluster_bindings: context.controller.informer(&CLUSTER_BINDINGS),
            pending: PendingEntries::default(),
            queue: Workqueue::new(),
        });
        controller.policies.wait_synced().await;
        controller.clusters.informer().wait_for_cache_sync().await;
        for bindings in [&controller.bindings, &controller.cluster_bindings] {
            bindings.wait_for_cache_sync().await;
            let this = Arc::clone(&controller);
            bindings.add_event_handler(move |change| this.on_binding(change));
        }
        let this = Arc::clone(&controller);
        works.add_event_handler(move |change| this.on_work(change));
        let rollouts = context.controller.informer(&ROLLOUTS);
        let this = Arc::clone(&controller);
        rollouts.add_event_handler(move |change| this.on_rollout(change));
        let queue = controller.queue.clone();
        run_workers(
            &context.controller.tasks,
            "history",
            &queue,
            HISTORY_WORKERS,
            move |key: String| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&key).await }
            },
        );
    }

    fn on_binding(&self, change: &InformerEvent<'_>) {
        let Some(new) = change.new else {
            return self.pending.forget(&change.key());
        };
        let Some(old) = change.old else { return };
        let views = (
            old.decode::<ResourceBinding>(),
            new.decode::<ResourceBinding>(),
        );
        let (Ok(old), Ok(new_view)) = views else {
            return;
        };
        let key = new.meta().key();
        let policies = [&old, &new_view].map(|binding| NamedPolicy::of(binding));
        let [former_policy, policy] = policies;
        if former_policy != policy && !former_policy.text.is_empty() && !policy.text.is_empty() {
            self.pending.replace_policy(&key, former_policy.text);
        }
        if old.spec.clusters == new_view.spec.clusters {
            return;
        }
        let write = BindingWrite {
            old: &old,
            new: &new_view,
            user: user_of_field(new, "clusters"),
        };
        let is_gone = |name: &str| {
            let cluster = self.clusters.get(name);
            cluster.is_none_or(|cluster| cluster.is_terminating())
        };
        if let Some(PlacementMove {
            mut entry,
            is_scale,
        }) = placement_move(&write, is_gone)
        {
            self.describe_cause(&key, &policy, &mut entry);
            self.record(&key, entry, is_scale);
        }
    }

    /// Names the policy, and for a change of it who made it.
    fn describe_cause(&self, key: &str, policy: &NamedPolicy, entry: &mut HistoryEntry) {
        if policy.text.is_empty() {
            return;
        }
        let (text, user) = self.policies.describe(policy);
        entry.cause = text;
        if entry.reason == POLICY_CHANGED {
            if let Some(user) = user {
                entry.actor = user;
            }
            entry.former_policy = self.pending.take_replaced_policy(key).unwrap_or_default();
        }
    }

    fn on_work(&self, change: &InformerEvent<'_>) {
        let (Some(old), Some(new)) = (change.old, change.new) else {
            return;
        };
        let Some(cluster) = cluster_of_execution_space(new.namespace()) else {
            return;
        };
        if let Some(entry) = reported_repair(old, new, cluster)
            && let Some(key) = binding_key_of_work(new)
        {
            self.record(&key, entry, false);
        }
    }

    fn on_rollout(&self, change: &InformerEvent<'_>) {
        let view = |object: Option<&Object>| object?.decode::<Rollout>().ok();
        let (Some(old), Some(new)) = (view(change.old), view(change.new)) else {
            return;
        };
        if let (Some(old), Some(new)) = (&old.status, &new.status)
            && let Some(entry) = rollout_step(old, new)
        {
            self.record(&change.key(), entry, false);
        }
    }

    fn record(&self, key: &str, mut entry: HistoryEntry, is_scale: bool) {
        let now = rfc3339_seconds(self.clock.now());
        entry.first_time.clone_from(&now);
        entry.last_time = now;
        if self.pending.add(key, PendingEntry { entry, is_scale }) {
            self.queue.add(key.to_owned());
        }
    }

    /// The binding of a template.
    fn binding(&self, key: &str) -> Option<Object> {
        let informer = match key.contains('/') {
            true => &self.bindings,
            false => &self.cluster_bindings,
        };
        informer.get_by_key(key).filter(|b| !b.meta().deleting)
    }

    /// Writes the entries that wait. More of them may come meanwhile; they are the next write.
    async fn reconcile(&self, key: &str) -> Result<ReconcileAction, Error> {
        let pending = self.pending.get(key);
        if pending.is_empty() {
            return Ok(ReconcileAction::Done);
        }
        let Some(binding) = self.binding(key) else {
            self.pending.forget(key);
            return Ok(ReconcileAction::Done);
        };
        match self.write(&binding, &pending).await {
            Ok(None) => Ok(ReconcileAction::AFTER_CONFLICT),
            Ok(Some(history)) => {
                self.pending
                    .finish(key, pending.len(), is_incomplete(&history));
                for written in &pending {
                    count_entry(written.entry.entry_type.as_str(), "recorded");
                }
                Ok(ReconcileAction::Done)
            }
            Err(error) if error.is_conflict() => Ok(ReconcileAction::AFTER_CONFLICT),
            Err(Error::Api(error)) if error.is_namespace_terminating() => {
                self.pending.forget(key);
                Ok(ReconcileAction::Done)
            }
            Err(error) => Err(error),
        }
    }

    /// Adds entries to the history of a template; returns it as it is then, or `None` while that of
    /// an earlier template is in the way.
    async fn write(
        &self,
        binding: &Object,
        pending: &[PendingEntry],
    ) -> Result<Option<TemplateHistory>, Error> {
        let resource = match binding.namespace() {
            "" => &CLUSTER_TEMPLATE_HISTORIES,
            _ => &TEMPLATE_HISTORIES,
        };
        let view = binding.decode::<ResourceBinding>()?;
        let template = ObjectReference {
            resource_version: String::new(),
            ..view.spec.resource.clone()
        };
        let at = ResourcePath::of_object(resource, binding);
        let existing = ignore_not_found(self.api.get(at).await)?;
        let former = match &existing {
            Some(existing) => (*existing.decode::<TemplateHistory>()?).clone(),
            None => TemplateHistory::default(),
        };
        if let Some(existing) = &existing
            && former.resource.uid != template.uid
        {
            // That of an earlier template of the name is about to be collected.
            let options = DeleteOptions {
                uid: Some(existing.uid().to_owned()),
                ..DeleteOptions::default()
            };
            ignore_not_found(self.api.delete(at, &options).await)?;
            return Ok(None);
        }
        let mut history = TemplateHistory {
            resource: template,
            entries: former.entries.clone(),
        };
        for PendingEntry { entry, is_scale } in pending {
            if !is_scale || is_incomplete(&history) {
                add_entry(&mut history, entry.clone());
            }
        }
        if history.entries == former.entries {
            return Ok(Some(history));
        }
        let body = history_body(resource, binding, existing.as_ref(), &history)?;
        let options = WriteOptions::default();
        match existing {
            Some(_) => self.api.update(at, body.into(), &options).await?,
            None => {
                let all = ResourcePath::collection(resource, binding.namespace());
                self.api.create(all, body.into(), &options).await?
            }
        };
        Ok(Some(history))
    }
}

/// The object of a history. The template owns it.
fn history_body(
    resource: &Gvr,
    binding: &Object,
    existing: Option<&Object>,
    history: &TemplateHistory,
) -> Result<Value, Error> {
    let template = &history.resource;
    let kind = match binding.namespace() {
        "" => "ClusterTemplateHistory",
        _ => "TemplateHistory",
    };
    let mut body = match existing {
        Some(existing) => existing.value()?,
        None => {
            let owner = json!({"apiVersion": template.api_version, "kind": template.kind,
                "name": template.name, "uid": template.uid});
            let mut metadata = json!({"name": binding.name(), "ownerReferences": [owner]});
            if !binding.namespace().is_empty() {
                metadata["namespace"] = binding.namespace().into();
            }
            json!({"apiVersion": resource.api_version(), "kind": kind, "metadata": metadata})
        }
    };
    body["resource"] = json!(template);
    body["entries"] = json!(history.entries);
    Ok(body)
}
