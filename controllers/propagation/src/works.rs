//! Works: their form, and bringing one up to date.
//!
//! Enters: a manifest ready for one cluster. Leaves: a created or updated Work, or
//! nothing when it is there already. Writes Works only. Source: Karmada's
//! `pkg/controllers/ctrlutil/work.go`.

use std::collections::HashMap;
use std::sync::Arc;

use client::{Api, At, DeleteOptions, WriteOptions};
use machinery::Object;
use openapi::karmada::labels::{
    APPLIED_CLUSTER_OVERRIDES, APPLIED_OVERRIDES, MANAGED, MANAGED_VALUE, TEMPLATE_UID,
    WORK_FINALIZER, WORK_ID, WORK_NAME, WORK_NAMESPACE,
};
use openapi::karmada::resources::WORKS;
use openapi::karmada_prune::{prune, record_managed};
use parking_lot::Mutex;
use runtime::Informer;
use serde_json::{Map, Value, json};

use crate::error::Error;

/// A write of ours is under way; what is heard meanwhile is its echo.
const UNDER_WAY: u64 = u64::MAX;

/// A Work as its maker wants it.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) labels: Map<String, Value>,
    pub(crate) annotations: Map<String, Value>,
    /// Empty, or the controlling owner.
    pub(crate) owners: Vec<Value>,
    pub(crate) manifest: Value,
    /// Where nothing is said of these two, the Work says nothing either.
    pub(crate) suspend_dispatching: Option<bool>,
    pub(crate) preserve_on_deletion: Option<bool>,
}

impl Draft {
    /// The manifest with the marks of its Work.
    fn finish(&mut self, template_uid: &str, id: Option<&str>) {
        let manifest = &mut self.manifest;
        set(manifest, "labels", MANAGED, MANAGED_VALUE);
        if let Some(id) = id {
            set(manifest, "labels", WORK_ID, id);
        }
        set(manifest, "annotations", TEMPLATE_UID, template_uid);
        set(manifest, "annotations", WORK_NAME, &self.name);
        set(manifest, "annotations", WORK_NAMESPACE, &self.namespace);
        prune(manifest, true);
        record_managed(manifest);
    }

    fn spec(&mut self) -> Value {
        let mut spec = json!({"workload": {"manifests": [self.manifest.take()]}});
        for (name, said) in [
            ("suspendDispatching", self.suspend_dispatching),
            ("preserveResourcesOnDeletion", self.preserve_on_deletion),
        ] {
            if let Some(said) = said {
                spec[name] = said.into();
            }
        }
        spec
    }

    fn create(mut self) -> Value {
        let spec = self.spec();
        let mut metadata = json!({
            "name": self.name, "namespace": self.namespace, "finalizers": [WORK_FINALIZER],
            "labels": self.labels, "annotations": self.annotations,
        });
        if !self.owners.is_empty() {
            metadata["ownerReferences"] = self.owners.into();
        }
        json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": metadata, "spec": spec})
    }

    /// The existing Work brought up to date; `None` when it is.
    fn update(mut self, existing: Value) -> Option<Value> {
        let mut new = existing.clone();
        let spec = self.spec();
        let metadata = &mut new["metadata"];
        for (field, ours) in [("labels", self.labels), ("annotations", self.annotations)] {
            let map = &mut metadata[field];
            if !map.is_object() {
                *map = json!({});
            }
            if let Some(map) = map.as_object_mut() {
                for gone in [APPLIED_OVERRIDES, APPLIED_CLUSTER_OVERRIDES] {
                    if field == "annotations" && !ours.contains_key(gone) {
                        map.remove(gone);
                    }
                }
                map.extend(ours);
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
        }
        if !self.owners.is_empty() {
            metadata["ownerReferences"] = self.owners.into();
        }
        new["spec"] = spec;
        (new != existing).then_some(new)
    }
}

/// Sets a label or an annotation of a manifest.
pub(crate) fn set(manifest: &mut Value, map: &str, key: &str, value: &str) {
    let Some(fields) = manifest.as_object_mut() else {
        return;
    };
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        let entries = metadata.entry(map).or_insert(Value::Null);
        if !entries.is_object() {
            *entries = json!({});
        }
        if let Some(entries) = entries.as_object_mut() {
            entries.insert(key.to_owned(), value.into());
        }
    }
}

/// The Works of the control plane, with a memory of the own writes.
#[derive(Clone)]
pub(crate) struct Works {
    api: Arc<dyn Api>,
    pub(crate) informer: Informer,
    written: Arc<Mutex<HashMap<String, u64>>>,
}

