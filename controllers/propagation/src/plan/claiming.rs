//! Explains in words which policy a template belongs to.

use std::fmt;

use machinery::Object;
use openapi::karmada::Gate;
use openapi::karmada::labels::{CLAIMED_BY, is_reserved_namespace};
use openapi::karmada::policy::Closeness;
use serde::Serialize;

use super::{Change, World, waits_for};
use crate::detector::claim::Claim;
use crate::detector::matching::{Policy, ranked};
use crate::detector::preempt::{Holder, unleashed, victim};
use crate::kinds::Served;

/// The name of a policy as it is printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyName {
    pub kind: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
}

impl PolicyName {
    pub fn of(policy: &Object) -> Self {
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

impl fmt::Display for PolicyName {
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
pub struct Candidate {
    #[serde(flatten)]
    pub policy: PolicyName,
    pub priority: i64,
    /// What its most specific selector names: `Name`, `Labels` or `Kind`.
    pub selects_by: &'static str,
}

/// The policy of a template and the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Claiming {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyName>,
    pub why: String,
    /// All policies that select it, highest rank first: PropagationPolicies before cluster
    /// policies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Candidate>,
}

/// The policies that select the template, highest rank first.
fn selecting(world: &World<'_>, served: &Served, template: &Object) -> Vec<(Closeness, Policy)> {
    let (cluster, local): (Vec<&Object>, Vec<&Object>) = world
        .policies
        .iter()
        .partition(|p| p.namespace().is_empty());
    let rank = |some: Vec<&Object>| ranked(some.into_iter().cloned(), served, template.head());
    let mut all = rank(local);
    all.extend(rank(cluster));
    all
}

fn candidates(selecting: &[(Closeness, Policy)]) -> Vec<Candidate> {
    let candidate = |(closeness, policy): &(Closeness, Policy)| Candidate {
        policy: PolicyName::of(&policy.object),
        priority: policy.view.spec.priority,
        selects_by: by(*closeness),
    };
    selecting.iter().map(candidate).collect()
}

fn by(closeness: Closeness) -> &'static str {
    match closeness {
        Closeness::Mismatch => "",
        Closeness::All => "Kind",
        Closeness::Labels => "Labels",
        Closeness::Name => "Name",
    }
}

fn find<'a>(world: &World<'a>, namespace: &str, name: &str) -> Option<&'a Object> {
    let mut policies = world.policies.iter();
    policies.find(|p| p.namespace() == namespace && p.name() == name)
}

/// The override policies that a policy waits for.
pub(super) fn missing_overrides(world: &World<'_>, policy: &Policy) -> Vec<String> {
    let namespace = policy.object.namespace();
    let there = |name: &&String| {
        let mut all = world.overrides.iter();
        all.any(|o| o.namespace() == namespace && o.name() == name.as_str())
    };
    let needed = policy.view.spec.dependent_overrides.iter();
    needed.filter(|name| !there(name)).cloned().collect()
}

/// Explains the present claim.
pub(super) fn told(world: &World<'_>, served: &Served, template: &Object) -> Claiming {
    let all = selecting(world, served, template);
    let candidates = candidates(&all);
    let Some(claim) = Claim::on(template) else {
        return Claiming {
            policy: None,
            why: unclaimed(world, template, &all),
            candidates,
        };
    };
    let name = PolicyName::new(&claim.namespace, &claim.name);
    let why = match candidates.iter().position(|c| c.policy == name) {
        Some(0) => first(&candidates),
        Some(_) => format!(
            "it claimed the template first; {} ranks higher, but does not preempt it",
            candidates[0].policy
        ),
        None => match find(world, &claim.namespace, &claim.name) {
            None => "it claimed the template, and no longer exists".to_owned(),
            Some(p) if p.head().deleting => "it claimed the template, and is being deleted".into(),
            Some(_) => "it claimed the template, and no longer selects it".into(),
        },
    };
    Claiming {
        policy: Some(name),
        why,
        candidates,
    }
}

