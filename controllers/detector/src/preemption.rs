//! Lets policies with `preemption: Always` take over templates from policies of lower priority.
//!
//! A PropagationPolicy preempts PropagationPolicies of lower priority and every cluster policy; a
//! cluster policy preempts cluster policies of lower priority. Only templates that a selector names
//! are preempted. Preemption changes the claim on the template; the reconciliation of that change
//! updates the binding. Source: Karmada's `pkg/detector/preemption.go`.

use std::cmp::Reverse;

use client::{Informer, InvolvedObject, ResourcePath};
use controller_context::{Error, TemplateKey};
use flotilla_runtime::RestMapping;
use karmada_api::KarmadaFeature;
use karmada_api::well_known_keys::{CLUSTER_POLICY_NAME, POLICY_NAME, POLICY_NAMESPACE};
use machinery::Object;

use crate::controller::{BY_KIND, ResourceDetector, namespaced_name};
use crate::metrics::DETECTOR_METRICS;
use crate::policy_claim::PolicyClaim;
use crate::policy_matching::{ParsedPolicy, lookup_keys};

/// The policy that holds a template according to the template's annotations; the namespace of a
/// cluster policy is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimHolder {
    pub namespace: String,
    pub name: String,
}

impl ClaimHolder {
    /// The PropagationPolicy and the cluster policy that hold a template.
    fn holders_of(template: &Object) -> (Option<Self>, Option<Self>) {
        let annotations = template.annotations();
        let full = |key: &str| {
            let value = annotations.get(key).filter(|value| !value.is_empty());
            value.cloned()
        };
        let local = full(POLICY_NAMESPACE).zip(full(POLICY_NAME));
        let local = local.map(|(namespace, name)| Self { namespace, name });
        let of_cluster = full(CLUSTER_POLICY_NAME).map(|name| Self {
            namespace: String::new(),
            name,
        });
        (local, of_cluster)
    }

    fn is_policy(&self, policy: &Object) -> bool {
        self.namespace == policy.namespace() && self.name == policy.name()
    }

    /// The policy's name in the text of events.
    fn event_text(&self) -> String {
        let Self { namespace, name } = self;
        if namespace.is_empty() {
            format!("cluster propagation policy({name})")
        } else {
            format!("propagation policy({namespace}/{name})")
        }
    }
}

/// The policy from which `policy` may take the template. `priority_of` returns `None` for a policy
/// that does not exist.
pub fn preemptable_holder(
    policy: &ParsedPolicy,
    template: &Object,
    priority_of: impl Fn(&ClaimHolder) -> Option<i64>,
) -> Result<Option<ClaimHolder>, Error> {
    let (local, of_cluster) = ClaimHolder::holders_of(template);
    let is_local = !policy.object.namespace().is_empty();
    let rival = if is_local { &local } else { &of_cluster };
    if let Some(rival) = rival
        .as_ref()
        .filter(|rival| !rival.is_policy(&policy.object))
    {
        let priority = priority_of(rival).ok_or_else(|| policy_not_found(rival))?;
        if policy.view.spec.priority > priority {
            return Ok(Some(rival.clone()));
        }
    }
    Ok(of_cluster.filter(|_| is_local))
}

fn policy_not_found(holder: &ClaimHolder) -> Error {
    let kind = if holder.namespace.is_empty() {
        "ClusterPropagationPolicy"
    } else {
        "PropagationPolicy"
    };
    Error::Blocked(format!(
        "{kind}.policy.karmada.io {:?} not found",
        holder.name
    ))
}

/// The policies that may preempt a policy now that its priority is lowered, and could not before.
/// The highest priority comes first, so that no policy takes what the next one would take again.
pub fn newly_preempting_policies(before: i64, now: i64, others: Vec<Object>) -> Vec<ParsedPolicy> {
    let mut policies: Vec<ParsedPolicy> =
        others.into_iter().filter_map(ParsedPolicy::new).collect();
    policies.retain(|other| {
        let priority = other.view.spec.priority;
        other.preempts() && now < priority && priority < before
    });
    policies.sort_by_key(|other| Reverse(other.view.spec.priority));
    policies
}

impl ResourceDetector {
    /// Takes over the templates that the policy's selectors name, where it may.
    pub(crate) async fn preempt(
        &self,
        policy: &ParsedPolicy,
        claim: &PolicyClaim,
    ) -> Result<(), Error> {
        let mut failed = Vec::new();
        for selector in &policy.view.spec.resource_selectors {
            let kinds = &self.templates.rest_mapper;
            let Some(served) = kinds.find(&selector.api_version, &selector.kind) else {
                continue;
            };
            let local = policy.object.namespace();
            let namespace = if local.is_empty() {
                &selector.namespace
            } else {
                local
            };
            let key = TemplateKey {
                gvr: served.gvr.clone(),
                name: namespaced_name(namespace, &selector.name),
            };
            if let Some((_, template)) = self.templates.get(&key)
                && !template.meta().deleting
                && let Err(error) = self
                    .preempt_template(&served, &template, policy, claim)
                    .await
            {
                failed.push(error);
            }
        }
        Error::aggregate(failed)
    }

