//! Builds Works, and creates, updates or deletes them only where they differ. Source: Karmada's
//! `pkg/controllers/ctrlutil/work.go`.

use std::sync::Arc;

use client::{Api, DeleteOptions, Informer, Patch, ResourcePath, WriteOptions, ignore_not_found};
use flotilla_runtime::Expectations;
use karmada_api::Work;
use karmada_api::prune::{prune, record_managed_keys};
use karmada_api::resources::WORKS;
use karmada_api::rollout::REVISION;
use karmada_api::well_known_keys::{
    APPLIED_CLUSTER_OVERRIDES, APPLIED_OVERRIDES, BINDING_ID, BINDING_NAME, BINDING_NAMESPACE,
    CLUSTER_BINDING_ID, CLUSTER_BINDING_NAME, MANAGED, MANAGED_VALUE, OVERRIDDEN_FIELDS,
    STATUS_COLLECTION, TEMPLATE_UID, WORK_FINALIZER, WORK_ID, WORK_NAME, WORK_NAMESPACE,
};
use machinery::Object;
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::object_metadata::set_metadata_entry;

/// Labels, annotates and prunes a manifest as the admission of Works does, so that the same object
/// is the same manifest. `id` is the permanent id of the existing Work.
pub fn complete_manifest(manifest: &mut Value, (namespace, name): (&str, &str), id: Option<&str>) {
    set_metadata_entry(manifest, "labels", MANAGED, MANAGED_VALUE);
    if let Some(id) = id {
        set_metadata_entry(manifest, "labels", WORK_ID, id);
    }
    set_metadata_entry(manifest, "annotations", WORK_NAME, name);
    set_metadata_entry(manifest, "annotations", WORK_NAMESPACE, namespace);
    prune(manifest, true);
    record_managed_keys(manifest);
}

/// The annotations of a Work that go when it no longer needs them.
const COMPUTED_ANNOTATIONS: [&str; 5] = [
    APPLIED_OVERRIDES,
    APPLIED_CLUSTER_OVERRIDES,
    OVERRIDDEN_FIELDS,
    STATUS_COLLECTION,
    REVISION,
];

/// The key of the binding that a Work's annotations name: `namespace/name`, or the name of a cluster
/// binding.
pub fn binding_key_of_work(work: &Object) -> Option<String> {
    let annotations = work.annotations();
    if let Some(name) = annotations.get(CLUSTER_BINDING_NAME) {
        return Some(name.to_owned());
    }
    let (namespace, name) = (
        annotations.get(BINDING_NAMESPACE)?,
        annotations.get(BINDING_NAME)?,
    );
    Some(format!("{namespace}/{name}"))
}

/// A Work as its controller needs it.
#[derive(Debug)]
pub struct DesiredWork {
    pub namespace: String,
    pub name: String,
    pub labels: Map<String, Value>,
    pub annotations: Map<String, Value>,
    /// Empty, or the controlling owner.
    pub owner_references: Vec<Value>,
    pub manifest: Value,
    /// `None` leaves the field out of the Work.
    pub suspend_dispatching: Option<bool>,
    pub preserve_resources_on_deletion: Option<bool>,
}

impl DesiredWork {
    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The Work that is to be written: a new one, or the existing one with its changes; `None` if
    /// that is up to date.
    pub fn into_body(
        mut self,
        existing: Option<&Object>,
        template_uid: &str,
    ) -> Result<Option<Value>, Error> {
        let Some(existing) = existing else {
            self.prepare_manifest(template_uid, None);
            return Ok(Some(self.into_new_work()));
        };
        if existing.meta().deleting {
            let key = existing.meta().key();
            return Err(Error::Blocked(format!("work {key} is being deleted")));
        }
        self.check_ownership(existing)?;
        self.prepare_manifest(template_uid, existing.meta().label(WORK_ID));
        Ok(self.into_updated_work(existing.value()?))
    }

    /// Labels, annotates and prunes the manifest for its Work.
    fn prepare_manifest(&mut self, template_uid: &str, id: Option<&str>) {
        let manifest = &mut self.manifest;
        set_metadata_entry(manifest, "annotations", TEMPLATE_UID, template_uid);
        complete_manifest(manifest, (&self.namespace, &self.name), id);
    }

