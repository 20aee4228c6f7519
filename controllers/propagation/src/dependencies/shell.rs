//! Reconciles the dependencies of bindings: enqueues bindings after changes, and writes their
//! attached bindings.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use client::{Api, At, Patch, WriteOptions};
use interpreter::{Interpreter, Operation};
use machinery::Object;
use openapi::karmada::dependency::{Listed, annotation};
use openapi::karmada::labels::{DEPENDENCIES, DEPENDENCIES_FINALIZER};
use openapi::karmada::resource_group::{BY_RESOURCE_GROUP, ResourceGroup};
use openapi::karmada::resources::BINDINGS;
use openapi::karmada::{Binding, Dependency, names, resource_group};
use parking_lot::Mutex;
use flotilla_runtime::{
    Action, Change, IndexSweep, Informer, ObjectRef, Queue, Recorder, Select, Tasks, run_workers,
};
use serde_json::{Value, json};

use super::attach::{Difference, Referrer, Wish, is_orphan, marks};
use super::route::{concerned, counts, places};
use crate::error::Error;
use crate::kinds::Served;
use crate::meta::fingerprint;
use crate::run::Deps;
use crate::templates::Templates;

const BY_DEPENDENCY: &str = "dependency";
const BY_REFERRER: &str = "referrer";
const WORKERS: usize = 4;

pub(crate) struct Dependencies {
    api: Arc<dyn Api>,
    recorder: Recorder,
    interpreter: Interpreter,
    templates: Arc<Templates>,
    bindings: Informer,
    /// `namespace/name` of bindings.
    queue: Queue<String>,
    /// By attached binding.
    seen: Mutex<HashMap<String, Seen>>,
    /// The attached bindings that were written for an independent binding, by its `depended-by`
    /// label: the cache may not have them yet when the independent binding is deleted.
    made: Mutex<HashMap<String, HashSet<String>>>,
}

/// The last observation of an attached binding.
#[derive(Clone, Default)]
struct Seen {
    /// A hash of the object without its status.
    object: Option<u64>,
    /// The conflict between the independent bindings that need it; its event is recorded once.
    conflict: Option<String>,
}

impl Dependencies {
    /// Must be called after the template informers have started.
    pub(crate) async fn start(deps: &Deps, templates: &Arc<Templates>, tasks: &Tasks) {
        let it = Arc::new(Self {
            api: Arc::clone(&deps.control),
            recorder: deps.recorder.named("dependencies-distributor"),
            interpreter: deps.interpreter.clone(),
            templates: Arc::clone(templates),
            bindings: deps.informers.get(&deps.control, &Select::all(&BINDINGS)),
            queue: Queue::new(),
            seen: Mutex::default(),
            made: Mutex::default(),
        });
        it.bindings.add_index(BY_DEPENDENCY, places);
        it.bindings.add_index(BY_REFERRER, marks);
        it.bindings
            .add_index(BY_RESOURCE_GROUP, resource_group::index_keys);
        it.bindings.wait_synced().await;
        it.listen(tasks);
        let queue = it.queue.clone();
        run_workers(tasks, "dependencies", &queue, WORKERS, move |key| {
            let it = Arc::clone(&it);
            async move { it.reconcile(&key).await }
        });
    }

    fn listen(self: &Arc<Self>, tasks: &Tasks) {
        let it = Arc::downgrade(self);
        self.bindings.on_change(move |change| {
            if let Some(it) = it.upgrade() {
                it.binding_changed(change);
            }
        });
        // Changed interpreter rules may return other dependencies.
        let queue = self.queue.clone();
        let visit = move |binding: &Object| {
            if binding
                .view::<Binding>()
                .is_ok_and(|b| b.spec.propagate_deps)
            {
                queue.add_low(binding.head().key());
            }
        };
        let name = "dependencies-of-kinds";
        let sweep = IndexSweep::start(tasks, name, &[&self.bindings], BY_RESOURCE_GROUP, visit);
        self.interpreter.on_change(move |changed| {
            const ASKED: &[Operation] = &[Operation::InterpretDependency];
            if changed.touches(ASKED) {
                let concerns = |group: ResourceGroup<'_>| changed.concerns(&group.gvk(), ASKED);
                sweep.add(|key| ResourceGroup::parse(key).is_some_and(concerns));
            }
        });
        let it = Arc::downgrade(self);
        self.templates.on_any_change(move |served, change| {
            let Some(it) = it.upgrade() else { return };
            let at = |index_key: &str| it.bindings.by_index(BY_DEPENDENCY, index_key);
            for binding in concerned(served, change, at) {
                it.queue.add_lane(binding.head().key(), change.initial);
            }
        });
    }

