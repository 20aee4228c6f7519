//! Lets a policy have the templates that it had already preceded when they were created.
//!
//! Policies and templates have watches of their own, so the detector may match a template before it
//! sees an older policy of higher rank. It remembers its recent matches; a policy whose revision is
//! lower than that of a template matched before is late, and the template is matched again. Behind
//! a host policies and templates have revisions of different stores, which tell nothing.

use controller_context::TemplateKey;
use flotilla_runtime::{PriorityQueueLane, RestMapping};
use machinery::Object;

use crate::controller::{ResourceDetector, TemplateReconcileTrigger};
use crate::policy_matching::{ParsedPolicy, highest_ranked};
use crate::recent_matches::LatePolicyKeys;

impl ResourceDetector {
    /// Records that a template is about to be matched.
    pub(crate) fn record_match(&self, key: &TemplateKey, template: &Object) {
        if !self.host_workloads.is_behind_host() {
            let mut recent = self.recent_matches.lock();
            recent.record(key.clone(), template.revision());
        }
    }

    /// Enqueues the templates that were matched before this older policy was seen.
    pub(crate) fn enqueue_matched_too_early(&self, policy: &Object) {
        let newer = self.recent_matches.lock().newer_than(policy.revision());
        if newer.is_empty() {
            return;
        }
        let Some(parsed) = ParsedPolicy::new(policy.clone()) else {
            return;
        };
        for key in newer {
            let Some((served, template)) = self.templates.get(&key) else {
                continue;
            };
            // Another server counts revisions of its own.
            if self.templates.is_aggregated(&key.gvr) || !parsed.matches(&served, template.meta()) {
                continue;
            }
            let late = LatePolicyKeys::from([policy.meta().key()]);
            self.recent_matches.lock().add_late_policies(&key, late);
            let cause = TemplateReconcileTrigger {
                template_changed: true,
                by_karmada: false,
            };
            self.enqueue(key, cause, PriorityQueueLane::High);
        }
    }

    /// The late policy that ranks above the one that has claimed the template.
    pub(crate) fn better_late_policy(
        &self,
        late: &LatePolicyKeys,
        served: &RestMapping,
        template: &Object,
        holder: &ParsedPolicy,
    ) -> Option<ParsedPolicy> {
        let policies = late.iter().filter_map(|key| {
            let informer = match key.contains('/') {
                true => &self.policies,
                false => &self.cluster_policies,
            };
            informer.get_by_key(key)
        });
        let candidates = policies.chain([holder.object.clone()]);
        let (cluster_policies, policies): (Vec<_>, Vec<_>) =
            candidates.partition(|policy| policy.namespace().is_empty());
        let best = highest_ranked(policies, served, template.meta())
            .or_else(|| highest_ranked(cluster_policies, served, template.meta()))?;
        (best.object.uid() != holder.object.uid()).then_some(best)
    }
}

#[cfg(test)]
mod tests {
    use super::super::controller::tests::detector_without_workers;
    use super::*;
    use controller_testing::{DEPLOYMENTS, FederationFixture, deployment, policy, wait_until};
    use karmada_api::resources::POLICIES;
    use karmada_api::well_known_keys::{POLICY_ID, POLICY_NAME};
    use serde_json::{Value, json};

    fn named_policy(name: &str, priority: i64) -> Value {
        let mut value = policy(json!({"priority": priority}));
        value["metadata"]["name"] = name.into();
        value["metadata"]["uid"] = name.into();
        value["metadata"]["labels"][POLICY_ID] = name.into();
        value
    }

    // proves: DET-late-policy
    #[tokio::test]
    async fn an_older_policy_that_is_seen_late_gets_the_template_and_a_younger_one_does_not() {
        let mut plane = FederationFixture::new();
        let control_plane = plane.control_plane.clone();
        control_plane.seed(&POLICIES, named_policy("low", 0));
        let detector = detector_without_workers(&mut plane).await;
        control_plane.pause_watches(&POLICIES);
        control_plane.seed(&POLICIES, named_policy("high", 1));
        control_plane.seed(&DEPLOYMENTS, deployment("web"));
        let key = TemplateKey {
            gvr: DEPLOYMENTS.clone(),
            name: "n/web".into(),
        };
        let claimed_by = |name: &str| {
            let template = detector.templates.get(&key);
            template.is_some_and(|(_, template)| {
                template.annotations().get(POLICY_NAME).map(String::as_str) == Some(name)
            })
        };
        wait_until("the template", || !detector.queue.is_empty()).await;
        detector.reconcile_queued().await;
        wait_until("the claim", || claimed_by("low")).await;
        detector.reconcile_queued().await;
        assert!(claimed_by("low"));

        control_plane.resume_watches(&POLICIES);
        wait_until("the late policy", || !detector.queue.is_empty()).await;
        detector.reconcile_queued().await;
        wait_until("the better claim", || claimed_by("high")).await;
        detector.reconcile_queued().await;

        control_plane.seed(&POLICIES, named_policy("younger", 2));
        wait_until("the younger policy", || {
            detector.policies.get_by_key("n/younger").is_some()
        })
        .await;
        for policy in ["n/low", "n/high", "n/younger"] {
            detector.reconcile_policy(policy).await.unwrap();
        }
        detector.reconcile_queued().await;
        assert!(claimed_by("high"));
        plane.tasks.stop().await;
    }
}