    /// Fails if the existing Work belongs to another binding, or to none: a Work is of the binding
    /// whose permanent id it carries. A binding may take over the Work of a Namespace that is
    /// propagated automatically.
    fn check_ownership(&self, existing: &Object) -> Result<(), Error> {
        let id = |label: &str| self.labels.get(label).and_then(Value::as_str);
        let same = |label: &&str| existing.meta().label(label) == id(label);
        if [BINDING_ID, CLUSTER_BINDING_ID].iter().all(same) {
            return Ok(());
        }
        let owner = existing.meta().controller();
        let of_binding = |label: &str| existing.meta().label(label).is_some();
        let automatic = owner.is_some_and(|owner| &*owner.kind == "Namespace")
            && !of_binding(BINDING_ID)
            && !of_binding(CLUSTER_BINDING_ID);
        match automatic {
            true => Ok(()),
            false => Err(Error::ForeignWork(existing.meta().key())),
        }
    }

    /// Moves the manifest, which may be large, into the spec.
    fn take_spec(&mut self) -> Value {
        let manifests = Value::Array(vec![self.manifest.take()]);
        let workload = Map::from_iter([("manifests".to_owned(), manifests)]);
        let mut spec = Map::from_iter([("workload".to_owned(), workload.into())]);
        for (name, value) in [
            ("suspendDispatching", self.suspend_dispatching),
            (
                "preserveResourcesOnDeletion",
                self.preserve_resources_on_deletion,
            ),
        ] {
            if let Some(value) = value {
                spec.insert(name.to_owned(), value.into());
            }
        }
        spec.into()
    }

    fn into_new_work(mut self) -> Value {
        let spec = self.take_spec();
        let mut metadata = json!({
            "name": self.name, "namespace": self.namespace, "finalizers": [WORK_FINALIZER],
            "labels": self.labels, "annotations": self.annotations,
        });
        if !self.owner_references.is_empty() {
            metadata["ownerReferences"] = self.owner_references.into();
        }
        let mut work =
            json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": metadata});
        work["spec"] = spec;
        work
    }

    /// Updates the existing Work in place; returns `None` if it is up to date.
    fn into_updated_work(mut self, mut work: Value) -> Option<Value> {
        let spec = self.take_spec();
        let metadata = &mut work["metadata"];
        let mut changed = false;
        for (field, own_values) in [("labels", self.labels), ("annotations", self.annotations)] {
            // The API server drops empty maps; writing one would change nothing.
            if own_values.is_empty() && metadata.get(field).is_none() {
                continue;
            }
            let map = &mut metadata[field];
            if !map.is_object() {
                *map = json!({});
            }
            if let Some(map) = map.as_object_mut() {
                for annotation in COMPUTED_ANNOTATIONS {
                    if field == "annotations" && !own_values.contains_key(annotation) {
                        changed |= map.remove(annotation).is_some();
                    }
                }
                for (key, value) in own_values {
                    changed |= map.get(&key) != Some(&value);
                    map.insert(key, value);
                }
            }
        }
        let finalizers = &mut metadata["finalizers"];
        if !finalizers.is_array() {
            *finalizers = json!([]);
        }
        if let Some(list) = finalizers.as_array_mut()
            && !list.iter().any(|f| f == WORK_FINALIZER)
        {
            list.push(WORK_FINALIZER.into());
            changed = true;
        }
        let owners = Value::from(self.owner_references);
        if owners != json!([]) && metadata["ownerReferences"] != owners {
            metadata["ownerReferences"] = owners;
            changed = true;
        }
        changed |= work["spec"] != spec;
        work["spec"] = spec;
        changed.then_some(work)
    }
}

/// Writes Works and remembers its own updates.
#[derive(Clone)]
pub struct WorkClient {
    api: Arc<dyn Api>,
    pub informer: Informer,
    own_updates: Arc<Expectations<String>>,
}

impl WorkClient {
    pub fn new(api: Arc<dyn Api>, informer: Informer) -> Self {
        Self {
            api,
            informer,
            own_updates: Arc::default(),
        }
    }

    /// Whether [`Self::create_or_update`] wrote this version of a Work, or may have written it while
    /// an update is not answered.
    pub fn is_own_update(&self, work: &Object) -> bool {
        self.own_updates.is_own_write(&work.meta().key(), work)
    }

    /// Forgets the own updates of each Work that is deleted, for a controller whose own handler does
    /// not.
    pub fn forget_deleted(&self) {
        let own_updates = Arc::clone(&self.own_updates);
        self.informer.add_event_handler(move |change| {
            if change.new.is_none() {
                own_updates.forget(&change.key());
            }
        });
    }

    /// Forgets the own updates of a deleted Work.
    pub fn forget(&self, work: &Object) {
        self.own_updates.forget(&work.meta().key());
    }