    fn binding_changed(&self, change: &Change<'_>) {
        let Some(new) = change.new else {
            self.seen.lock().remove(&change.key());
            // The independent bindings that need the deleted binding create it again.
            let view = change.object().view::<Binding>();
            for by in view.iter().flat_map(|b| &b.spec.required_by) {
                self.queue.add(format!("{}/{}", by.namespace, by.name));
            }
            return;
        };
        if counts(change.old, new) {
            self.queue.add_lane(change.key(), change.initial);
        }
    }

    async fn reconcile(&self, key: &str) -> Result<Action, Error> {
        let Some(binding) = self.bindings.get_key(key) else {
            return Ok(Action::Done);
        };
        let view = binding.view::<Binding>()?;
        let referrer = Referrer::of(&binding, &view.spec).map_err(Error::blocked)?;
        if binding.head().deleting || !view.spec.propagate_deps {
            let attached = self.attached_to(&referrer).await?;
            self.leave(&referrer, attached).await?;
            self.let_go(&binding, &view).await?;
            self.made.lock().remove(&referrer.mark());
            return Ok(Action::Done);
        }
        let of = &view.spec.resource;
        let Some(served) = self.templates.kinds.find(&of.api_version, &of.kind) else {
            return Err(no_match(&of.api_version, &of.kind));
        };
        let revision = of.resource_version.parse().unwrap_or(0);
        let template = self
            .templates
            .at_least(&served, &of.namespace, &of.name, revision)
            .await?;
        let Some(template) = template else {
            return Ok(Action::Done);
        };
        let about = ObjectRef::new(&served.api_version, served.kind(), &template);
        let dependencies = match self.interpreter.dependencies(&served.gvk, &template).await {
            Ok(Some(found)) => found,
            // The interpreter rule was removed: detaches the dependencies that it found.
            Ok(None) if view.metadata.annotations.contains_key(DEPENDENCIES) => Vec::new(),
            Ok(None) => return Ok(Action::Done),
            Err(error) => {
                let text = error.to_string();
                self.recorder.warning(&about, "GetDependenciesFailed", text);
                return Err(Error::blocked(error));
            }
        };
        let outcome = self
            .distribute(&binding, &view, &referrer, &dependencies)
            .await;
        self.tell(&binding, &about, &dependencies, &outcome);
        match outcome {
            Err(e) if !e.is_namespace_terminating() => Err(e),
            _ => Ok(Action::Done),
        }
    }

