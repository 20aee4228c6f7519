//! How a changed template would go through its clusters, as data and as lines of text. Pure.

use karmada_api::rollout::RolloutStatus;
use serde::Serialize;

use crate::printers::{format_table, single_line};
use crate::rollout::RevisionDifference;

/// The effect of a changed template on its clusters.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TemplateChangeReport {
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Whether a cluster would get something else.
    pub(crate) changes: bool,
    /// Whether a policy changes, and the template stays as it is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_of_policy: bool,
    /// Whether it has no binding, so that no cluster has it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_unpropagated: bool,
    /// The policy that stages the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    /// The first stage, and the state of the rollout then.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) stage: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) state: String,
    pub(crate) clusters: Vec<PlannedCluster>,
    pub(crate) differences: Vec<RevisionDifference>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

/// The revision of a cluster now and after the first step.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlannedCluster {
    pub(crate) name: String,
    pub(crate) stage: String,
    /// Empty if changes of the template are not staged.
    pub(crate) now: String,
    pub(crate) then: String,
    pub(crate) gets_change: bool,
    pub(crate) reason: String,
}

impl TemplateChangeReport {
    pub(super) fn note_empty_stages(&mut self, names: &[String]) {
        if !names.is_empty() {
            let names = names.join(", ");
            self.notes
                .push(format!("stages that have no cluster are passed: {names}"));
        }
    }

    pub(super) fn note_missing(&mut self, names: &[String]) {
        if !names.is_empty() {
            let names = names.join(", ");
            self.notes
                .push(format!("stages name clusters that do not exist: {names}"));
        }
    }

    /// Says which clusters would pass the stages of a rollout that has not ended, once no policy stages
    /// it any more.
    pub(super) fn note_skipped_stages(&mut self, before: Option<&RolloutStatus>) {
        let Some(before) = before else {
            return;
        };
        let is_running = self
            .clusters
            .iter()
            .any(|c| !c.now.is_empty() && c.now != before.target_revision);
        let changed = self.clusters.iter().filter(|c| c.gets_change);
        let names: Vec<&str> = changed.map(|c| &*c.name).collect();
        if is_running && !names.is_empty() {
            let (count, names) = (names.len(), names.join(", "));
            self.notes.push(format!(
                "its rollout has not ended: {count} of its clusters would get its content at once, without their stages: {names}"
            ));
        }
    }

