//! The status of a template whose changes are staged: it must not say that all replicas are updated
//! while clusters have an older revision.

use client::InformerEvent;
use karmada_api::Rollout;
use karmada_api::binding::AggregatedStatusItem;
use machinery::{Gvk, Object};
use serde_json::Value;

use super::aggregate::Aggregation;

/// The counters of replicas that have the newest content of the object in their cluster.
const UPDATED_COUNTERS: [&str; 3] = [
    "updatedReplicas",
    "updatedReadyReplicas",
    "updatedNumberScheduled",
];
/// The ControllerRevisions in the status of a StatefulSet, by which kubectl rollout status decides.
const CURRENT_REVISION: &str = "currentRevision";
const UPDATE_REVISION: &str = "updateRevision";

/// The revisions of a rollout that has a status.
pub(super) struct StagedStatus {
    target: String,
    stable: String,
}

impl StagedStatus {
    /// The rollout of a template; `None` if it is another one's, or has no status yet.
    pub(super) fn of(rollout: &Object, template: &Object) -> Option<Self> {
        let owner = rollout.meta().controller()?;
        let view = rollout.decode::<Rollout>().ok()?;
        let status = view.status.as_ref()?;
        (*owner.uid == *template.uid()).then(|| Self {
            target: status.target_revision.clone(),
            stable: status.stable_revision.clone(),
        })
    }

    /// The items, in which only clusters that have reported the target have updated replicas.
    pub(super) fn without_outdated(&self, aggregation: &Aggregation) -> Vec<AggregatedStatusItem> {
        let mut items = aggregation.items.clone();
        let outdated = items.iter_mut().filter(|item| {
            let reported = aggregation.revisions.get(&item.cluster_name);
            reported != Some(&self.target)
        });
        for status in outdated.filter_map(|item| item.status.as_mut()?.as_object_mut()) {
            for (_, counter) in status
                .iter_mut()
                .filter(|(field, _)| UPDATED_COUNTERS.contains(&field.as_str()))
            {
                *counter = 0.into();
            }
        }
        items
    }
}

/// Names in the status of a StatefulSet the revision that has gone through all stages and the one
/// that goes through them; without a rollout, neither.
pub(super) fn set_revisions(kind: &Gvk, status: &mut Value, staged: Option<&StagedStatus>) {
    if (&*kind.group, &*kind.kind) != ("apps", "StatefulSet") {
        return;
    }
    let Some(fields) = status.as_object_mut() else {
        return;
    };
    fields.remove(CURRENT_REVISION);
    fields.remove(UPDATE_REVISION);
    if let Some(staged) = staged {
        fields.insert(CURRENT_REVISION.into(), staged.stable.as_str().into());
        fields.insert(UPDATE_REVISION.into(), staged.target.as_str().into());
    }
}

/// Whether a change of a Rollout concerns the status of its template.
pub(super) fn has_other_revisions(change: &InformerEvent<'_>) -> bool {
    let revisions = |object: Option<&Object>| {
        let view = object?.decode::<Rollout>().ok()?;
        let status = view.status.as_ref()?;
        Some((
            status.target_revision.clone(),
            status.stable_revision.clone(),
        ))
    };
    revisions(change.old) != revisions(change.new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: ROL-status
    #[test]
    fn only_clusters_with_the_target_have_updated_replicas() {
        let staged = StagedStatus {
            target: "2".into(),
            stable: "1".into(),
        };
        let item = |cluster: &str| AggregatedStatusItem {
            cluster_name: cluster.into(),
            status: Some(json!({"replicas": 3, "updatedReplicas": 3, "updatedReadyReplicas": 2})),
            ..AggregatedStatusItem::default()
        };
        let reported = [("a", "2"), ("b", "1")].map(|(cluster, r)| (cluster.into(), r.into()));
        let items = staged.without_outdated(&Aggregation {
            items: ["a", "b", "c"].map(item).into(),
            revisions: reported.into(),
        });
        let counters: Vec<String> = items
            .iter()
            .map(|item| {
                let status = item.status.as_ref().unwrap();
                let fields = ["replicas", "updatedReplicas", "updatedReadyReplicas"];
                fields.map(|field| status[field].to_string()).join(" ")
            })
            .collect();
        assert_eq!(counters, ["3 3 2", "3 0 0", "3 0 0"]);
    }

    // proves: ROL-status
    #[test]
    fn a_stateful_set_names_its_revisions_while_it_is_staged() {
        let kind = Gvk::new("apps", "v1", "StatefulSet");
        let staged = StagedStatus {
            target: "2".into(),
            stable: "1".into(),
        };
        let mut status = json!({"replicas": 1});
        set_revisions(&kind, &mut status, Some(&staged));
        let expected = json!({"replicas": 1, "currentRevision": "1", "updateRevision": "2"});
        assert_eq!(status, expected);
        set_revisions(&kind, &mut status, None);
        assert_eq!(status, json!({"replicas": 1}));
        set_revisions(
            &Gvk::new("apps", "v1", "Deployment"),
            &mut status,
            Some(&staged),
        );
        assert_eq!(status, json!({"replicas": 1}));
    }
}
