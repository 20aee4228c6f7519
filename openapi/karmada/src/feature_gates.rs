//! Karmada's feature gates, as `--feature-gates` sets them.
//!
//! Names and defaults are those of Karmada's `pkg/features/features.go`; syntax and error
//! texts are those of `k8s.io/component-base/featuregate`.

use std::fmt;
use std::str::FromStr;

/// The maturity of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureStage {
    Alpha,
    Beta,
}

macro_rules! gates {
    ($($(#[$doc:meta])* $name:ident: $default:literal, $stage:ident;)*) => {
        /// A feature. The variant's name is its name on the command line.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum KarmadaFeature {
            $($(#[$doc])* $name,)*
        }

        impl KarmadaFeature {
            /// All features.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            pub fn default_enabled(self) -> bool {
                match self {
                    $(Self::$name => $default,)*
                }
            }

            pub fn stage(self) -> FeatureStage {
                match self {
                    $(Self::$name => FeatureStage::$stage,)*
                }
            }
        }
    };
}

gates! {
    /// Evicts resources from clusters with taints that their binding does not tolerate.
    Failover: false, Beta;
    /// Deletes an evicted resource only after its replacement is healthy.
    GracefulEviction: true, Beta;
    /// Propagates the dependencies of a template with it.
    PropagateDeps: true, Beta;
    /// Groups the nodes of clusters by grade, and estimates available replicas by grade.
    CustomizedClusterResourceModeling: true, Beta;
    /// Lets a policy preempt resources of a policy with lower priority.
    PropagationPolicyPreemption: false, Alpha;
    /// Exposes services over several clusters.
    MultiClusterService: false, Alpha;
    /// Bounds available replicas by the resource quotas of a member.
    ResourceQuotaEstimate: false, Alpha;
    /// Passes the state of a failed application to its replacement.
    StatefulFailoverInjection: false, Alpha;
    /// Schedules bindings in the order of their priority.
    PriorityBasedScheduling: true, Beta;
    /// Enforces FederatedResourceQuotas at admission.
    FederatedQuotaEnforcement: false, Alpha;
    /// Schedules workloads of several components as a unit.
    MultiplePodTemplatesScheduling: false, Alpha;
    /// Lets controllers process changes by users before resyncs.
    ControllerPriorityQueue: true, Beta;
    /// Schedules workloads of a group together or apart.
    WorkloadAffinity: false, Alpha;
    /// Subtracts assumed replicas from available replicas until clusters report them.
    SchedulingOvercommitProtection: false, Alpha;
    /// Alpha options of logging.
    LoggingAlphaOptions: false, Alpha;
    /// Beta options of logging.
    LoggingBetaOptions: true, Beta;
    /// Contextual logging.
    ContextualLogging: true, Beta;
}

impl KarmadaFeature {
    /// Whether the feature is always in its default state. Setting another one is an error,
    /// since it would do nothing.
    pub fn is_locked(self) -> bool {
        matches!(
            self,
            Self::ControllerPriorityQueue
                | Self::LoggingAlphaOptions
                | Self::LoggingBetaOptions
                | Self::ContextualLogging
        )
    }
}

/// The set of enabled features.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FeatureGates(u32);

/// The error for a malformed list of feature gates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeatureGateError {
    #[error("missing bool value for {0}")]
    MissingValue(String),
    #[error("invalid value of {gate}={value}: it is neither true nor false")]
    InvalidValue { gate: String, value: String },
    #[error("unrecognized feature gate: {0}")]
    Unknown(String),
    #[error("cannot set feature gate {gate} to {on}, feature is locked to {}", !on)]
    Locked { gate: &'static str, on: bool },
}

impl Default for FeatureGates {
    fn default() -> Self {
        let enabled_by_default = KarmadaFeature::ALL
            .iter()
            .filter(|feature| feature.default_enabled());
        Self(enabled_by_default.fold(0, |bits, feature| bits | 1 << *feature as u32))
    }
}

impl FeatureGates {
    pub fn enabled(self, feature: KarmadaFeature) -> bool {
        self.0 & 1 << feature as u32 != 0
    }

    /// These gates, with one feature enabled or disabled.
    #[must_use]
    pub fn with_feature(self, feature: KarmadaFeature, enabled: bool) -> Self {
        let bit = 1 << feature as u32;
        Self(if enabled { self.0 | bit } else { self.0 & !bit })
    }
}

/// Parses `Name=true,Other=false`; `AllAlpha` and `AllBeta` set all features of a stage that
/// are neither named nor locked.
impl FromStr for FeatureGates {
    type Err = FeatureGateError;

    fn from_str(text: &str) -> Result<Self, FeatureGateError> {
        let mut stages = Vec::new();
        let mut single = Vec::new();
        for setting in text.split(',').map(str::trim).filter(|s| !s.is_empty()) {
            let Some((name, value)) = setting.split_once('=') else {
                return Err(FeatureGateError::MissingValue(setting.to_owned()));
            };
            let (name, value) = (name.trim(), value.trim());
            let Some(enabled) = parse_bool(value) else {
                let (gate, value) = (name.to_owned(), value.to_owned());
                return Err(FeatureGateError::InvalidValue { gate, value });
            };
            match name {
                "AllAlpha" => stages.push((FeatureStage::Alpha, enabled)),
                "AllBeta" => stages.push((FeatureStage::Beta, enabled)),
                _ => {
                    let gate = KarmadaFeature::ALL.iter().find(|gate| gate.name() == name);
                    let gate = gate.ok_or_else(|| FeatureGateError::Unknown(name.to_owned()))?;
                    if gate.is_locked() && enabled != gate.default_enabled() {
                        let gate = gate.name();
                        return Err(FeatureGateError::Locked { gate, on: enabled });
                    }
                    single.push((*gate, enabled));
                }
            }
        }
        let mut gates = Self::default();
        for (stage, enabled) in stages {
            let of_stage = KarmadaFeature::ALL
                .iter()
                .filter(|gate| gate.stage() == stage && !gate.is_locked());
            gates = of_stage.fold(gates, |gates, gate| gates.with_feature(*gate, enabled));
        }
        Ok(single.into_iter().fold(gates, |gates, (gate, enabled)| {
            gates.with_feature(gate, enabled)
        }))
    }
}

/// Parses the spellings that Go's `strconv.ParseBool` accepts.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

impl fmt::Debug for FeatureGates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let states = KarmadaFeature::ALL
            .iter()
            .map(|feature| (feature.name(), self.enabled(*feature)));
        f.debug_map().entries(states).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unnamed_features_keep_their_default() {
        let gates: FeatureGates = "".parse().unwrap();
        assert_eq!(gates, FeatureGates::default());
        assert!(
            !gates.enabled(KarmadaFeature::Failover)
                && gates.enabled(KarmadaFeature::PriorityBasedScheduling)
        );
        let gates: FeatureGates = "Failover=true, PropagateDeps=F,".parse().unwrap();
        assert!(
            gates.enabled(KarmadaFeature::Failover)
                && !gates.enabled(KarmadaFeature::PropagateDeps)
        );
        assert!(gates.enabled(KarmadaFeature::GracefulEviction));
    }

    #[test]
    fn named_features_take_precedence_over_their_stage() {
        let gates: FeatureGates = "WorkloadAffinity=false,AllAlpha=true,AllBeta=false"
            .parse()
            .unwrap();
        assert!(
            gates.enabled(KarmadaFeature::MultiClusterService)
                && !gates.enabled(KarmadaFeature::WorkloadAffinity)
        );
        assert!(!gates.enabled(KarmadaFeature::GracefulEviction));
    }

    #[test]
    fn locked_features_keep_their_state() {
        let gates: FeatureGates = "ControllerPriorityQueue=true,AllAlpha=true,AllBeta=false"
            .parse()
            .unwrap();
        for feature in KarmadaFeature::ALL
            .iter()
            .filter(|feature| feature.is_locked())
        {
            assert_eq!(
                gates.enabled(*feature),
                feature.default_enabled(),
                "{feature:?}"
            );
        }
    }

    #[test]
    fn errors_name_the_gate() {
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
            (
                "ContextualLogging=false",
                "cannot set feature gate ContextualLogging to false, feature is locked to true",
            ),
            (
                "LoggingAlphaOptions=true",
                "cannot set feature gate LoggingAlphaOptions to true, feature is locked to false",
            ),
        ] {
            let error = text.parse::<FeatureGates>().unwrap_err();
            assert_eq!(error.to_string(), refusal);
        }
    }
}