    /// Lets a policy take over a claimed template that it has missed: it may have been reconciled after
    /// the claim was decided, and before the claim was in the cache. Returns whether there is one.
    pub(crate) async fn preempt_claimed_template(
        &self,
        served: &RestMapping,
        template: &Object,
        holder: &PolicyClaim,
    ) -> Result<bool, Error> {
        if !self.is_enabled(KarmadaFeature::PropagationPolicyPreemption) {
            return Ok(false);
        }
        let Some((policy, claim)) = self.preempting_policy(served, template, holder) else {
            return Ok(false);
        };
        self.preempt_template(served, template, &policy, &claim)
            .await?;
        Ok(true)
    }

    fn preempting_policy(
        &self,
        served: &RestMapping,
        template: &Object,
        holder: &PolicyClaim,
    ) -> Option<(ParsedPolicy, PolicyClaim)> {
        let find = |informer: &Informer, namespace: &str| {
            let keys = lookup_keys(namespace, served, template.meta()).into_iter();
            let objects = keys.flat_map(|key| informer.by_index(BY_KIND, &key));
            objects.collect::<Vec<_>>()
        };
        let local = match template.namespace() {
            "" => Vec::new(),
            namespace => find(&self.policies, namespace),
        };
        let all = local.into_iter().chain(find(&self.cluster_policies, ""));
        let living = all.filter(|policy| !policy.meta().deleting);
        let claims = living.filter_map(|object| {
            let claim = PolicyClaim::by_policy(&object)?;
            Some((ParsedPolicy::new(object)?, claim))
        });
        let priority_of = |holder: &ClaimHolder| self.priority_of(holder);
        let able = claims.filter(|(policy, claim)| {
            claim.id != holder.id
                && policy.preempts()
                && policy.names_template(served, template)
                && preemptable_holder(policy, template, priority_of)
                    .is_ok_and(|victim| victim.is_some())
        });
        able.max_by_key(|(policy, _)| {
            let is_local = !policy.object.namespace().is_empty();
            (is_local, policy.view.spec.priority)
        })
    }

    fn priority_of(&self, holder: &ClaimHolder) -> Option<i64> {
        let informer = match holder.namespace.as_str() {
            "" => &self.cluster_policies,
            _ => &self.policies,
        };
        let held_by = informer.get(&holder.namespace, &holder.name)?;
        Some(ParsedPolicy::new(held_by)?.view.spec.priority)
    }