    /// Creates or updates a Work; returns whether it was written.
    pub async fn create_or_update(
        &self,
        draft: DesiredWork,
        template_uid: &str,
    ) -> Result<bool, Error> {
        let key = draft.key();
        let namespace = draft.namespace.clone();
        let at = ResourcePath::object(&WORKS, &namespace, &draft.name);
        let existing = self.own_updates.read(&*self.api, &self.informer, at);
        let existing = existing.await?;
        let Some(body) = draft.into_body(existing.as_ref(), template_uid)? else {
            return Ok(false);
        };
        match self.write(&namespace, body, existing.as_ref()).await? {
            true => Ok(true),
            false => Err(Error::ConcurrentUpdate(key)),
        }
    }

    /// Creates a Work, or updates the existing one. Returns false if another writer changed it right
    /// after the update.
    pub async fn write(
        &self,
        namespace: &str,
        work: Value,
        existing: Option<&Object>,
    ) -> client::Result<bool> {
        let options = WriteOptions::default();
        let Some(existing) = existing else {
            let at = ResourcePath::collection(&WORKS, namespace);
            self.api.create(at, work.into(), &options).await?;
            return Ok(true);
        };
        let key = existing.meta().key();
        let _pending = self.own_updates.begin_write(&key);
        let at = ResourcePath::of_object(&WORKS, existing);
        let updated = self.api.update(at, work.into(), &options).await?;
        let look = || self.informer.get_by_key(&key);
        Ok(!self.own_updates.expect(&key, &updated, look))
    }

    /// Sets `preserveResourcesOnDeletion` of a Work that has it not.
    pub async fn preserve(&self, work: &Object) -> Result<(), Error> {
        let view = work.decode::<Work>()?;
        if view.spec.preserve_resources_on_deletion == Some(true) {
            return Ok(());
        }
        let patch = json!({"metadata": {"uid": work.uid()},
            "spec": {"preserveResourcesOnDeletion": true}});
        let at = ResourcePath::of_object(&WORKS, work);
        let options = WriteOptions::default();
        let written = self.api.patch(at, Patch::Merge(patch), &options).await;
        ignore_not_found(written)?;
        Ok(())
    }