    /// Records an event only if something was written, so that a restart records none.
    fn tell(
        &self,
        binding: &Object,
        template: &ObjectRef,
        dependencies: &[Dependency],
        outcome: &Result<bool, Error>,
    ) {
        let about = ObjectRef::of(binding);
        match outcome {
            Ok(false) => {}
            Ok(true) => {
                let text = format!("Get dependencies({}) succeed.", Listed(dependencies));
                self.recorder
                    .normal(template, "GetDependenciesSucceed", text);
                let text = "Sync schedule results to dependencies succeed.";
                self.recorder
                    .normal(&about, "SyncScheduleResultToDependenciesSucceed", text);
            }
            Err(e) if e.is_outdated() || e.is_namespace_terminating() => {}
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
        view: &Binding,
        referrer: &Referrer,
        dependencies: &[Dependency],
    ) -> Result<bool, Error> {
        let mut wrote = self.record(binding, view, dependencies).await?;
        let mut objects = Vec::new();
        let mut failed = Vec::new();
        for dependency in dependencies {
            match self.find(dependency).await {
                Ok((served, found)) => {
                    objects.extend(found.into_iter().map(|o| (Arc::clone(&served), o)));
                }
                Err(error) => failed.push(error),
            }
        }
        wrote |= self
            .leave(referrer, self.orphans(referrer, dependencies).await?)
            .await?;
        for (served, object) in objects {
            match self.attach(referrer, &served, &object).await {
                Ok(done) => wrote |= done,
                Err(error) => failed.push(error),
            }
        }
        Error::of(failed).map(|()| wrote)
    }

    /// Records the dependencies on the binding and adds the finalizer, so that the binding is
    /// deleted only after its attached bindings have been detached.
    async fn record(
        &self,
        binding: &Object,
        view: &Binding,
        dependencies: &[Dependency],
    ) -> Result<bool, Error> {
        let text = annotation(dependencies).map_err(Error::blocked)?;
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
        self.patch(binding, patch).await?;
        Ok(true)
    }

    async fn let_go(&self, binding: &Object, view: &Binding) -> Result<(), Error> {
        let mut finalizers = view.metadata.finalizers.clone();
        finalizers.retain(|f| f != DEPENDENCIES_FINALIZER);
        if finalizers.len() == view.metadata.finalizers.len() {
            return Ok(());
        }
        let patch = json!({"metadata": {
            "resourceVersion": binding.revision().to_string(), "finalizers": finalizers}});
        self.patch(binding, patch).await
    }

    /// Patches a binding; a binding that no longer exists is no error.
    async fn patch(&self, binding: &Object, patch: Value) -> Result<(), Error> {
        let options = WriteOptions::default();
        let at = At::of(&BINDINGS, binding);
        match self.api.patch(at, Patch::Merge(patch), &options).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// The existing objects that a dependency refers to.
    async fn find(&self, dependency: &Dependency) -> Result<(Arc<Served>, Vec<Object>), Error> {
        let Dependency {
            api_version,
            kind,
            namespace,
            name,
            ..
        } = dependency;
        let Some(served) = self.templates.need(api_version, kind) else {
            return Err(no_match(api_version, kind));
        };
        let found = match dependency.labels().map_err(Error::Blocked)? {
            None => {
                let one = self.templates.at_least(&served, namespace, name, 0).await?;
                one.into_iter().collect()
            }
            Some(labels) => {
                let means = |o: &Object| labels.matches(|key| o.head().label(key));
                let all = self.templates.some(&served, namespace, means);
                all.ok_or_else(|| Error::Blocked(format!("{kind} is not listed yet")))?
            }
        };
        Ok((served, found))
    }

    async fn attached_to(&self, referrer: &Referrer) -> Result<Vec<Object>, Error> {
        let mark = referrer.mark();
        let mut found = self.bindings.by_index(BY_REFERRER, &mark);
        found.retain(|attached| attached.namespace() == referrer.namespace);
        let mut uncached = self.made.lock().get(&mark).cloned().unwrap_or_default();
        found.iter().for_each(|attached| {
            uncached.remove(attached.name());
        });
        for name in uncached {
            let at = At::one(&BINDINGS, &referrer.namespace, &name);
            match self.api.get(at).await {
                Ok(attached) if marks(&attached).contains(&mark) => found.push(attached),
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => self.forget(&mark, &name),
            }
        }
        Ok(found)
    }

    fn forget(&self, mark: &str, name: &str) {
        if let Some(made) = self.made.lock().get_mut(mark) {
            made.remove(name);
        }
    }

    async fn orphans(
        &self,
        referrer: &Referrer,
        dependencies: &[Dependency],
    ) -> Result<Vec<Object>, Error> {
        let by_labels = dependencies.iter().any(|d| d.name.is_empty());
        let mut orphans = Vec::new();
        for attached in self.attached_to(referrer).await? {
            let view = attached.view::<Binding>()?;
            let of = &view.spec.resource;
            let object = match self.templates.kinds.find(&of.api_version, &of.kind) {
                Some(served) if by_labels => {
                    let (namespace, name) = (&of.namespace, &of.name);
                    self.templates.at_least(&served, namespace, name, 0).await?
                }
                _ => None,
            };
            let head = object.as_ref().map(Object::head);
            if is_orphan(of, head, dependencies).map_err(Error::Blocked)? {
                orphans.push(attached);
            }
        }
        Ok(orphans)
    }

    /// Detaches an independent binding from bindings that it no longer needs.
    async fn leave(&self, referrer: &Referrer, attached: Vec<Object>) -> Result<bool, Error> {
        let mut failed = Vec::new();
        let wrote = !attached.is_empty();
        for one in attached {
            let body = referrer.leave(&one.value()?, |ns, name| self.wish(ns, name));
            let at = At::of(&BINDINGS, &one);
            match self.api.update(at, body, &WriteOptions::default()).await {
                Err(error) if !error.is_not_found() => failed.push(error.into()),
                _ => self.forget(&referrer.mark(), one.name()),
            }
        }
        Error::of(failed).map(|()| wrote)
    }

    fn wish(&self, namespace: &str, name: &str) -> Option<Wish> {
        let binding = self.bindings.get(namespace, name)?;
        Some(Wish::of(&binding.view::<Binding>().ok()?.spec))
    }

    async fn attach(
        &self,
        referrer: &Referrer,
        served: &Served,
        object: &Object,
    ) -> Result<bool, Error> {
        let name = names::binding(served.kind(), object.name());
        let key = format!("{}/{name}", referrer.namespace);
        let Some(existing) = self.bindings.get_key(&key) else {
            let body = referrer.create(served, object);
            let at = At::all(&BINDINGS, &referrer.namespace);
            let options = WriteOptions::default();
            self.api.create(at, body, &options).await?;
            self.remember(referrer, name);
            self.note(&key, object);
            return Ok(true);
        };
        if existing.head().deleting {
            return Err(Error::Blocked(format!(
                "resourceBinding({key}) is being deleted"
            )));
        }
        let wish_of = |ns: &str, name: &str| self.wish(ns, name);
        let Ok(joined) = referrer.join(&existing.value()?, served, object, wish_of) else {
            return Err(Error::Blocked(format!(
                "failed to update resourceBinding({key}) due to different owner reference UID, \
                 will try again later after binding is garbage collected"
            )));
        };
        let (difference, conflict) = joined;
        self.tell_conflict(&existing, conflict);
        let body = match difference {
            Difference::Version(body) if self.is_another(&key, object) => body,
            Difference::Much(body) => body,
            Difference::Nothing | Difference::Version(_) => {
                self.note(&key, object);
                return Ok(false);
            }
        };
        let at = At::of(&BINDINGS, &existing);
        self.api.update(at, body, &WriteOptions::default()).await?;
        self.remember(referrer, name);
        self.note(&key, object);
        Ok(true)
    }

    fn remember(&self, referrer: &Referrer, attached: String) {
        let mut made = self.made.lock();
        made.entry(referrer.mark()).or_default().insert(attached);
    }

    /// Whether the object of an attached binding has changed since it was last observed.
    fn is_another(&self, key: &str, object: &Object) -> bool {
        let before = self.seen.lock().get(key).and_then(|seen| seen.object);
        before.is_some_and(|before| before != fingerprint(object))
    }

    fn note(&self, key: &str, object: &Object) {
        let mut seen = self.seen.lock();
        seen.entry(key.to_owned()).or_default().object = Some(fingerprint(object));
    }

    fn tell_conflict(&self, attached: &Object, conflict: Option<String>) {
        let known = {
            let mut seen = self.seen.lock();
            let seen = seen.entry(attached.head().key()).or_default();
            std::mem::replace(&mut seen.conflict, conflict.clone())
        };
        if let Some(text) = conflict.filter(|text| known.as_ref() != Some(text)) {
            let about = ObjectRef::of(attached);
            self.recorder
                .warning(&about, "DependencyPolicyConflict", text);
        }
    }
}

fn no_match(api_version: &str, kind: &str) -> Error {
    let text = format!("no matches for kind {kind:?} in version {api_version:?}");
    Error::Blocked(text)
}
