//! Reconciles the dependencies of bindings: enqueues bindings after changes, and writes their
//! attached bindings.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use client::{
    Api, Informer, InformerEvent, InvolvedObject, Patch, ResourcePath, TaskGroup, WriteOptions,
    ignore_not_found,
};
use controller_context::{
    BindingDiff, Error, PropagationContext, TemplateInformers, hash_without_status,
};
use flotilla_runtime::{
    EventRecorder, Expectations, IndexKeyWorkqueue, ReconcileAction, RestMapping, Workqueue,
    remove_finalizers, run_workers,
};
use interpreter::{InterpreterOperation, ResourceInterpreter};
use karmada_api::dependency::{GoFormattedDependencies, encode_annotation};
use karmada_api::kind_in_namespace::{KindInNamespace, RESOURCE_GROUP_INDEX};
use karmada_api::resources::BINDINGS;
use karmada_api::well_known_keys::{DEPENDENCIES, DEPENDENCIES_FINALIZER};
use karmada_api::{DependentObjectReference, ResourceBinding, kind_in_namespace, names};
use machinery::Object;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::attached_binding::{
    DependencyPreferences, IndependentBinding, depended_by_index_keys, is_orphan,
};
use crate::event_filter::{affected_bindings, dependency_index_keys, needs_reconcile};

const BY_DEPENDENCY: &str = "dependency";
const BY_DEPENDED_BY_LABEL: &str = "referrer";
const DISTRIBUTOR_WORKERS: usize = 4;

/// What the distributor works with beside its context.
pub struct DependenciesDistributorOptions {
    /// The informers of templates, which must have started.
    pub templates: Arc<TemplateInformers>,
}

pub struct DependenciesDistributor {
    api: Arc<dyn Api>,
    recorder: EventRecorder,
    interpreter: ResourceInterpreter,
    templates: Arc<TemplateInformers>,
    bindings: Informer,
    /// The updates of attached bindings that the informer does not show yet.
    own_updates: Expectations<String>,
    /// `namespace/name` of bindings.
    queue: Workqueue<String>,
    /// By attached binding.
    observations: Mutex<HashMap<String, AttachedBindingObservation>>,
    /// The attached bindings that were written for an independent binding, by its `depended-by`
    /// label: the cache may not have them yet when the independent binding is deleted.
    written_attachments: Mutex<HashMap<String, HashSet<String>>>,
}

/// The last observation of an attached binding.
#[derive(Clone, Default)]
struct AttachedBindingObservation {
    /// A hash of the object without its status.
    object_hash: Option<u64>,
    /// The conflict between the independent bindings that need it; its event is recorded once.
    conflict: Option<String>,
}

impl DependenciesDistributor {
    pub async fn start(context: &PropagationContext, options: DependenciesDistributorOptions) {
        let distributor = Arc::new(Self {
            api: Arc::clone(&context.controller.control_plane),
            recorder: context
                .controller
                .recorder
                .with_component("dependencies-distributor"),
            interpreter: context.interpreter.clone(),
            templates: options.templates,
            bindings: context.controller.informer(&BINDINGS),
            own_updates: Expectations::default(),
            queue: Workqueue::new(),
            observations: Mutex::default(),
            written_attachments: Mutex::default(),
        });
        distributor
            .bindings
            .add_index(BY_DEPENDENCY, dependency_index_keys);
        distributor
            .bindings
            .add_index(BY_DEPENDED_BY_LABEL, depended_by_index_keys);
        distributor
            .bindings
            .add_index(RESOURCE_GROUP_INDEX, kind_in_namespace::index_keys);
        distributor.bindings.wait_for_cache_sync().await;
        distributor.add_event_handlers(&context.controller.tasks);
        let queue = distributor.queue.clone();
        run_workers(
            &context.controller.tasks,
            "dependencies",
            &queue,
            DISTRIBUTOR_WORKERS,
            move |key| {
                let distributor = Arc::clone(&distributor);
                async move { distributor.reconcile(&key).await }
            },
        );
    }