fn first(candidates: &[Candidate]) -> String {
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

fn unclaimed(world: &World<'_>, template: &Object, all: &[(Closeness, Policy)]) -> String {
    let namespace = template.namespace();
    if let Some(by) = template
        .head()
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
            world.policies.iter().filter(fits).count()
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
    let missing = missing_overrides(world, policy);
    let name = PolicyName::of(&policy.object);
    if missing.is_empty() {
        format!("{name} selects it and has not claimed it yet")
    } else {
        format!("{name} selects it, but {}", waits_for(&missing))
    }
}

/// The policy that would claim the template after the changes.
pub(super) fn owner(
    world: &World<'_>,
    changes: &[Change<'_>],
    served: &Served,
    template: &Object,
) -> Option<Policy> {
    let taker = takers(world, changes)
        .into_iter()
        .filter(|policy| names(policy, served, template) && takes(world, policy, template))
        .max_by_key(|policy| {
            (
                !policy.object.namespace().is_empty(),
                policy.view.spec.priority,
            )
        });
    if taker.is_some() {
        return taker;
    }
    let holder = Claim::on(template)
        .and_then(|claim| find(world, &claim.namespace, &claim.name))
        .filter(|policy| !policy.head().deleting)
        .and_then(|policy| Policy::new(policy.clone()))
        .filter(|policy| policy.matches(served, template.head()));
    let best = || selecting(world, served, template).into_iter().next();
    holder.or_else(|| best().map(|(_, policy)| policy))
}

/// The policies that try to preempt templates after the changes.
fn takers(world: &World<'_>, changes: &[Change<'_>]) -> Vec<Policy> {
    if !world.gates.is_on(Gate::PropagationPolicyPreemption) {
        return Vec::new();
    }
    let priority = |policy: &Object| Policy::new(policy.clone()).map(|p| p.view.spec.priority);
    let mut found = Vec::new();
    for change in changes {
        found.extend(Policy::new(change.after.clone()).filter(Policy::preempts));
        if let Some(before) = change.before
            && let (Some(before), Some(now)) = (priority(before), priority(change.after))
        {
            let namespace = change.after.namespace();
            let others = world.policies.iter().filter(|p| p.namespace() == namespace);
            found.extend(unleashed(before, now, others.cloned().collect()));
        }
    }
    found
}

/// Preemption considers only templates that a selector names.
fn names(policy: &Policy, served: &Served, template: &Object) -> bool {
    let local = policy.object.namespace();
    policy.view.spec.resource_selectors.iter().any(|selector| {
        let namespace = if local.is_empty() {
            selector.namespace.as_str()
        } else {
            local
        };
        (selector.api_version.as_str(), selector.kind.as_str()) == served.names()
            && selector.name == template.name()
            && namespace == template.namespace()
    })
}

fn takes(world: &World<'_>, policy: &Policy, template: &Object) -> bool {
    let priority_of = |holder: &Holder| {
        let held_by = find(world, &holder.namespace, &holder.name)?;
        Some(Policy::new(held_by.clone())?.view.spec.priority)
    };
    victim(policy, template, priority_of).is_ok_and(|victim| victim.is_some())
}

/// Explains the claim after the changes, for the policy that [`claiming_policy_after`] returned.
pub(super) fn would(
    world: &World<'_>,
    served: &Served,
    template: &Object,
    owner: Option<&Policy>,
) -> Claiming {
    let all = selecting(world, served, template);
    let candidates = candidates(&all);
    let Some(owner) = owner else {
        return Claiming {
            policy: None,
            why: unclaimed(world, template, &all),
            candidates,
        };
    };
    let name = PolicyName::of(&owner.object);
    let is_holder = Claim::on(template).is_some_and(|claim| {
        (claim.namespace.as_str(), claim.name.as_str())
            == (owner.object.namespace(), owner.object.name())
    });
    let comes_first = candidates.first().is_some_and(|c| c.policy == name);
    let why = match (comes_first, is_holder) {
        (true, _) => first(&candidates),
        (false, true) => "it has claimed the template, and keeps it".to_owned(),
        (false, false) => "it preempts the policy that has claimed the template".to_owned(),
    };
    Claiming {
        policy: Some(name),
        why,
        candidates,
    }
}