    async fn preempt_template(
        &self,
        served: &RestMapping,
        template: &Object,
        policy: &ParsedPolicy,
        claim: &PolicyClaim,
    ) -> Result<(), Error> {
        let priority_of = |holder: &ClaimHolder| self.priority_of(holder);
        let Some(victim) = preemptable_holder(policy, template, priority_of)? else {
            return Ok(());
        };
        let Some(patch) = claim.claim_patch(template) else {
            return Ok(());
        };
        let outcome = self
            .patch(ResourcePath::of_object(&served.gvr, template), patch)
            .await;
        DETECTOR_METRICS.record_preemption(outcome.is_ok());
        let about = InvolvedObject::new(&served.api_version, served.kind(), template);
        let who = if claim.is_cluster_scoped() {
            format!("Cluster propagation policy({})", claim.name)
        } else {
            format!("Propagation policy({}/{})", claim.namespace, claim.name)
        };
        let from = victim.event_text();
        match outcome {
            Ok(_) => {
                let text = format!("{who} preempted {from} successfully");
                self.recorder.normal(&about, "PreemptPolicySucceed", text);
                Ok(())
            }
            Err(error) => {
                let text = format!("{who} failed to preempt {from}: {error}");
                self.recorder.warning(&about, "PreemptPolicyFailed", text);
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::controller::tests::detector_with_gates;
    use super::*;
    use controller_testing::{DEPLOYMENTS, FederationFixture, deployment, wait_until};
    use karmada_api::FeatureGates;
    use karmada_api::resources::POLICIES;
    use karmada_api::well_known_keys::POLICY_ID;
    use serde_json::{Value, json};

    // proves: DET-preempt-race
    #[tokio::test]
    async fn a_policy_that_misses_a_claim_preempts_it_later() {
        let mut plane = FederationFixture::new();
        let named = |name: &str, priority: i64| {
            let selector = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
            let mut policy = controller_testing::policy(
                json!({"resourceSelectors": [selector], "priority": priority, "preemption": "Always"}),
            );
            policy["metadata"]["name"] = name.into();
            policy["metadata"]["labels"][POLICY_ID] = name.into();
            policy
        };
        plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
        plane.control_plane.seed(&POLICIES, named("low", 1));
        let gates =
            FeatureGates::default().with_feature(KarmadaFeature::PropagationPolicyPreemption, true);
        let detector = detector_with_gates(&mut plane, gates).await;
        let claimed_by = || {
            let stored = plane.control_plane.get_object(&DEPLOYMENTS, "n", "web");
            stored.unwrap()["metadata"]["labels"][POLICY_ID].clone()
        };
        plane.control_plane.pause_watches(&DEPLOYMENTS);
        detector.reconcile_queued().await;
        assert_eq!(claimed_by(), "low");
        plane.control_plane.seed(&POLICIES, named("high", 2));
        wait_until("the policy", || {
            detector.policies.get_by_key("n/high").is_some()
        })
        .await;
        detector.reconcile_policy("n/high").await.unwrap();
        detector.reconcile_queued().await;
        assert_eq!(claimed_by(), "low");
        plane.control_plane.resume_watches(&DEPLOYMENTS);
        wait_until("the claim", || !detector.queue.is_empty()).await;
        detector.reconcile_queued().await;
        assert_eq!(claimed_by(), "high");
        plane.tasks.stop().await;
    }

    fn policy(namespace: &str, name: &str, priority: i64) -> Object {
        let value = json!({"metadata": {"name": name, "namespace": namespace},
            "spec": {"priority": priority, "preemption": "Always"}});
        Object::from_value(&value).unwrap()
    }

    fn template(local: Option<&str>, of_cluster: Option<&str>) -> Object {
        let mut annotations = json!({});
        if let Some(name) = local {
            annotations[POLICY_NAMESPACE] = "n".into();
            annotations[POLICY_NAME] = name.into();
        }
        if let Some(name) = of_cluster {
            annotations[CLUSTER_POLICY_NAME] = name.into();
        }
        let value =
            json!({"metadata": {"name": "a", "namespace": "n", "annotations": annotations}});
        Object::from_value(&value).unwrap()
    }

    /// Other policies are named after their priorities.
    fn check(
        namespace: &str,
        (local, of_cluster): (Option<&str>, Option<&str>),
        expected: Result<Option<&str>, ()>,
    ) {
        let own = ParsedPolicy::new(policy(namespace, "own", 5)).unwrap();
        let by_name = |holder: &ClaimHolder| holder.name.parse().ok();
        let actual = preemptable_holder(&own, &template(local, of_cluster), by_name);
        let named = actual.map(|v| v.map(|v| v.event_text())).map_err(drop);
        let case = format!("{namespace} {local:?} {of_cluster:?}");
        assert_eq!(named, expected.map(|v| v.map(str::to_owned)), "{case}");
    }

    // proves: DET-preempt-pp, DET-preempt-cpp, DET-preempt-strictly, DET-preempt-missing
    #[test]
    fn a_policy_preempts_lower_policies_and_all_cluster_policies() {
        check("n", (None, None), Ok(None));
        check("n", (Some("4"), None), Ok(Some("propagation policy(n/4)")));
        check("n", (Some("5"), None), Ok(None));
        check("n", (Some("6"), None), Ok(None));
        check("n", (Some("own"), None), Ok(None));
        check("n", (Some("gone"), None), Err(()));
        let any = Ok(Some("cluster propagation policy(9)"));
        check("n", (None, Some("9")), any);
        check("n", (Some("own"), Some("9")), any);
    }

    // proves: DET-preempt-by-cpp, DET-preempt-missing
    #[test]
    fn a_cluster_policy_preempts_lower_cluster_policies_only() {
        check("", (None, None), Ok(None));
        check("", (Some("1"), None), Ok(None));
        check(
            "",
            (None, Some("4")),
            Ok(Some("cluster propagation policy(4)")),
        );
        check("", (None, Some("5")), Ok(None));
        check("", (None, Some("own")), Ok(None));
        check("", (None, Some("gone")), Err(()));
    }

    // proves: DET-preempt-lowered
    #[test]
    fn policies_between_old_and_new_priority_may_preempt() {
        let mut never = policy("n", "never", 3).value().unwrap();
        never["spec"]["preemption"] = Value::from("Never");
        let never = Object::from_value(&never).unwrap();
        let with = |priority: i64| policy("n", &priority.to_string(), priority);
        let all = vec![with(1), with(2), never, with(4), with(3), with(5)];
        let policies = newly_preempting_policies(5, 1, all);
        let names: Vec<&str> = policies.iter().map(|p| p.object.name()).collect();
        assert_eq!(names, ["4", "3", "2"]);
    }
}