    fn add_event_handlers(self: &Arc<Self>, tasks: &TaskGroup) {
        let distributor = Arc::downgrade(self);
        self.bindings.add_event_handler(move |change| {
            if let Some(distributor) = distributor.upgrade() {
                distributor.on_binding_event(change);
            }
        });
        // Changed interpreter rules may return other dependencies.
        let queue = self.queue.clone();
        let visit = move |binding: &Object| {
            if binding
                .decode::<ResourceBinding>()
                .is_ok_and(|b| b.spec.propagate_deps)
            {
                queue.add_low(binding.meta().key());
            }
        };
        let name = "dependencies-of-kinds";
        let sweep =
            IndexKeyWorkqueue::start(tasks, name, &[&self.bindings], RESOURCE_GROUP_INDEX, visit);
        self.interpreter.add_change_listener(move |changed| {
            const ASKED: &[InterpreterOperation] = &[InterpreterOperation::InterpretDependency];
            if changed.affects_operations(ASKED) {
                let concerns =
                    |group: KindInNamespace<'_>| changed.affects_kind(&group.gvk(), ASKED);
                sweep.add(|key| KindInNamespace::parse(key).is_some_and(concerns));
            }
        });
        let distributor = Arc::downgrade(self);
        self.templates.add_object_handler(move |served, change| {
            let Some(distributor) = distributor.upgrade() else {
                return;
            };
            let at = |index_key: &str| distributor.bindings.by_index(BY_DEPENDENCY, index_key);
            for binding in affected_bindings(served, change, at) {
                distributor.queue.add_event(binding.meta().key(), change);
            }
        });
    }

    fn on_binding_event(&self, change: &InformerEvent<'_>) {
        self.own_updates.observe(&change.key(), change.new);
        let Some(new) = change.new else {
            self.observations.lock().remove(&change.key());
            // The independent bindings that need the deleted binding create it again.
            let view = change.object().decode::<ResourceBinding>();
            for by in view.iter().flat_map(|b| &b.spec.required_by) {
                self.queue.add(format!("{}/{}", by.namespace, by.name));
            }
            return;
        };
        if needs_reconcile(change.old, new) {
            self.queue.add_event(change.key(), change);
        }
    }

    async fn reconcile(&self, key: &str) -> Result<ReconcileAction, Error> {
        let Some(binding) = self.bindings.get_by_key(key) else {
            return Ok(ReconcileAction::Done);
        };
        let view = binding.decode::<ResourceBinding>()?;
        let referrer =
            IndependentBinding::from_binding(&binding, &view.spec).map_err(Error::blocked)?;
        if binding.meta().deleting || !view.spec.propagate_deps {
            let attached = self.list_attached(&referrer).await?;
            self.detach(&referrer, attached).await?;
            let finalizers = [DEPENDENCIES_FINALIZER];
            remove_finalizers(&*self.api, &BINDINGS, &binding, &finalizers).await?;
            self.written_attachments
                .lock()
                .remove(&referrer.depended_by_index_key());
            return Ok(ReconcileAction::Done);
        }
        let of = &view.spec.resource;
        let Some(served) = self.templates.rest_mapper.find(&of.api_version, &of.kind) else {
            return Err(no_kind_match(&of.api_version, &of.kind));
        };
        of.check_scope(binding.namespace(), served.namespaced)
            .map_err(|reason| Error::Blocked(format!("spec.resource.namespace: {reason}")))?;
        let revision = of.resource_version.parse().unwrap_or(0);
        let template = self
            .templates
            .get_at_least(&served, &of.namespace, &of.name, revision)
            .await?;
        let Some(template) = template else {
            return Ok(ReconcileAction::Done);
        };
        let about = InvolvedObject::new(&served.api_version, served.kind(), &template);
        let dependencies = match self.interpreter.dependencies(&served.gvk, &template).await {
            Ok(Some(dependencies)) => dependencies,
            // The interpreter rule was removed: detaches the dependencies that it found.
            Ok(None) if view.metadata.annotations.contains_key(DEPENDENCIES) => Vec::new(),
            Ok(None) => return Ok(ReconcileAction::Done),
            Err(error) => {
                let text = error.to_string();
                self.recorder.warning(&about, "GetDependenciesFailed", text);
                return Err(Error::blocked(error));
            }
        };
        let outcome = self
            .distribute(&binding, &view, &referrer, &dependencies)
            .await;
        self.record_sync_event(&binding, &about, &dependencies, &outcome);
        match outcome {
            Err(e) if !e.is_namespace_terminating() => Err(e),
            _ => Ok(ReconcileAction::Done),
        }
    }