    /// Deletes a Work unless its deletion has begun. Returns whether the Work was there.
    pub async fn delete(&self, work: &Object) -> client::Result<bool> {
        if work.meta().deleting {
            return Ok(false);
        }
        self.forget(work);
        let options = DeleteOptions {
            uid: Some(work.uid().to_owned()),
            ..DeleteOptions::default()
        };
        let at = ResourcePath::of_object(&WORKS, work);
        Ok(ignore_not_found(self.api.delete(at, &options).await)?.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::{InformerFactory, ListWatchSelector, ShutdownToken, TaskGroup};
    use client_fake::FakeApi;

    fn desired_work() -> DesiredWork {
        DesiredWork {
            namespace: "karmada-es-m".into(),
            name: "w".into(),
            labels: Map::from_iter([("l".to_owned(), json!("1"))]),
            annotations: Map::from_iter([(APPLIED_OVERRIDES.to_owned(), json!("[]"))]),
            owner_references: vec![],
            manifest: json!({"kind": "X", "metadata": {"name": "x", "uid": "u"}, "status": {}}),
            suspend_dispatching: Some(false),
            preserve_resources_on_deletion: None,
        }
    }

    // proves: WRK-merged
    #[test]
    fn an_update_keeps_foreign_metadata_but_not_the_foreign_spec() {
        let mut existing = desired_work();
        existing.prepare_manifest("t", None);
        let mut existing = existing.into_new_work();
        existing["metadata"]["labels"] = json!({"theirs": "1", "l": "old"});
        existing["metadata"]["annotations"] = json!({"note": "theirs"});
        existing["metadata"]["finalizers"] = json!(["their/finalizer"]);
        existing["spec"]["preserveResourcesOnDeletion"] = true.into();
        existing["spec"]["more"] = "theirs".into();
        existing["spec"]["workload"]["manifests"] = json!([{"kind": "Y"}, {"kind": "Z"}]);
        let mut desired = desired_work();
        desired.prepare_manifest("t", None);
        let new = desired.into_updated_work(existing).unwrap();
        let metadata = &new["metadata"];
        assert_eq!(metadata["labels"], json!({"theirs": "1", "l": "1"}));
        assert_eq!(
            metadata["annotations"],
            json!({"note": "theirs", APPLIED_OVERRIDES: "[]"})
        );
        assert_eq!(
            metadata["finalizers"],
            json!(["their/finalizer", WORK_FINALIZER])
        );
        let mut fresh = desired_work();
        fresh.prepare_manifest("t", None);
        assert_eq!(new["spec"], fresh.into_new_work()["spec"]);
    }

    /// Serves one Work that [`desired_work`] describes.
    async fn client_with_one_work(fake: &Arc<FakeApi>, informers: &InformerFactory) -> WorkClient {
        let mut first = desired_work();
        first.prepare_manifest("t", None);
        fake.seed(&WORKS, first.into_new_work());
        let api: Arc<dyn Api> = fake.clone();
        let informer = informers.get(&api, &ListWatchSelector::all(&WORKS));
        informer.wait_for_cache_sync().await;
        WorkClient::new(api, informer)
    }

    /// Another writer edits a Work between an own update and its answer. The event handler receives
    /// both versions before the answer and cannot distinguish them.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_edit_during_an_own_update_is_no_own_update() {
        let fake = FakeApi::new();
        let tasks = TaskGroup::new(ShutdownToken::new());
        let informers = InformerFactory::new(&tasks);
        let works = client_with_one_work(&fake, &informers).await;
        let client = works.clone();
        works.informer.add_event_handler(move |change| {
            if let (Some(_), Some(new)) = (change.old, change.new) {
                assert!(client.is_own_update(new));
            }
        });
        let (server, copy) = (Arc::downgrade(&fake), works.informer.clone());
        fake.on_write(move |call| {
            if call.verb == "update" {
                let server = server.upgrade().unwrap();
                let mut edited = server.get_object(&WORKS, "karmada-es-m", "w").unwrap();
                edited["spec"]["suspendDispatching"] = true.into();
                let edited = server.seed(&WORKS, edited);
                let is_there = |o: Object| o.revision() >= edited.revision();
                while !copy.get("karmada-es-m", "w").is_some_and(is_there) {
                    std::thread::yield_now();
                }
                // The handler runs right after the cache has changed.
                std::thread::park_timeout(std::time::Duration::from_millis(50));
            }
        });
        let mut changed = desired_work();
        changed.labels.insert("more".into(), json!("2"));
        let outcome = works.create_or_update(changed, "t").await;
        assert!(
            matches!(outcome, Err(Error::ConcurrentUpdate(_))),
            "{outcome:?}"
        );
        tasks.stop().await;
    }

    /// The Work is deleted between an own update and its answer.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_update_of_a_deleted_work_is_forgotten() {
        let fake = FakeApi::new();
        let tasks = TaskGroup::new(ShutdownToken::new());
        let informers = InformerFactory::new(&tasks);
        let works = client_with_one_work(&fake, &informers).await;
        let client = works.clone();
        works.informer.add_event_handler(move |change| {
            if change.new.is_none() {
                client.forget(change.object());
            }
        });
        let (server, copy) = (Arc::downgrade(&fake), works.informer.clone());
        fake.on_write(move |call| {
            if call.verb == "update" {
                let server = server.upgrade().unwrap();
                server.remove(&WORKS, "karmada-es-m", "w");
                while !copy.is_empty() {
                    std::thread::yield_now();
                }
                std::thread::park_timeout(std::time::Duration::from_millis(50));
            }
        });
        let mut changed = desired_work();
        changed.labels.insert("more".into(), json!("2"));
        let key = "karmada-es-m/w".to_owned();
        let existing = works.informer.get_by_key(&key).unwrap();
        works.create_or_update(changed, "t").await.unwrap();
        assert!(!works.own_updates.is_ahead_of(&key, &existing));
        tasks.stop().await;
    }

    // proves: WRK-no-write, WRK-marks, WRK-work-id, WRK-pruned, WRK-record-goes
    #[test]
    fn an_unchanged_work_is_not_written() {
        let mut first = desired_work();
        first.prepare_manifest("t", Some("id"));
        let created = first.into_new_work();
        let manifest = &created["spec"]["workload"]["manifests"][0];
        assert_eq!(
            manifest["metadata"]["labels"],
            json!({MANAGED: "true", WORK_ID: "id"})
        );
        assert_eq!(manifest["metadata"]["annotations"][TEMPLATE_UID], "t");
        assert_eq!(
            (manifest.get("status"), manifest["metadata"].get("uid")),
            (None, None)
        );
        let mut again = desired_work();
        again.prepare_manifest("t", Some("id"));
        assert_eq!(again.into_updated_work(created.clone()), None);
        let mut other = desired_work();
        other.annotations.clear();
        other.suspend_dispatching = Some(true);
        other.prepare_manifest("t", Some("id"));
        let new = other.into_updated_work(created).unwrap();
        assert_eq!(new["spec"]["suspendDispatching"], true);
        assert_eq!(new["spec"].get("preserveResourcesOnDeletion"), None);
        assert_eq!(new["metadata"]["annotations"], json!({}));
    }
}
