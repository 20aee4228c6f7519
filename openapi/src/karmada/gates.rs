//! Karmada's feature gates: which optional behaviour is on.
//!
//! Enters: the text of `--feature-gates`. Leaves: a small value that is handed to
//! whoever asks. Names and defaults are those of Karmada's
//! `pkg/features/features.go`; the syntax and the words of refusal are those of
//! `k8s.io/component-base/featuregate`. Pure.

use std::fmt;
use std::str::FromStr;

/// How settled the behaviour behind a gate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Alpha,
    Beta,
}

macro_rules! gates {
    ($($(#[$doc:meta])* $name:ident: $default:literal, $stage:ident;)*) => {
        /// A gate. Its name on the command line is that of the variant.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Gate {
            $($(#[$doc])* $name,)*
        }

        impl Gate {
            /// Every gate there is.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            pub fn default_state(self) -> bool {
                match self {
                    $(Self::$name => $default,)*
                }
            }

            pub fn stage(self) -> Stage {
                match self {
                    $(Self::$name => Stage::$stage,)*
                }
            }
        }
    };
}

gates! {
    /// Taints that nobody tolerates evict; taints by policy.
    Failover: false, Beta;
    /// Copies are taken away only after their replacements are healthy.
    GracefulEviction: true, Beta;
    /// What a template refers to is propagated with it.
    PropagateDeps: true, Beta;
    /// Clusters have grades of nodes, and room is estimated by them.
    CustomizedClusterResourceModeling: true, Beta;
    /// A policy may take templates from one of lower priority.
    PropagationPolicyPreemption: false, Alpha;
    /// Services over many clusters.
    MultiClusterService: false, Alpha;
    /// Room is bounded by the quotas of a member.
    ResourceQuotaEstimate: false, Alpha;
    /// State of a failed copy is handed to its replacement.
    StatefulFailoverInjection: false, Alpha;
    /// Bindings are scheduled in the order of their priority.
    PriorityBasedScheduling: true, Beta;
    /// Federated quotas are enforced at admission.
    FederatedQuotaEnforcement: false, Alpha;
    /// Workloads of several components are scheduled as a whole.
    MultiplePodTemplatesScheduling: false, Alpha;
    /// Controllers take changes of users first.
    ControllerPriorityQueue: true, Beta;
    /// Workloads of a group are kept together, or apart.
    WorkloadAffinity: false, Alpha;
    /// Room that was just given is not given again.
    SchedulingOvercommitProtection: false, Alpha;
    /// Options of logs that are not settled.
    LoggingAlphaOptions: false, Alpha;
    /// Options of logs that are nearly settled.
    LoggingBetaOptions: true, Beta;
    /// Logs name what they are about.
    ContextualLogging: true, Beta;
}

/// Which gates are open.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FeatureGates(u32);

/// Why a list of gates cannot be used; each names the gate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    #[error("missing bool value for {0}")]
    Missing(String),
    #[error("invalid value of {gate}={value}: it is neither true nor false")]
    Value { gate: String, value: String },
    #[error("unrecognized feature gate: {0}")]
    Unknown(String),
}

impl Default for FeatureGates {
    fn default() -> Self {
        let on = Gate::ALL.iter().filter(|gate| gate.default_state());
        Self(on.fold(0, |bits, gate| bits | 1 << *gate as u32))
    }
}

impl FeatureGates {
    pub fn is_on(self, gate: Gate) -> bool {
        self.0 & 1 << gate as u32 != 0
    }

    /// These gates with one of them set.
    #[must_use]
    pub fn with(self, gate: Gate, on: bool) -> Self {
        let bit = 1 << gate as u32;
        Self(if on { self.0 | bit } else { self.0 & !bit })
    }
}

/// `Name=true,Other=false`; `AllAlpha` and `AllBeta` stand for what is not named.
impl FromStr for FeatureGates {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Self, GateError> {
        let mut whole_stages = Vec::new();
        let mut single = Vec::new();
        for setting in text.split(',').map(str::trim).filter(|s| !s.is_empty()) {
            let Some((name, value)) = setting.split_once('=') else {
                return Err(GateError::Missing(setting.to_owned()));
            };
            let (name, value) = (name.trim(), value.trim());
            let Some(on) = truth(value) else {
                let (gate, value) = (name.to_owned(), value.to_owned());
                return Err(GateError::Value { gate, value });
            };
            match name {
                "AllAlpha" => whole_stages.push((Stage::Alpha, on)),
                "AllBeta" => whole_stages.push((Stage::Beta, on)),
                _ => {
                    let gate = Gate::ALL.iter().find(|gate| gate.name() == name);
                    let gate = gate.ok_or_else(|| GateError::Unknown(name.to_owned()))?;
                    single.push((*gate, on));
                }
            }
        }
        let mut gates = Self::default();
        for (stage, on) in whole_stages {
            let of_stage = Gate::ALL.iter().filter(|gate| gate.stage() == stage);
            gates = of_stage.fold(gates, |gates, gate| gates.with(*gate, on));
        }
        Ok(single
            .into_iter()
            .fold(gates, |gates, (gate, on)| gates.with(gate, on)))
    }
}

/// The spellings that Go's `strconv.ParseBool` takes.
fn truth(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

impl fmt::Debug for FeatureGates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let states = Gate::ALL
            .iter()
            .map(|gate| (gate.name(), self.is_on(*gate)));
        f.debug_map().entries(states).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_keeps_its_default() {
        let gates: FeatureGates = "".parse().unwrap();
        assert_eq!(gates, FeatureGates::default());
        assert!(!gates.is_on(Gate::Failover) && gates.is_on(Gate::PriorityBasedScheduling));
        let gates: FeatureGates = "Failover=true, PropagateDeps=F,".parse().unwrap();
        assert!(gates.is_on(Gate::Failover) && !gates.is_on(Gate::PropagateDeps));
        assert!(gates.is_on(Gate::GracefulEviction));
    }

    #[test]
    fn whole_stages_give_way_to_what_is_named() {
        let gates: FeatureGates = "WorkloadAffinity=false,AllAlpha=true,AllBeta=false"
            .parse()
            .unwrap();
        assert!(gates.is_on(Gate::MultiClusterService) && !gates.is_on(Gate::WorkloadAffinity));
        assert!(!gates.is_on(Gate::GracefulEviction));
    }

    #[test]
    fn refusals_name_the_gate() {
        for (text, refusal) in [
            ("Failover", "missing bool value for Failover"),
            (
                "Failover=maybe",
                "invalid value of Failover=maybe: it is neither true nor false",
            ),
            (
                "PropagateDeps=true,Fallover=true",
                "unrecognized feature gate: Fallover",
            ),
        ] {
            let refused = text.parse::<FeatureGates>().unwrap_err();
            assert_eq!(refused.to_string(), refusal);
        }
    }
}