    /// Records an event only if something was written, so that a restart records none.
    fn record_sync_event(
        &self,
        binding: &Object,
        template: &InvolvedObject,
        dependencies: &[DependentObjectReference],
        outcome: &Result<bool, Error>,
    ) {
        let about = InvolvedObject::from_object(binding);
        match outcome {
            Ok(false) => {}
            Ok(true) => {
                let text = format!(
                    "Get dependencies({}) succeed.",
                    GoFormattedDependencies(dependencies)
                );
                self.recorder
                    .normal(template, "GetDependenciesSucceed", text);
                let text = "Sync schedule results to dependencies succeed.";
                self.recorder
                    .normal(&about, "SyncScheduleResultToDependenciesSucceed", text);
            }
            Err(e) if e.is_conflict() || e.is_namespace_terminating() => {}
            Err(e) => {
                let text = e.to_string();
                self.recorder
                    .warning(&about, "SyncScheduleResultToDependenciesFailed", text);
            }
        }
    }

    /// Creates, updates and detaches the attached bindings; returns whether anything was written.
    async fn distribute(
        &self,
        binding: &Object,
        view: &ResourceBinding,
        referrer: &IndependentBinding,
        dependencies: &[DependentObjectReference],
    ) -> Result<bool, Error> {
        let mut wrote = self
            .record_dependencies(binding, view, dependencies)
            .await?;
        let mut objects = Vec::new();
        let mut failed = Vec::new();
        for dependency in dependencies {
            match self.find_objects(referrer, dependency).await {
                Ok((served, selected)) => {
                    objects.extend(selected.into_iter().map(|o| (Arc::clone(&served), o)));
                }
                Err(error) => failed.push(error),
            }
        }
        wrote |= self
            .detach(referrer, self.list_orphans(referrer, dependencies).await?)
            .await?;
        for (served, object) in objects {
            match self.attach(referrer, &served, &object).await {
                Ok(done) => wrote |= done,
                Err(error) => failed.push(error),
            }
        }
        Error::aggregate(failed).map(|()| wrote)
    }

    /// Records the dependencies on the binding and adds the finalizer, so that the binding is
    /// deleted only after its attached bindings have been detached.
    async fn record_dependencies(
        &self,
        binding: &Object,
        view: &ResourceBinding,
        dependencies: &[DependentObjectReference],
    ) -> Result<bool, Error> {
        let text = encode_annotation(dependencies).map_err(Error::blocked)?;
        let mut finalizers = view.metadata.finalizers.clone();
        let has_finalizer = finalizers.iter().any(|f| f == DEPENDENCIES_FINALIZER);
        let recorded = view.metadata.annotations.get(DEPENDENCIES);
        if has_finalizer && recorded == Some(&text) {
            return Ok(false);
        }
        if !has_finalizer {
            finalizers.push(DEPENDENCIES_FINALIZER.into());
        }
        let patch = json!({"metadata": {
            "resourceVersion": binding.revision().to_string(),
            "finalizers": finalizers, "annotations": {DEPENDENCIES: text},
        }});
        let options = WriteOptions::default();
        let at = ResourcePath::of_object(&BINDINGS, binding);
        ignore_not_found(self.api.patch(at, Patch::Merge(patch), &options).await)?;
        Ok(true)
    }