impl Works {
    pub(crate) fn new(api: Arc<dyn Api>, informer: Informer) -> Self {
        Self {
            api,
            informer,
            written: Arc::default(),
        }
    }

    /// Whether a version of a Work is one that [`Self::put`] wrote.
    pub(crate) fn is_own(&self, work: &Object) -> bool {
        let written = self.written.lock();
        let revision = written.get(&work.head().key());
        revision.is_some_and(|r| *r == UNDER_WAY || *r == work.revision())
    }

    /// A Work is gone: its own writes no longer matter.
    pub(crate) fn forget(&self, work: &Object) {
        self.written.lock().remove(&work.head().key());
    }

    /// Creates or updates a Work; tells whether anything was written.
    pub(crate) async fn put(&self, mut draft: Draft, template_uid: &str) -> Result<bool, Error> {
        let key = format!("{}/{}", draft.namespace, draft.name);
        let Some(existing) = self.informer.get_key(&key) else {
            draft.finish(template_uid, None);
            let namespace = draft.namespace.clone();
            let at = At::all(&WORKS, &namespace);
            let options = WriteOptions::default();
            let created = self.api.create(at, draft.create(), &options).await;
            return Ok(created.map(|_| true)?);
        };
        if existing.head().deleting {
            return Err(Error::Blocked(format!("work {key} is being deleted")));
        }
        draft.finish(template_uid, existing.head().label(WORK_ID));
        let Some(body) = draft.update(existing.value()?) else {
            return Ok(false);
        };
        self.written.lock().insert(key.clone(), UNDER_WAY);
        let at = At::of(&WORKS, &existing);
        let outcome = self.api.update(at, body, &WriteOptions::default()).await;
        let mut written = self.written.lock();
        match &outcome {
            Ok(work) => written.insert(key, work.revision()),
            Err(_) => written.remove(&key),
        };
        Ok(outcome.map(|_| true)?)
    }

    /// Issues the deletion of a Work.
    pub(crate) async fn delete(&self, work: &Object) -> Result<(), Error> {
        if work.head().deleting {
            return Ok(());
        }
        self.forget(work);
        let options = DeleteOptions {
            uid: Some(work.uid().to_owned()),
            ..DeleteOptions::default()
        };
        match self.api.delete(At::of(&WORKS, work), &options).await {
            Err(e) if !e.is_not_found() => Err(e.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft() -> Draft {
        Draft {
            namespace: "karmada-es-m".into(),
            name: "w".into(),
            labels: Map::from_iter([("l".to_owned(), json!("1"))]),
            annotations: Map::from_iter([(APPLIED_OVERRIDES.to_owned(), json!("[]"))]),
            owners: vec![],
            manifest: json!({"kind": "X", "metadata": {"name": "x", "uid": "u"}, "status": {}}),
            suspend_dispatching: Some(false),
            preserve_on_deletion: None,
        }
    }

    // proves: WRK-merged
    #[test]
    fn what_others_say_of_a_work_stays_but_for_its_spec() {
        let mut theirs = draft();
        theirs.finish("t", None);
        let mut theirs = theirs.create();
        theirs["metadata"]["labels"] = json!({"theirs": "1", "l": "old"});
        theirs["metadata"]["annotations"] = json!({"note": "theirs"});
        theirs["metadata"]["finalizers"] = json!(["their/finalizer"]);
        theirs["spec"]["preserveResourcesOnDeletion"] = true.into();
        theirs["spec"]["more"] = "theirs".into();
        theirs["spec"]["workload"]["manifests"] = json!([{"kind": "Y"}, {"kind": "Z"}]);
        let mut ours = draft();
        ours.finish("t", None);
        let new = ours.update(theirs).unwrap();
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
        let mut fresh = draft();
        fresh.finish("t", None);
        assert_eq!(new["spec"], fresh.create()["spec"]);
    }

    // proves: WRK-no-write, WRK-marks, WRK-work-id, WRK-pruned, WRK-record-goes
    #[test]
    fn a_work_that_says_the_same_is_not_written() {
        let mut first = draft();
        first.finish("t", Some("id"));
        let created = first.create();
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
        let mut again = draft();
        again.finish("t", Some("id"));
        assert_eq!(again.update(created.clone()), None);
        let mut other = draft();
        other.annotations.clear();
        other.suspend_dispatching = Some(true);
        other.finish("t", Some("id"));
        let new = other.update(created).unwrap();
        assert_eq!(new["spec"]["suspendDispatching"], true);
        assert_eq!(new["spec"].get("preserveResourcesOnDeletion"), None);
        assert_eq!(new["metadata"]["annotations"], json!({}));
    }
}
