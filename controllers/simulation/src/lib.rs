//! Simulates policies for `why` and `plan`: which policy a template belongs to and why, and to
//! which clusters it would go under other policies.
//!
//! policies + template ──[`claim_explanation`]──► claiming policy ──[`simulate`]──► binding ──► [`SchedulingSimulation`]
//!
//! The simulation runs the decision functions of the detector and of the scheduler without either
//! controller, and each template sees the results of the templates before it. It does not know the
//! capacity that the scheduler has just assigned elsewhere.

mod claim_explanation;
mod simulation_input;

use client::ApiResource;
use controller_context::{
    BindingDiff, NamespaceFilter, SkippedResourceConfig, TemplateFilterOptions, TemplateKey,
};
use detector::{
    DesiredBinding, InterpretedReplicas, InterpretedTemplate, ParsedPolicy, PolicyClaim,
    is_created_by_every_cluster,
};
use flotilla_runtime::RestMapping;
use interpreter::ResourceInterpreter;
use karmada_api::replica_preference::{RecordedReplicaPreference, ReplicaSchedulingPreferenceSpec};
use karmada_api::well_known_keys::{CLAIMED_BY, SKIP_AUTO_PROPAGATION, is_reserved_namespace};
use karmada_api::{FeatureGates, KarmadaFeature, ResourceBinding, TargetCluster};
use machinery::Object;
use scheduler::{DecisionExplanation, SchedulingSimulation};
use serde_json::Value;

pub use claim_explanation::{ClaimExplanation, MatchingPolicy, PolicyReference};

pub use simulation_input::{PolicyChange, SimulatedTemplate, SimulationInput};

/// The result of the simulation for one template.
#[derive(Clone, Debug)]
pub struct TemplateSimulationResult {
    pub claim: ClaimExplanation,
    pub clusters: Vec<TargetCluster>,
    /// Why the binding stays unchanged, if something prevents a change.
    pub blocked_by: Option<String>,
    /// Why the scheduler cannot place it.
    pub failure: Option<String>,
    pub explanation: Option<DecisionExplanation>,
}

/// Selects the objects that may be propagated.
pub struct SkippedPropagatingFilter {
    skipped_apis: SkippedResourceConfig,
    namespaces: NamespaceFilter,
}

impl SkippedPropagatingFilter {
    /// An invalid option is returned as an error.
    pub fn new(options: &TemplateFilterOptions) -> Result<Self, String> {
        Ok(Self {
            skipped_apis: SkippedResourceConfig::new(&options.skipped_apis)?,
            namespaces: NamespaceFilter::new(&options.skipped_namespaces)?,
        })
    }

    /// Whether objects of a kind, in a namespace, are templates.
    pub fn allows(&self, kind: &ApiResource, namespace: &str) -> bool {
        self.skipped_apis.is_template(kind) && self.namespaces.allows(namespace)
    }
}

/// Whether a policy selects an object.
pub fn selects(policy: &Object, kind: &ApiResource, template: &Object) -> bool {
    let policy = ParsedPolicy::new(policy.clone());
    policy.is_some_and(|p| p.matches(&RestMapping::from_api_resource(kind), template.meta()))
}

/// Whether a policy has claimed an object.
pub fn has_claimed(policy: &Object, template: &Object) -> bool {
    PolicyClaim::by_policy(policy)
        .is_some_and(|own| PolicyClaim::on_object(template).is_some_and(|c| c.id == own.id))
}

/// The replicas or components that a template requests.
pub async fn interpret_replicas(
    interpreter: &ResourceInterpreter,
    gates: FeatureGates,
    kind: &ApiResource,
    template: &Object,
) -> Result<InterpretedReplicas, String> {
    let result = detector::interpret_replicas(
        interpreter,
        &RestMapping::from_api_resource(kind),
        template,
        gates,
    )
    .await;
    result.map_err(|unknown| unknown.error.to_string())
}