    /// The existing objects that a dependency refers to.
    async fn find_objects(
        &self,
        referrer: &IndependentBinding,
        dependency: &DependentObjectReference,
    ) -> Result<(Arc<RestMapping>, Vec<Object>), Error> {
        let DependentObjectReference {
            api_version,
            kind,
            namespace,
            name,
            ..
        } = dependency;
        let Some(served) = self.templates.require_kind(api_version, kind) else {
            return Err(no_kind_match(api_version, kind));
        };
        referrer
            .check_dependency(&served, dependency)
            .map_err(Error::Blocked)?;
        let objects = match dependency
            .compile_label_selector()
            .map_err(Error::Blocked)?
        {
            None => {
                let one = self
                    .templates
                    .get_at_least(&served, namespace, name, 0)
                    .await?;
                one.into_iter().collect()
            }
            Some(labels) => {
                let means = |o: &Object| labels.matches(|key| o.meta().label(key));
                let all = self.templates.list_matching(&served, namespace, means);
                all.ok_or_else(|| Error::Blocked(format!("{kind} is not listed yet")))?
            }
        };
        Ok((served, objects))
    }

    async fn list_attached(&self, referrer: &IndependentBinding) -> Result<Vec<Object>, Error> {
        let mark = referrer.depended_by_index_key();
        let mut bindings = self.bindings.by_index(BY_DEPENDED_BY_LABEL, &mark);
        bindings.retain(|attached| attached.namespace() == referrer.namespace);
        let mut uncached = self
            .written_attachments
            .lock()
            .get(&mark)
            .cloned()
            .unwrap_or_default();
        bindings.iter().for_each(|attached| {
            uncached.remove(attached.name());
        });
        for name in uncached {
            let at = ResourcePath::object(&BINDINGS, &referrer.namespace, &name);
            match ignore_not_found(self.api.get(at).await)? {
                Some(attached) if depended_by_index_keys(&attached).contains(&mark) => {
                    bindings.push(attached)
                }
                _ => self.forget_attachment(&mark, &name),
            }
        }
        Ok(bindings)
    }

    fn forget_attachment(&self, mark: &str, name: &str) {
        if let Some(attachments) = self.written_attachments.lock().get_mut(mark) {
            attachments.remove(name);
        }
    }

    async fn list_orphans(
        &self,
        referrer: &IndependentBinding,
        dependencies: &[DependentObjectReference],
    ) -> Result<Vec<Object>, Error> {
        let by_labels = dependencies.iter().any(|d| d.name.is_empty());
        let mut orphans = Vec::new();
        for attached in self.list_attached(referrer).await? {
            let view = attached.decode::<ResourceBinding>()?;
            let of = &view.spec.resource;
            let object = match self.templates.rest_mapper.find(&of.api_version, &of.kind) {
                Some(served) if by_labels => {
                    let (namespace, name) = (&of.namespace, &of.name);
                    self.templates
                        .get_at_least(&served, namespace, name, 0)
                        .await?
                }
                _ => None,
            };
            let head = object.as_ref().map(Object::meta);
            if is_orphan(of, head, dependencies).map_err(Error::Blocked)? {
                orphans.push(attached);
            }
        }
        Ok(orphans)
    }

    /// Detaches an independent binding from bindings that it no longer needs.
    async fn detach(
        &self,
        referrer: &IndependentBinding,
        attached: Vec<Object>,
    ) -> Result<bool, Error> {
        let mut failed = Vec::new();
        let wrote = !attached.is_empty();
        for one in attached {
            let body = referrer.detach(&one.value()?, |ns, name| {
                self.dependency_preferences(ns, name)
            });
            match ignore_not_found(self.update(&one, body).await) {
                Err(error) => failed.push(error.into()),
                Ok(_) => self.forget_attachment(&referrer.depended_by_index_key(), one.name()),
            }
        }
        Error::aggregate(failed).map(|()| wrote)
    }

