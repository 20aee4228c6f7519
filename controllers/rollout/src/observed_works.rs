//! Reads what a step needs of the Works of a template, each version of a Work once: the report of one
//! member is a reason to look at the Works of all clusters.

use std::collections::HashMap;
use std::mem;

use karmada_api::rollout::REVISION;
use karmada_api::work::WorkStatus;
use machinery::Object;
use machinery::bounded_text::truncated;
use serde::Deserialize;

use crate::decision::ObservedReplicas;
use crate::reported_replicas::{has_old_replicas, read_counters, replicas_of_manifest};

/// The bytes of the reason of a member that a status shows.
const MAX_MESSAGE_BYTES: usize = 256;

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReportedWork {
    status: WorkStatus,
}

/// A Work, and what the member reports in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObservedWork {
    /// The revision from which it was made; empty if it names none.
    pub(crate) revision: String,
    /// The revision that the object in the member carried when its health was observed.
    pub(crate) reported_revision: String,
    pub(crate) healthy: bool,
    /// Without those that the cluster should have.
    pub(crate) replicas: ObservedReplicas,
    /// Why the Work is not applied; empty if it is.
    pub(crate) message: String,
}

impl ObservedWork {
    /// Reads the Work of an object of a group.
    pub(crate) fn read(group: &str, work: &Object) -> Self {
        let bytes = work.bytes();
        let mut observed = Self {
            revision: work.annotation(REVISION).unwrap_or_default(),
            ..Self::default()
        };
        observed.replicas.in_manifest = replicas_of_manifest(&bytes);
        let Ok(report) = machinery::json::from_slice::<ReportedWork>(&bytes) else {
            return observed;
        };
        let status = report.status;
        if let Some(manifest) = status.manifest_statuses.first() {
            observed.reported_revision.clone_from(&manifest.revision);
            let has_old_replicas = manifest.status.as_ref().is_some_and(has_old_replicas);
            let is_healthy = manifest.health == "Healthy";
            observed.healthy = is_healthy && !has_old_replicas;
            let replicas = &mut observed.replicas;
            read_counters(group, manifest.status.as_ref(), is_healthy, replicas);
        }
        let mut conditions = status.conditions.iter();
        if let Some(applied) =
            conditions.find(|c| c.condition_type == "Applied" && c.status != "True")
        {
            observed.message = truncated(&applied.message, MAX_MESSAGE_BYTES).into_owned();
            if observed.message.is_empty() {
                "the Work is not applied".clone_into(&mut observed.message);
            }
        }
        observed
    }
}

/// Works by namespace, with the version that was read.
type ReadWorks = HashMap<String, (u64, ObservedWork)>;

/// The Works of a template that steps have read.
#[derive(Default)]
pub(crate) struct ObservedWorks {
    former: ReadWorks,
    current: ReadWorks,
}

impl ObservedWorks {
    /// Begins a step, which forgets the Works that the one before has not looked at.
    pub(crate) fn begin_step(&mut self) {
        self.former = mem::take(&mut self.current);
    }

    /// Reads the Work of an object of a group, unless the step before has read this version.
    pub(crate) fn observe(&mut self, group: &str, work: &Object) -> ObservedWork {
        let version = work.revision();
        let former = self.former.remove(work.namespace());
        let (_, observed) = former
            .filter(|(former_version, _)| *former_version == version)
            .unwrap_or_else(|| (version, ObservedWork::read(group, work)));
        let namespace = work.namespace().to_owned();
        self.current.insert(namespace, (version, observed.clone()));
        observed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    // proves: ROL-health-exact
    #[test]
    fn health_is_that_of_the_revision_in_the_member() {
        let report = |health: &str, revision: &str, status: Value| json!({"health": health, "revision": revision, "status": status});
        let web = |replicas: i64, updated: i64| json!({"replicas": replicas, "updatedReplicas": updated, "availableReplicas": 1});
        for (applied, reported, expected) in [
            ("True", report("Healthy", "1", web(1, 1)), ("1", true, "")),
            // The old pod is available, and the new one is not.
            ("True", report("Healthy", "1", web(2, 1)), ("1", false, "")),
            (
                "True",
                report("Unhealthy", "1", web(1, 1)),
                ("1", false, ""),
            ),
            ("True", report("Healthy", "0", json!(null)), ("0", true, "")),
            (
                "False",
                report("Healthy", "1", json!({})),
                ("1", true, "because"),
            ),
        ] {
            let condition = json!({"type": "Applied", "status": applied, "message": "because"});
            let work = json!({"metadata": {"name": "w", "annotations": {REVISION: "1"}},
                "status": {"conditions": [condition], "manifestStatuses": [reported]}});
            let work = Object::from_value(&work).unwrap();
            let observed = ObservedWork::read("apps", &work);
            let actual = (
                &*observed.reported_revision,
                observed.healthy,
                &*observed.message,
            );
            assert_eq!((&*observed.revision, actual), ("1", expected), "{reported}");
        }
    }

    #[test]
    fn a_version_of_a_work_is_read_once() {
        let work = |cluster: &str, version: u64, revision: &str| {
            let metadata = json!({"name": "w", "namespace": cluster, "annotations": {REVISION: revision},
                "resourceVersion": version.to_string()});
            Object::from_value(&json!({"metadata": metadata})).unwrap()
        };
        let mut works = ObservedWorks::default();
        let mut step = |all: &[(&str, u64, &str)]| -> Vec<String> {
            works.begin_step();
            let observed = all.iter().map(|(cluster, version, revision)| {
                let work = work(cluster, *version, revision);
                works.observe("apps", &work).revision
            });
            observed.collect()
        };
        assert_eq!(step(&[("a", 1, "old"), ("b", 2, "old")]), ["old", "old"]);
        // Only what has another version is read.
        let changed = [("a", 1, "new"), ("b", 3, "new")];
        assert_eq!(step(&changed), ["old", "new"]);
        assert_eq!(step(&[("b", 3, "newer")]), ["new"]);
        // A Work that the step before has not looked at is read again.
        assert_eq!(step(&[("a", 1, "new")]), ["new"]);
    }
}