    /// The report as lines of text.
    pub(crate) fn lines(&self) -> Vec<String> {
        let template = format!("{} {}/{}", self.kind, self.namespace, self.name);
        let begin = match (&self.policy, &*self.stage) {
            (None, _) if self.is_unpropagated => {
                "it is not propagated yet, and no RolloutPolicy would stage its changes".to_owned()
            }
            (Some(policy), _) if self.is_unpropagated => format!(
                "it is not propagated yet: its first revision goes to all clusters at once, and {policy} would stage later changes"
            ),
            (None, _) if self.is_of_policy => {
                "no RolloutPolicy would stage its changes, all clusters get them at once".to_owned()
            }
            (Some(policy), "") if self.is_of_policy => format!("{policy} would stage its changes"),
            (Some(policy), stage) if self.is_of_policy => format!(
                "{policy} would stage its changes, {stage} is the first stage that has not ended ({})",
                self.state
            ),
            _ if !self.changes => "nothing of a revision changes".to_owned(),
            (None, _) => {
                "no RolloutPolicy selects it, all clusters get the change at once".to_owned()
            }
            (Some(policy), "") => format!("{policy} lets all clusters get the change at once"),
            (Some(policy), stage) => {
                format!(
                    "{policy} stages the change, {stage} is the first stage ({})",
                    self.state
                )
            }
        };
        let mut lines = vec![format!("{template}: {begin}")];
        if !self.is_unpropagated && (self.changes || self.is_of_policy) {
            let row = |cluster: &PlannedCluster| {
                let then = match cluster.gets_change {
                    true => "the change",
                    false => "stays",
                };
                vec![
                    cluster.name.clone(),
                    cluster.stage.clone(),
                    cluster.now.clone(),
                    then.to_owned(),
                    cluster.reason.clone(),
                ]
            };
            let rows: Vec<Vec<String>> = self.clusters.iter().map(row).collect();
            lines.push(format_table(
                &["CLUSTER", "STAGE", "NOW", "FIRST", "NOTE"],
                &rows,
            ));
        }
        for difference in self.differences.iter().filter(|d| !d.fields.is_empty()) {
            let clusters = difference.clusters.join(", ");
            lines.push(match &*difference.revision {
                "" => format!("Changes in {clusters}:"),
                revision => format!("Changes of {revision} ({clusters}):"),
            });
            let fields = difference.fields.iter();
            lines.extend(fields.map(|field| format!("  {}", single_line(field))));
        }
        let notes = self.notes.iter();
        lines.extend(notes.map(|note| format!("NOTE: {}", single_line(note))));
        lines
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // proves: CLI-plan-unpropagated
    #[test]
    fn a_template_that_is_not_propagated_is_staged_after_its_first_revision() {
        for (policy, is_of_policy, expected) in [
            (
                Some("RolloutPolicy/p"),
                true,
                "it is not propagated yet: its first revision goes to all clusters at once, and RolloutPolicy/p would stage later changes",
            ),
            (
                None,
                false,
                "it is not propagated yet, and no RolloutPolicy would stage its changes",
            ),
        ] {
            let report = TemplateChangeReport {
                kind: "Deployment".into(),
                namespace: "n".into(),
                name: "web".into(),
                policy: policy.map(str::to_owned),
                is_of_policy,
                is_unpropagated: true,
                ..TemplateChangeReport::default()
            };
            assert_eq!(report.lines(), [format!("Deployment n/web: {expected}")]);
        }
    }

    // proves: CLI-plan-unstaged
    #[test]
    fn clusters_that_would_pass_the_stages_are_noted() {
        let status = json!({"targetRevision": "2"});
        let status: RolloutStatus = serde_json::from_value(status).unwrap();
        let notes = |revisions: [&str; 2], changed: [bool; 2]| {
            let cluster = |(name, now, gets_change): (&str, &str, bool)| PlannedCluster {
                name: name.into(),
                stage: String::new(),
                now: now.into(),
                then: String::new(),
                gets_change,
                reason: String::new(),
            };
            let [a, b] = revisions;
            let mut report = TemplateChangeReport {
                clusters: [("a", a, changed[0]), ("b", b, changed[1])]
                    .map(cluster)
                    .into(),
                ..TemplateChangeReport::default()
            };
            report.note_skipped_stages(Some(&status));
            report.notes.join("\n")
        };
        assert_eq!(notes(["2", "2"], [true, true]), "");
        assert_eq!(
            notes(["2", "1"], [false, true]),
            "its rollout has not ended: 1 of its clusters would get its content at once, without their stages: b"
        );
        assert!(notes(["2", "1"], [true, true]).ends_with("stages: a, b"));
    }

    // proves: CLI-plan-rollout
    #[test]
    fn a_staged_change_says_who_gets_it_first_and_what_it_changes() {
        let cluster = |name: &str, stage: &str, gets_change: bool, reason: &str| PlannedCluster {
            name: name.into(),
            stage: stage.into(),
            now: "web-1".into(),
            then: if gets_change { "web-2" } else { "web-1" }.into(),
            gets_change,
            reason: reason.into(),
        };
        let report = TemplateChangeReport {
            kind: "Deployment".into(),
            namespace: "n".into(),
            name: "web".into(),
            changes: true,
            policy: Some("RolloutPolicy web".into()),
            stage: "canary".into(),
            state: "Progressing".into(),
            clusters: vec![
                cluster("a", "canary", true, ""),
                cluster("b", "rest", false, "WaitingForStage"),
            ],
            differences: vec![RevisionDifference {
                revision: "web-1".into(),
                clusters: vec!["a".into(), "b".into()],
                fields: vec![r#"spec.image: "nginx:1" -> "nginx:2\n""#.into()],
            }],
            notes: vec!["stages name clusters that do not exist: z".into()],
            ..TemplateChangeReport::default()
        };
        let expected = "\
Deployment n/web: RolloutPolicy web stages the change, canary is the first stage (Progressing)
CLUSTER   STAGE    NOW     FIRST        NOTE
a         canary   web-1   the change   -
b         rest     web-1   stays        WaitingForStage
Changes of web-1 (a, b):
  spec.image: \"nginx:1\" -> \"nginx:2\\n\"
NOTE: stages name clusters that do not exist: z";
        assert_eq!(report.lines().join("\n"), expected);
    }
}