    async fn update(&self, attached: &Object, body: Value) -> client::Result<()> {
        let at = ResourcePath::of_object(&BINDINGS, attached);
        let options = WriteOptions::default();
        let written = self.api.update(at, body.into(), &options).await?;
        let key = attached.meta().key();
        let look = || self.bindings.get_by_key(&key);
        self.own_updates.expect(&key, &written, look);
        Ok(())
    }

    fn dependency_preferences(&self, namespace: &str, name: &str) -> Option<DependencyPreferences> {
        let binding = self.bindings.get(namespace, name)?;
        Some(DependencyPreferences::from_spec(
            &binding.decode::<ResourceBinding>().ok()?.spec,
        ))
    }

    async fn attach(
        &self,
        referrer: &IndependentBinding,
        served: &RestMapping,
        object: &Object,
    ) -> Result<bool, Error> {
        let name = names::binding_name(served.kind(), object.name());
        let key = format!("{}/{name}", referrer.namespace);
        let at = ResourcePath::object(&BINDINGS, &referrer.namespace, &name);
        let existing = self.own_updates.read(&*self.api, &self.bindings, at);
        let Some(existing) = existing.await? else {
            let body = referrer.new_attached_binding(served, object);
            let at = ResourcePath::collection(&BINDINGS, &referrer.namespace);
            let options = WriteOptions::default();
            self.api.create(at, body.into(), &options).await?;
            self.remember_attachment(referrer, name);
            self.observe_object(&key, object);
            return Ok(true);
        };
        if existing.meta().deleting {
            return Err(Error::Blocked(format!(
                "resourceBinding({key}) is being deleted"
            )));
        }
        let wish_of = |ns: &str, name: &str| self.dependency_preferences(ns, name);
        let Ok(joined) = referrer.attach(&existing.value()?, served, object, wish_of) else {
            return Err(Error::Blocked(format!(
                "failed to update resourceBinding({key}) due to different owner reference UID, \
                 will try again later after binding is garbage collected"
            )));
        };
        let (difference, conflict) = joined;
        self.record_conflict_event(&existing, conflict);
        let body = match difference {
            BindingDiff::ObjectVersion(body) if self.is_object_changed(&key, object) => body,
            BindingDiff::Changed(body) => body,
            BindingDiff::Unchanged | BindingDiff::ObjectVersion(_) => {
                self.observe_object(&key, object);
                return Ok(false);
            }
        };
        self.update(&existing, body).await?;
        self.remember_attachment(referrer, name);
        self.observe_object(&key, object);
        Ok(true)
    }

    fn remember_attachment(&self, referrer: &IndependentBinding, attached: String) {
        let mut attachments = self.written_attachments.lock();
        attachments
            .entry(referrer.depended_by_index_key())
            .or_default()
            .insert(attached);
    }

    /// Whether the object of an attached binding has changed since it was last observed.
    fn is_object_changed(&self, key: &str, object: &Object) -> bool {
        let before = self
            .observations
            .lock()
            .get(key)
            .and_then(|observation| observation.object_hash);
        before.is_some_and(|before| before != hash_without_status(object))
    }

    fn observe_object(&self, key: &str, object: &Object) {
        let mut observations = self.observations.lock();
        observations.entry(key.to_owned()).or_default().object_hash =
            Some(hash_without_status(object));
    }

    fn record_conflict_event(&self, attached: &Object, conflict: Option<String>) {
        let previous = {
            let mut observations = self.observations.lock();
            let observations = observations.entry(attached.meta().key()).or_default();
            std::mem::replace(&mut observations.conflict, conflict.clone())
        };
        if let Some(text) = conflict.filter(|text| previous.as_ref() != Some(text)) {
            let about = InvolvedObject::from_object(attached);
            self.recorder
                .warning(&about, "DependencyPolicyConflict", text);
        }
    }
}

fn no_kind_match(api_version: &str, kind: &str) -> Error {
    let text = format!("no matches for kind {kind:?} in version {api_version:?}");
    Error::Blocked(text)
}
