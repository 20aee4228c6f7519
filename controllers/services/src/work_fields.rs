//! Builds the Works of Services from the fields that this crate sets, and tells the results of
//! writing them apart.

use client::Error;
use controller_context::{WorkClient, complete_manifest};
use karmada_api::well_known_keys::{TEMPLATE_UID, WORK_ID};
use machinery::Object;
use machinery::object::MalformedObject;
use serde_json::{Value, json};

/// Keys and values of labels or annotations; `None` removes.
pub(crate) type Entries<'a> = [(&'a str, Option<&'a str>)];

/// Sets labels or annotations; returns whether something changed.
pub(crate) fn set_entries(object: &mut Value, map: &str, entries: &Entries<'_>) -> bool {
    if entries.is_empty() {
        return false;
    }
    let map = &mut object["metadata"][map];
    let mut changed = false;
    for &(key, value) in entries {
        if map.get(key).and_then(Value::as_str) == value {
            continue;
        }
        changed = true;
        match (value, map.as_object_mut()) {
            (Some(value), _) => map[key] = value.into(),
            (None, Some(entries)) => drop(entries.remove(key)),
            (None, None) => {}
        }
    }
    changed
}

/// The fields of a Work that a controller sets; others stay.
pub(crate) struct WorkFields<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) labels: &'a Entries<'a>,
    pub(crate) annotations: &'a Entries<'a>,
    pub(crate) finalizers: &'a [&'a str],
    pub(crate) spec: Value,
}

impl WorkFields<'_> {
    /// The Work with these fields, based on the existing one; `None` when nothing has to change.
    pub(crate) fn apply_to(
        self,
        existing: Option<&Object>,
    ) -> Result<Option<Value>, MalformedObject> {
        let mut work = match existing {
            Some(existing) => existing.value()?,
            None => json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
                "metadata": {"namespace": self.namespace, "name": self.name}}),
        };
        let mut changed = work["spec"] != self.spec;
        work["spec"] = self.spec;
        changed |= set_entries(&mut work, "labels", self.labels);
        changed |= set_entries(&mut work, "annotations", self.annotations);
        let finalizers = &mut work["metadata"]["finalizers"];
        if !finalizers.is_array() {
            *finalizers = json!([]);
        }
        for &finalizer in self.finalizers {
            if let Some(all) = finalizers.as_array_mut()
                && !all.iter().any(|f| f == finalizer)
            {
                all.push(finalizer.into());
                changed = true;
            }
        }
        Ok(changed.then_some(work))
    }
}

/// An object as the admission of Works leaves it, so that the same object is the same manifest.
pub(crate) fn work_manifest(
    object: &Object,
    (api_version, kind): (&str, &str),
    (namespace, name): (&str, &str),
    existing: Option<&Object>,
) -> Result<Value, MalformedObject> {
    let mut manifest = object.value()?;
    manifest["apiVersion"] = api_version.into();
    manifest["kind"] = kind.into();
    manifest["metadata"]["annotations"][TEMPLATE_UID] = object.uid().into();
    complete_manifest(&mut manifest, (namespace, name), work_id(existing));
    Ok(manifest)
}

/// The permanent id of an existing Work.
pub(crate) fn work_id(existing: Option<&Object>) -> Option<&str> {
    existing.and_then(|work| work.meta().label(WORK_ID))
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkWrite {
    Written,
    /// The Work or its cluster is gone; an event follows.
    Gone,
    /// The Work has changed meanwhile.
    Conflict,
}

/// Creates a Work, or updates the existing one.
pub(crate) async fn write_work(
    works: &WorkClient,
    namespace: &str,
    work: Value,
    existing: Option<&Object>,
) -> Result<WorkWrite, Error> {
    match works.write(namespace, work, existing).await {
        Ok(true) => Ok(WorkWrite::Written),
        Ok(false) => Ok(WorkWrite::Conflict),
        Err(e) if e.is_conflict() || e.is_already_exists() => Ok(WorkWrite::Conflict),
        Err(e) if existing.is_some() && e.is_not_found() => Ok(WorkWrite::Gone),
        Err(e) if e.is_namespace_terminating() => Ok(WorkWrite::Gone),
        Err(e) => Err(e),
    }
}

/// Deletes a Work unless it is being deleted. Returns whether it was there.
pub(crate) async fn delete_work(works: &WorkClient, work: &Object) -> Result<bool, Error> {
    match works.delete(work).await {
        // Another Work of that name; its creation is an event.
        Err(e) if e.is_conflict() => Ok(false),
        deleted => deleted,
    }
}