/// Which policy a template belongs to at present, and why.
pub fn explain_claim(
    input: &SimulationInput<'_>,
    kind: &ApiResource,
    template: &Object,
) -> ClaimExplanation {
    let served = RestMapping::from_api_resource(kind);
    let mut claim = claim_explanation::explain_present_claim(input, &served, template);
    if claim.policy.is_none()
        && let Some(reason) =
            never_claimed_reason(kind, template).or_else(|| namespace_reason(kind, template))
    {
        claim.why = reason;
    }
    claim
}

/// Where a Namespace goes that no policy selects.
fn namespace_reason(kind: &ApiResource, template: &Object) -> Option<String> {
    let name = template.name();
    let is_namespace = kind.kind == "Namespace" && kind.resource.group.is_empty();
    if !is_namespace || is_reserved_namespace(name) || is_skipped_by_default(name) {
        return None;
    }
    if name == "default" {
        return Some("every cluster has this Namespace itself".to_owned());
    }
    let skip = template.meta().label(SKIP_AUTO_PROPAGATION);
    Some(
        match skip.is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            true => format!(
                "no policy selects it, and its label {SKIP_AUTO_PROPAGATION} keeps it from going to every cluster"
            ),
            false => "no policy selects it: a Namespace then goes to every cluster".to_owned(),
        },
    )
}

/// Whether a namespace is among those of which nothing is propagated unless a flag allows it.
fn is_skipped_by_default(namespace: &str) -> bool {
    let defaults = TemplateFilterOptions::default().skipped_namespaces;
    NamespaceFilter::new(&defaults).is_ok_and(|filter| !filter.allows(namespace))
}

/// Why no policy claims a template, whatever it selects. The flags of the control plane, by which it may
/// propagate less or more, are not known here.
fn never_claimed_reason(kind: &ApiResource, template: &Object) -> Option<String> {
    let (name, namespace) = (&kind.kind, template.namespace());
    let key = TemplateKey {
        gvr: kind.resource.clone(),
        name: template.meta().key(),
    };
    if template.meta().deleting {
        return Some("the template is being deleted".to_owned());
    }
    if !SkippedResourceConfig::default().is_template(kind) {
        return Some(format!("objects of the kind {name} are never propagated"));
    }
    if is_created_by_every_cluster(&key) {
        return Some("every cluster creates this object for itself".to_owned());
    }
    match is_skipped_by_default(namespace) && !is_reserved_namespace(namespace) {
        true => Some(format!(
            "nothing is propagated from the namespace {namespace}, unless --skipped-propagating-namespaces allows it"
        )),
        false => None,
    }
}

