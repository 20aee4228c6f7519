//! Explains in words which policy a template belongs to.

use std::fmt;

use detector::{
    ClaimHolder, ParsedPolicy, PolicyClaim, newly_preempting_policies, preemptable_holder,
    rank_matching,
};
use flotilla_runtime::RestMapping;
use karmada_api::KarmadaFeature;
use karmada_api::policy::ImplicitPriority;
use karmada_api::well_known_keys::{CLAIMED_BY, is_reserved_namespace};
use machinery::Object;
use serde::Serialize;

use crate::simulation_input::{PolicyChange, SimulationInput};

/// The name of a policy as it is printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyReference {
    pub kind: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
}

impl PolicyReference {
    pub(crate) fn of_policy(policy: &Object) -> Self {
        Self::new(policy.namespace(), policy.name())
    }

    fn new(namespace: &str, name: &str) -> Self {
        Self {
            kind: if namespace.is_empty() {
                "ClusterPropagationPolicy"
            } else {
                "PropagationPolicy"
            },
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for PolicyReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}

/// A policy that selects the template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MatchingPolicy {
    #[serde(flatten)]
    pub policy: PolicyReference,
    pub priority: i64,
    /// The most specific selector that it has: `Name`, `Labels` or `Kind`.
    pub selects_by: &'static str,
}

/// The policy of a template and the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClaimExplanation {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyReference>,
    pub why: String,
    /// All policies that select it, highest rank first: PropagationPolicies before cluster
    /// policies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<MatchingPolicy>,
}

/// The policies that select the template, highest rank first.
fn selecting_policies(
    input: &SimulationInput<'_>,
    served: &RestMapping,
    template: &Object,
) -> Vec<(ImplicitPriority, ParsedPolicy)> {
    let (cluster, local): (Vec<&Object>, Vec<&Object>) = input
        .policies
        .iter()
        .partition(|p| p.namespace().is_empty());
    let rank =
        |some: Vec<&Object>| rank_matching(some.into_iter().cloned(), served, template.meta());
    let mut all = rank(local);
    all.extend(rank(cluster));
    all
}

fn candidates(selecting: &[(ImplicitPriority, ParsedPolicy)]) -> Vec<MatchingPolicy> {
    let candidate = |(closeness, policy): &(ImplicitPriority, ParsedPolicy)| MatchingPolicy {
        policy: PolicyReference::of_policy(&policy.object),
        priority: policy.view.spec.priority,
        selects_by: selector_basis(*closeness),
    };
    selecting.iter().map(candidate).collect()
}

fn selector_basis(closeness: ImplicitPriority) -> &'static str {
    match closeness {
        ImplicitPriority::Mismatch => "",
        ImplicitPriority::MatchAll => "Kind",
        ImplicitPriority::MatchLabelSelector => "Labels",
        ImplicitPriority::MatchName => "Name",
    }
}

fn find_policy<'a>(input: &SimulationInput<'a>, namespace: &str, name: &str) -> Option<&'a Object> {
    let mut policies = input.policies.iter();
    policies.find(|p| p.namespace() == namespace && p.name() == name)
}

/// The override policies that a policy waits for.
pub(crate) fn missing_overrides(input: &SimulationInput<'_>, policy: &ParsedPolicy) -> Vec<String> {
    let namespace = policy.object.namespace();
    let there = |name: &&String| {
        let mut all = input.overrides.iter();
        all.any(|o| o.namespace() == namespace && o.name() == name.as_str())
    };
    let needed = policy.view.spec.dependent_overrides.iter();
    needed.filter(|name| !there(name)).cloned().collect()
}

pub(crate) fn waiting_for_overrides(overrides: &[String]) -> String {
    format!(
        "the policy waits for override policies: {}",
        overrides.join(", ")
    )
}

/// Explains the present claim.
pub(crate) fn explain_present_claim(
    input: &SimulationInput<'_>,
    served: &RestMapping,
    template: &Object,
) -> ClaimExplanation {
    let all = selecting_policies(input, served, template);
    let candidates = candidates(&all);
    let Some(claim) = PolicyClaim::on_object(template) else {
        return ClaimExplanation {
            policy: None,
            why: explain_unclaimed(input, template, &all),
            candidates,
        };
    };
    let name = PolicyReference::new(&claim.namespace, &claim.name);
    let reason = match candidates.iter().position(|c| c.policy == name) {
        Some(0) => explain_first_candidate(&candidates),
        Some(_) => format!(
            "it claimed the template first; {} ranks higher, but does not preempt it",
            candidates[0].policy
        ),
        None => match find_policy(input, &claim.namespace, &claim.name) {
            None => "it claimed the template, and no longer exists".to_owned(),
            Some(p) if p.meta().deleting => "it claimed the template, and is being deleted".into(),
            Some(_) => "it claimed the template, and no longer selects it".into(),
        },
    };
    ClaimExplanation {
        policy: Some(name),
        why: reason,
        candidates,
    }
}

fn explain_first_candidate(candidates: &[MatchingPolicy]) -> String {
    let Some(best) = candidates.first() else {
        return String::new();
    };
    let how = match best.selects_by {
        "Name" => "by its name",
        "Labels" => "by its labels",
        _ => "by its kind alone",
    };
    match candidates.len() {
        1 => format!("it alone selects the template ({how})"),
        n => format!(
            "it comes first of {n} policies that select the template (priority {}, {how})",
            best.priority
        ),
    }
}

