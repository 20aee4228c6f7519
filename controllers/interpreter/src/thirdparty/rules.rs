//! The rules of one kind: one function for each operation.

use karmada_api::DependentObjectReference;
use karmada_api::binding::Component;
use serde_json::Value;

use super::StatusAggregation;
use super::json_map::JsonMap;
use crate::native::{Error, TemplateReplicas};

/// Reads a decision from an object.
type InterpretRule<T> = fn(&Value) -> Result<T, Error>;

/// Writes the replicas into a manifest.
type ReviseReplicaRule = fn(&mut Value, i64) -> Result<(), Error>;

/// Copies fields of the observed object into the desired one.
type RetainRule = fn(&mut Value, &Value) -> Result<(), Error>;

/// The rules of one kind; `None` for operations without a rule.
pub(super) struct ThirdPartyKindRules {
    pub(super) interpret_health: Option<InterpretRule<bool>>,
    pub(super) reflect_status: Option<fn(&Value) -> JsonMap>,
    pub(super) aggregate_status: Option<StatusAggregation>,
    pub(super) replicas: Option<InterpretRule<TemplateReplicas>>,
    pub(super) revise_replica: Option<ReviseReplicaRule>,
    pub(super) components: Option<InterpretRule<Vec<Component>>>,
    pub(super) retain: Option<RetainRule>,
    pub(super) dependencies: Option<InterpretRule<Vec<DependentObjectReference>>>,
}

impl ThirdPartyKindRules {
    pub(super) const NONE: Self = Self {
        interpret_health: None,
        reflect_status: None,
        aggregate_status: None,
        replicas: None,
        revise_replica: None,
        components: None,
        retain: None,
        dependencies: None,
    };
}