/// Computes where a template would go after the changes, which `input` contains already. `before`
/// holds the results for other templates.
pub fn simulate(
    input: &SimulationInput<'_>,
    changes: &[PolicyChange<'_>],
    case: &SimulatedTemplate<'_>,
    before: &mut SchedulingSimulation,
) -> TemplateSimulationResult {
    let served = RestMapping::from_api_resource(case.api_resource);
    let owner = claim_explanation::claiming_policy_after(input, changes, &served, case.template);
    let claiming =
        claim_explanation::explain_simulated_claim(input, &served, case.template, owner.as_ref());
    let now = case
        .binding
        .and_then(|b| b.decode::<ResourceBinding>().ok());
    let unchanged = TemplateSimulationResult {
        claim: claiming,
        clusters: now.map(|b| b.spec.clusters.clone()).unwrap_or_default(),
        blocked_by: None,
        failure: None,
        explanation: None,
    };
    let Some(policy) = owner else {
        return unchanged;
    };
    let scheduled = simulate_binding(input, case, &served, &policy).and_then(|binding| {
        let scheduled = before.simulate(&binding, input.bindings, input.scheduler, input.snapshot);
        let mut scheduled = scheduled.map_err(|e| e.to_string())?;
        if is_placed_nowhere(&binding) {
            // No cluster fits on purpose.
            scheduled.failure = None;
        }
        Ok(scheduled)
    });
    match scheduled {
        Ok(scheduled) => TemplateSimulationResult {
            clusters: scheduled.clusters,
            blocked_by: scheduled.skip_reason.map(|reason| reason.to_string()),
            failure: scheduled.failure.map(|reason| reason.to_string()),
            explanation: scheduled.explanation,
            ..unchanged
        },
        Err(reason) => TemplateSimulationResult {
            blocked_by: Some(reason),
            ..unchanged
        },
    }
}

fn is_placed_nowhere(binding: &Object) -> bool {
    let view = binding.decode::<ResourceBinding>();
    let placement = view.ok().and_then(|view| view.spec.placement.clone());
    placement.is_some_and(|placement| placement.is_nowhere())
}

/// The binding that the detector would write under the policy; the error says what prevents it.
fn simulate_binding(
    input: &SimulationInput<'_>,
    case: &SimulatedTemplate<'_>,
    served: &RestMapping,
    policy: &ParsedPolicy,
) -> Result<Object, String> {
    check_blocked(input, case, policy)?;
    let claim =
        PolicyClaim::by_policy(&policy.object).ok_or("the policy has no permanent id yet")?;
    let gates = input.gates;
    let interpreted = InterpretedTemplate {
        replicas: case.replicas.clone()?,
        priority: None,
        namespace_gate: case.namespace_gate.map(<[String]>::to_vec),
        record_affinity_groups: gates.enabled(KarmadaFeature::WorkloadAffinity),
        replica_preference: recorded_preference(case.binding),
    };
    let desired = DesiredBinding::new(served, case.template, policy, &claim, interpreted);
    let desired = desired.map_err(|e| e.to_string())?;
    let body: Value = match case.binding {
        None => desired.to_new_binding(),
        Some(binding) => {
            let existing = binding.value().map_err(|e| e.to_string())?;
            match desired.diff(&existing) {
                BindingDiff::Unchanged => existing,
                BindingDiff::ObjectVersion(body) | BindingDiff::Changed(body) => body,
            }
        }
    };
    Object::from_value(&body).map_err(|e| e.to_string())
}

/// The ReplicaSchedulingPreference by which the binding was divided last.
fn recorded_preference(binding: Option<&Object>) -> Option<ReplicaSchedulingPreferenceSpec> {
    let binding = binding?.decode::<ResourceBinding>().ok()?;
    RecordedReplicaPreference::from_binding(&binding).map(|recorded| recorded.spec)
}

fn check_blocked(
    input: &SimulationInput<'_>,
    case: &SimulatedTemplate<'_>,
    policy: &ParsedPolicy,
) -> Result<(), String> {
    let template = case.template.meta();
    if template.deleting {
        return Err("the template is being deleted".into());
    }
    if let Some(other) = template.label(CLAIMED_BY).filter(|by| !by.is_empty()) {
        return Err(format!("the template is claimed by {other}"));
    }
    if let Some(config) = case.disabled_by {
        let kind = &case.api_resource.kind;
        return Err(format!(
            "the FederatedTypeConfig {config} switches the propagation of {kind} off"
        ));
    }
    let missing = claim_explanation::missing_overrides(input, policy);
    if !missing.is_empty() {
        return Err(claim_explanation::waiting_for_overrides(&missing));
    }
    if policy.is_lazy() && !input.starts_anew {
        return Err("the policy is Lazy: it waits for the next change of the template".into());
    }
    let Some(binding) = case.binding else {
        return Ok(());
    };
    if binding.meta().deleting {
        return Err("the binding is being deleted".into());
    }
    let owner = binding.meta().controller();
    if owner.is_some_and(|o| *o.uid != *case.template.uid()) {
        return Err("the binding belongs to an earlier template of this name".into());
    }
    if binding
        .decode::<ResourceBinding>()
        .is_ok_and(|b| b.runs_on_host())
    {
        return Err("the host cluster runs this workload itself".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
