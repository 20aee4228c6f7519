//! Accounts for what a removal of a cluster has done: Works and the objects in them, the
//! execution space, the credentials, and what the join had created in the member. Pure.

use std::fmt;

use machinery::Object;
use serde_json::Value;

/// How many objects are listed by name.
const MAX_LISTED_OBJECTS: usize = 20;

/// A set of objects of which the first are kept by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectTally {
    pub count: usize,
    listed: Vec<String>,
}

impl ObjectTally {
    pub(super) fn add(&mut self, object: impl Into<String>) {
        self.count += 1;
        if self.listed.len() < MAX_LISTED_OBJECTS {
            self.listed.push(object.into());
        }
    }
}

impl fmt::Display for ObjectTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.listed.join(", "))?;
        match self.count - self.listed.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// The Works of a cluster and the objects that they hold in the member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkInventory {
    pub works: ObjectTally,
    pub objects: ObjectTally,
    /// The objects that stay in the member whenever their Work is deleted
    /// (`preserveResourcesOnDeletion`).
    pub preserved: ObjectTally,
}

impl WorkInventory {
    pub(super) fn add(&mut self, work: &Object) {
        self.works.add(work.name());
        let value = work.value().unwrap_or_default();
        let spec = &value["spec"];
        let tally = match spec["preserveResourcesOnDeletion"] == true {
            true => &mut self.preserved,
            false => &mut self.objects,
        };
        let manifests = spec["workload"]["manifests"].as_array();
        for manifest in manifests.into_iter().flatten() {
            tally.add(describe_manifest(manifest));
        }
    }
}

fn describe_manifest(manifest: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, metadata) = (text(&manifest["kind"]), &manifest["metadata"]);
    match metadata["namespace"].as_str() {
        Some(namespace) => format!("{kind} {namespace}/{}", text(&metadata["name"])),
        None => format!("{kind} {}", text(&metadata["name"])),
    }
}

/// The result of a removal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnjoinReport {
    /// The objects that were to be removed, and have not been in a dry run; `None` if the Works could not be
    /// listed.
    pub inventory: Option<WorkInventory>,
    /// The Works whose finalizers were removed by force.
    pub abandoned: Option<WorkInventory>,
    /// The cluster was not Ready meanwhile: Works are then deleted without their objects.
    pub was_unready: bool,
    pub execution_space: String,
    pub deleted_credentials: Vec<String>,
    pub remaining_credentials: Vec<String>,
    /// The deleted objects of those that the join had created in the member.
    pub deleted_in_member: Vec<String>,
    /// The objects that are left of them, and why.
    pub left_in_member: Vec<String>,
    pub dry_run: bool,
}

impl UnjoinReport {
    /// One line for each thing.
    pub fn lines(&self) -> Vec<String> {
        let done = if self.dry_run {
            "would be deleted"
        } else {
            "deleted"
        };
        let mut lines = self.work_lines(done);
        lines.push(format!("execution space: {} {done}", self.execution_space));
        for (what, names, done) in [
            ("credentials", &self.deleted_credentials, done),
            ("credentials", &self.remaining_credentials, "left"),
            ("member", &self.deleted_in_member, done),
            ("member", &self.left_in_member, "left"),
        ] {
            if !names.is_empty() {
                lines.push(format!("{what}: {} {done}", names.join(", ")));
            }
        }
        lines
    }

    fn work_lines(&self, done: &str) -> Vec<String> {
        let Some(WorkInventory {
            works,
            objects,
            preserved,
        }) = &self.inventory
        else {
            return Vec::new();
        };
        let mut lines = Vec::new();
        let abandoned = self.abandoned.clone().unwrap_or_default();
        let finished = works.count.saturating_sub(abandoned.works.count);
        let left = counted(
            objects.count.saturating_sub(abandoned.objects.count),
            "object",
        );
        match (finished, self.was_unready) {
            (0, _) if abandoned.works.count > 0 => {}
            (0, _) | (_, false) => lines.push(format!(
                "works: {finished} {done} with their {left} in the member"
            )),
            (_, true) => lines.push(format!(
                "works: {finished} {done}; {left} may be left in the member, which was not Ready: {objects}"
            )),
        }
        if preserved.count > 0 {
            lines.push(format!(
                "member: {} left, as their policies preserve them: {preserved}",
                counted(preserved.count, "object")
            ));
        }
        if abandoned.works.count > 0 {
            lines.push(format!(
                "works: {} given up by force; {} may be left in the member: {}",
                abandoned.works.count,
                counted(abandoned.objects.count, "object"),
                abandoned.objects
            ));
        }
        lines
    }
}

fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn work(name: &str, preserve: bool, objects: usize) -> Object {
        let manifest = |n: usize| json!({"kind": "ConfigMap", "metadata": {"namespace": "a", "name": format!("c{n}")}});
        let manifests: Vec<Value> = (0..objects).map(manifest).collect();
        let work = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"name": name, "namespace": "karmada-es-m1"},
            "spec": {"preserveResourcesOnDeletion": preserve, "workload": {"manifests": manifests}}});
        Object::from_value(&work).unwrap()
    }

    #[test]
    fn every_object_is_accounted_for() {
        let mut report = UnjoinReport {
            execution_space: "karmada-es-m1".into(),
            deleted_credentials: vec!["karmada-cluster/m1".into()],
            left_in_member: vec!["Namespace karmada-cluster".into()],
            ..UnjoinReport::default()
        };
        let mut inventory = WorkInventory::default();
        for (name, preserve, objects) in [("x", false, 2), ("y", false, 30), ("z", true, 1)] {
            inventory.add(&work(name, preserve, objects));
        }
        report.inventory = Some(inventory);
        let mut abandoned = WorkInventory::default();
        abandoned.add(&work("y", false, 30));
        report.abandoned = Some(abandoned);
        let lines = report.lines();
        assert_eq!(
            lines[0],
            "works: 2 deleted with their 2 objects in the member"
        );
        assert_eq!(
            lines[1],
            "member: 1 object left, as their policies preserve them: ConfigMap a/c0"
        );
        assert!(
            lines[2].starts_with(
                "works: 1 given up by force; 30 objects may be left in the member: ConfigMap a/c0, "
            ),
            "{}",
            lines[2]
        );
        assert!(lines[2].ends_with(" and 10 more"), "{}", lines[2]);
        assert_eq!(
            lines[3..],
            [
                "execution space: karmada-es-m1 deleted",
                "credentials: karmada-cluster/m1 deleted",
                "member: Namespace karmada-cluster left",
            ]
        );
    }

    /// (Works, by force, not Ready, first line)
    #[test]
    fn objects_of_a_member_that_is_not_ready_are_not_said_to_be_deleted() {
        for (works, forced, unready, expected) in [
            (
                1,
                0,
                false,
                "works: 1 deleted with their 1 object in the member",
            ),
            (
                0,
                0,
                true,
                "works: 0 deleted with their 0 objects in the member",
            ),
            (
                1,
                0,
                true,
                "works: 1 deleted; 1 object may be left in the member, which was not Ready: ConfigMap a/c0",
            ),
            (
                1,
                1,
                true,
                "works: 1 given up by force; 1 object may be left in the member: ConfigMap a/c0",
            ),
        ] {
            let inventory = |count: usize| {
                let mut inventory = WorkInventory::default();
                (0..count).for_each(|_| inventory.add(&work("x", false, 1)));
                Some(inventory)
            };
            let report = UnjoinReport {
                inventory: inventory(works),
                abandoned: inventory(forced),
                was_unready: unready,
                ..UnjoinReport::default()
            };
            assert_eq!(report.lines()[0], expected);
        }
    }

    #[test]
    fn a_dry_run_says_what_it_would_do() {
        let mut inventory = WorkInventory::default();
        inventory.add(&work("x", false, 1));
        let report = UnjoinReport {
            inventory: Some(inventory),
            execution_space: "karmada-es-m1".into(),
            dry_run: true,
            ..UnjoinReport::default()
        };
        assert_eq!(
            report.lines()[0],
            "works: 1 would be deleted with their 1 object in the member"
        );
    }
}
