//! Translates the managers of an object to the managers of its `scale` subresource and back
//! (`managedfields/scalehandler.go`).

use std::collections::BTreeMap;

use crate::field_set::FieldSet;
use crate::managed_fields::ManagedFields;
use crate::manager::ManagedFieldSet;
use crate::path_element::PathElement;

const SCALE_API_VERSION: &str = "autoscaling/v1";

/// The replicas field of a kind, by version.
#[derive(Clone, Debug, Default)]
pub struct ScaleEntries {
    /// `None` for a version without `scale` subresource.
    replicas_paths: BTreeMap<Box<str>, Option<Vec<PathElement>>>,
}

impl ScaleEntries {
    /// From JSON paths like `.spec.replicas`.
    pub fn new<'p>(versions: impl IntoIterator<Item = (&'p str, Option<&'p str>)>) -> Self {
        let element_path = |path: &str| {
            let names = path.split('.').filter(|name| !name.is_empty());
            names.map(PathElement::field).collect()
        };
        let versions = versions.into_iter();
        Self {
            replicas_paths: versions
                .map(|(version, path)| (version.into(), path.map(element_path)))
                .collect(),
        }
    }

    fn replicas_in_scale() -> FieldSet {
        let path = [PathElement::field("spec"), PathElement::field("replicas")];
        [path].into_iter().collect()
    }

    /// The managers of the Scale, which are the managers of the object's replicas.
    pub fn to_scale(&self, parent: &ManagedFields) -> ManagedFields {
        let mut scale = ManagedFields::default();
        for (id, managed) in &parent.sets {
            let Some(Some(path)) = self.replicas_paths.get(&managed.api_version) else {
                continue;
            };
            if managed.set.contains(path) {
                scale.sets.insert(
                    id.clone(),
                    ManagedFieldSet {
                        set: Self::replicas_in_scale(),
                        api_version: SCALE_API_VERSION.into(),
                    },
                );
            }
        }
        scale.times = parent.times.clone();
        scale
    }

    /// The managers of the object after a write of its Scale in a version of the object.
    pub fn to_parent(
        &self,
        parent: &ManagedFields,
        scale: &ManagedFields,
        api_version: &str,
    ) -> ManagedFields {
        // As in Kubernetes, an entry that is new by this write has no time.
        let mut new = ManagedFields {
            times: parent.times.clone(),
            ..ManagedFields::default()
        };
        let mut rest = scale.sets.clone();
        for (id, managed) in &parent.sets {
            // Entries in unknown versions are dropped.
            let Some(path) = self.replicas_paths.get(&managed.api_version) else {
                continue;
            };
            let owned = path.as_ref().filter(|path| managed.set.contains(path));
            let mut managed = managed.clone();
            if let Some(path) = owned
                && rest.remove(id).is_none()
            {
                // Another manager took the replicas.
                managed.set = managed.set.difference(&[path].into_iter().collect());
            }
            if !managed.set.is_empty() {
                new.sets.insert(id.clone(), managed);
            }
        }
        let own_path = self.replicas_paths.get(api_version).cloned().flatten();
        let replicas = Self::replicas_in_scale();
        for (id, managed) in rest {
            let Some(path) = &own_path else { break };
            if managed.set.intersection(&replicas).is_empty() {
                continue;
            }
            let set: FieldSet = [path].into_iter().collect();
            let set = match new.sets.get(&id) {
                Some(managed) => managed.set.union(&set),
                None => set,
            };
            let api_version = api_version.into();
            new.sets.insert(id, ManagedFieldSet { set, api_version });
        }
        new
    }
}
