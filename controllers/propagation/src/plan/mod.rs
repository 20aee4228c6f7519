//! Simulates policies for `why` and `plan`: which policy a template belongs to and why, and to
//! which clusters it would go under other policies.
//!
//! policies + template ──[`claim_explanation`]──► claiming policy ──[`simulate`]──► binding ──► [`SchedulingSimulation`]
//!
//! The simulation runs the decision functions of the detector and of the scheduler without either
//! controller, and each template sees the results of the templates before it. It does not know the
//! capacity that the scheduler has just assigned elsewhere.

mod claiming;

use client::ApiResource;
use interpreter::Interpreter;
use machinery::Object;
use openapi::karmada::labels::CLAIMED_BY;
use openapi::karmada::{Binding, FeatureGates, Gate, TargetCluster};
use scheduler::core::Snapshot;
use scheduler::{Explanation, Rehearsal};
use serde_json::Value;

pub use claiming::{Candidate, Claiming, PolicyName};

use crate::detector::claim::Claim;
use crate::detector::desired::{Desired, Difference, Findings};
use crate::detector::findings;
pub use crate::detector::findings::Wants;
use crate::detector::matching::Policy;
use crate::kinds::{Scope as Namespaces, Served, Skips};
use crate::run::Options;

/// The inputs of the simulation.
#[derive(Clone, Copy, Debug)]
pub struct World<'a> {
    /// Policies of all namespaces, and cluster policies.
    pub policies: &'a [Object],
    /// OverridePolicies and ClusterOverridePolicies, on which policies may depend.
    pub overrides: &'a [Object],
    /// Bindings that may share an affinity group with the simulated one.
    pub bindings: &'a [Object],
    pub snapshot: &'a Snapshot,
    pub scheduler: &'a str,
    pub gates: FeatureGates,
}

/// A created or changed policy.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// `None`: the policy is new.
    pub before: Option<&'a Object>,
    pub after: &'a Object,
}

/// A template, and its binding if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    pub kind: &'a ApiResource,
    pub template: &'a Object,
    /// See [`interpret_replicas`].
    pub wants: &'a Result<Wants, String>,
    pub binding: Option<&'a Object>,
}

/// The result of the simulation for one template.
#[derive(Clone, Debug)]
pub struct Outlook {
    pub claiming: Claiming,
    pub clusters: Vec<TargetCluster>,
    /// Why the binding stays unchanged, if something prevents a change.
    pub held: Option<String>,
    /// Why the scheduler cannot place it.
    pub failure: Option<String>,
    pub explanation: Option<Explanation>,
}

/// Selects the objects that may be propagated.
pub struct Scope {
    skips: Skips,
    namespaces: Namespaces,
}

impl Scope {
    /// An invalid option is returned as an error.
    pub fn new(options: &Options) -> Result<Self, String> {
        Ok(Self {
            skips: Skips::new(&options.skipped_apis)?,
            namespaces: Namespaces::new(&options.skipped_namespaces)?,
        })
    }

    /// Whether objects of a kind, in a namespace, are templates.
    pub fn takes(&self, kind: &ApiResource, namespace: &str) -> bool {
        self.skips.takes(kind) && self.namespaces.takes(namespace)
    }
}

/// Whether a policy selects an object.
pub fn selects(policy: &Object, kind: &ApiResource, template: &Object) -> bool {
    let policy = Policy::new(policy.clone());
    policy.is_some_and(|p| p.matches(&Served::of(kind), template.head()))
}

/// Whether a policy has claimed an object.
pub fn claims(policy: &Object, template: &Object) -> bool {
    Claim::by(policy).is_some_and(|own| Claim::on(template).is_some_and(|c| c.id == own.id))
}

/// The replicas or components that a template requests.
pub async fn wants(
    interpreter: &Interpreter,
    gates: FeatureGates,
    kind: &ApiResource,
    template: &Object,
) -> Result<Wants, String> {
    let found = findings::wants(interpreter, &Served::of(kind), template, gates).await;
    found.map_err(|unknown| unknown.error.to_string())
}