fn explain_unclaimed(
    input: &SimulationInput<'_>,
    template: &Object,
    all: &[(ImplicitPriority, ParsedPolicy)],
) -> String {
    let namespace = template.namespace();
    if let Some(by) = template
        .meta()
        .label(CLAIMED_BY)
        .filter(|by| !by.is_empty())
    {
        return format!("the template is claimed by {by}, not by a policy");
    }
    if is_reserved_namespace(namespace) {
        return format!("nothing is propagated from the namespace {namespace}");
    }
    let Some((_, policy)) = all.first() else {
        let of = |local: bool| {
            let fits = |p: &&Object| {
                p.namespace().is_empty() != local && (!local || p.namespace() == namespace)
            };
            input.policies.iter().filter(fits).count()
        };
        let cluster = format!("ClusterPropagationPolicies: {}", of(false));
        return match namespace {
            "" => format!("no policy selects it ({cluster})"),
            _ => format!(
                "no policy selects it (PropagationPolicies in {namespace}: {}, {cluster})",
                of(true)
            ),
        };
    };
    let missing = missing_overrides(input, policy);
    let name = PolicyReference::of_policy(&policy.object);
    if missing.is_empty() {
        format!("{name} selects it and has not claimed it yet")
    } else {
        format!("{name} selects it, but {}", waiting_for_overrides(&missing))
    }
}

/// The policy that would claim the template after the changes.
pub(crate) fn claiming_policy_after(
    input: &SimulationInput<'_>,
    changes: &[PolicyChange<'_>],
    served: &RestMapping,
    template: &Object,
) -> Option<ParsedPolicy> {
    let taker = preempting_policies(input, changes)
        .into_iter()
        .filter(|policy| {
            policy.names_template(served, template) && can_preempt(input, policy, template)
        })
        .max_by_key(|policy| {
            (
                !policy.object.namespace().is_empty(),
                policy.view.spec.priority,
            )
        });
    if taker.is_some() {
        return taker;
    }
    let holder = PolicyClaim::on_object(template)
        .and_then(|claim| find_policy(input, &claim.namespace, &claim.name))
        .filter(|policy| !policy.meta().deleting)
        .and_then(|policy| ParsedPolicy::new(policy.clone()))
        .filter(|policy| policy.matches(served, template.meta()));
    let best = || {
        selecting_policies(input, served, template)
            .into_iter()
            .next()
    };
    holder.or_else(|| best().map(|(_, policy)| policy))
}

/// The policies that try to preempt templates after the changes.
fn preempting_policies(
    input: &SimulationInput<'_>,
    changes: &[PolicyChange<'_>],
) -> Vec<ParsedPolicy> {
    if !input
        .gates
        .enabled(KarmadaFeature::PropagationPolicyPreemption)
    {
        return Vec::new();
    }
    let priority =
        |policy: &Object| ParsedPolicy::new(policy.clone()).map(|p| p.view.spec.priority);
    let mut policies = Vec::new();
    for change in changes {
        policies.extend(ParsedPolicy::new(change.after.clone()).filter(ParsedPolicy::preempts));
        if let Some(before) = change.before
            && let (Some(before), Some(now)) = (priority(before), priority(change.after))
        {
            let namespace = change.after.namespace();
            let others = input.policies.iter().filter(|p| p.namespace() == namespace);
            policies.extend(newly_preempting_policies(
                before,
                now,
                others.cloned().collect(),
            ));
        }
    }
    policies
}

fn can_preempt(input: &SimulationInput<'_>, policy: &ParsedPolicy, template: &Object) -> bool {
    let priority_of = |holder: &ClaimHolder| {
        let held_by = find_policy(input, &holder.namespace, &holder.name)?;
        Some(ParsedPolicy::new(held_by.clone())?.view.spec.priority)
    };
    preemptable_holder(policy, template, priority_of).is_ok_and(|victim| victim.is_some())
}

/// Explains the claim after the changes, for the policy that [`claiming_policy_after`] returned.
pub(crate) fn explain_simulated_claim(
    input: &SimulationInput<'_>,
    served: &RestMapping,
    template: &Object,
    owner: Option<&ParsedPolicy>,
) -> ClaimExplanation {
    let all = selecting_policies(input, served, template);
    let candidates = candidates(&all);
    let Some(owner) = owner else {
        return ClaimExplanation {
            policy: None,
            why: explain_unclaimed(input, template, &all),
            candidates,
        };
    };
    let name = PolicyReference::of_policy(&owner.object);
    let is_holder = PolicyClaim::on_object(template).is_some_and(|claim| {
        (claim.namespace.as_str(), claim.name.as_str())
            == (owner.object.namespace(), owner.object.name())
    });
    let comes_first = candidates.first().is_some_and(|c| c.policy == name);
    let reason = match (comes_first, is_holder) {
        (true, _) => explain_first_candidate(&candidates),
        (false, true) => "it has claimed the template, and keeps it".to_owned(),
        (false, false) => "it preempts the policy that has claimed the template".to_owned(),
    };
    ClaimExplanation {
        policy: Some(name),
        why: reason,
        candidates,
    }
}