/// Which policy a template belongs to at present, and why.
pub fn claiming(world: &World<'_>, kind: &ApiResource, template: &Object) -> Claiming {
    claiming::told(world, &Served::of(kind), template)
}

/// Computes where a template would go after the changes, which `world` contains already. `before`
/// holds the results for other templates.
pub fn foresee(
    world: &World<'_>,
    changes: &[Change<'_>],
    case: &Case<'_>,
    before: &mut Rehearsal,
) -> Outlook {
    let served = Served::of(case.kind);
    let owner = claiming::owner(world, changes, &served, case.template);
    let claiming = claiming::would(world, &served, case.template, owner.as_ref());
    let now = case.binding.and_then(|b| b.view::<Binding>().ok());
    let unchanged = Outlook {
        claiming,
        clusters: now.map(|b| b.spec.clusters.clone()).unwrap_or_default(),
        held: None,
        failure: None,
        explanation: None,
    };
    let Some(policy) = owner else {
        return unchanged;
    };
    let scheduled = bound(world, case, &served, &policy).and_then(|binding| {
        let scheduled = before.foresee(&binding, world.bindings, world.scheduler, world.snapshot);
        scheduled.map_err(|e| e.to_string())
    });
    match scheduled {
        Ok(scheduled) => Outlook {
            clusters: scheduled.clusters,
            held: scheduled.left_alone.map(|why| why.to_string()),
            failure: scheduled.failure.map(|why| why.to_string()),
            explanation: scheduled.explanation,
            ..unchanged
        },
        Err(why) => Outlook {
            held: Some(why),
            ..unchanged
        },
    }
}

/// The binding that the detector would write under the policy; the error says what prevents it.
fn bound(
    world: &World<'_>,
    case: &Case<'_>,
    served: &Served,
    policy: &Policy,
) -> Result<Object, String> {
    in_the_way(world, case, policy)?;
    let claim = Claim::by(&policy.object).ok_or("the policy has no permanent id yet")?;
    let gates = world.gates;
    let found = Findings {
        wants: case.wants.clone()?,
        priority: None,
        grouped: gates.is_on(Gate::WorkloadAffinity),
    };
    let desired = Desired::new(served, case.template, policy, &claim, found);
    let desired = desired.map_err(|e| e.to_string())?;
    let body: Value = match case.binding {
        None => desired.create(),
        Some(binding) => {
            let existing = binding.value().map_err(|e| e.to_string())?;
            match desired.update(&existing) {
                Difference::Nothing => existing,
                Difference::Version(body) | Difference::Much(body) => body,
            }
        }
    };
    Object::from_value(&body).map_err(|e| e.to_string())
}

fn in_the_way(world: &World<'_>, case: &Case<'_>, policy: &Policy) -> Result<(), String> {
    let template = case.template.head();
    if template.deleting {
        return Err("the template is being deleted".into());
    }
    if let Some(other) = template.label(CLAIMED_BY).filter(|by| !by.is_empty()) {
        return Err(format!("the template is claimed by {other}"));
    }
    let missing = claiming::missing_overrides(world, policy);
    if !missing.is_empty() {
        return Err(waits_for(&missing));
    }
    if policy.is_lazy() {
        return Err("the policy is Lazy: it waits for the next change of the template".into());
    }
    let Some(binding) = case.binding else {
        return Ok(());
    };
    if binding.head().deleting {
        return Err("the binding is being deleted".into());
    }
    let owner = binding.head().controller();
    if owner.is_some_and(|o| *o.uid != *case.template.uid()) {
        return Err("the binding belongs to an earlier template of this name".into());
    }
    if binding.view::<Binding>().is_ok_and(|b| b.is_refused()) {
        return Err("the host cluster runs this workload itself".into());
    }
    Ok(())
}

fn waits_for(overrides: &[String]) -> String {
    format!(
        "the policy waits for override policies: {}",
        overrides.join(", ")
    )
}

#[cfg(test)]
mod tests;
