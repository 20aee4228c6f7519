//! The one interface through which a resource is interpreted.
//!
//! Enters: a kind, objects. Leaves: decisions. A method that answers `None` says that
//! no level has a rule for the kind: the hook is not enabled. Levels are asked in the
//! order of Karmada's `pkg/resourceinterpreter/interpreter.go`; the first that has a
//! rule for the operation answers, and its failure is the answer too.

use jiff::Timestamp;
use machinery::{Gvk, Object};
use openapi::karmada::Dependency;
use openapi::karmada::binding::{AggregatedItem, Component};
use serde_json::Value;

use crate::native::{ClusterStatus, Error, Native, Replicas};

/// Answers what a resource means. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Interpreter {
    native: Native,
}

impl Interpreter {
    /// The replicas a template asks for.
    pub async fn replicas(&self, kind: &Gvk, template: &Object) -> Result<Option<Replicas>, Error> {
        self.native.replicas(kind, template)
    }

    /// The parts of a template that have a pod template each. No native kind has any.
    pub async fn components(
        &self,
        _kind: &Gvk,
        _template: &Object,
    ) -> Result<Option<Vec<Component>>, Error> {
        Ok(None)
    }

    /// What a template refers to.
    pub async fn dependencies(
        &self,
        kind: &Gvk,
        template: &Object,
    ) -> Result<Option<Vec<Dependency>>, Error> {
        self.native.dependencies(kind, template)
    }

    /// The PriorityClass that the pods of a template ask for.
    pub fn priority_class(&self, kind: &Gvk, template: &Object) -> Result<Option<String>, Error> {
        self.native.priority_class(kind, template)
    }

    /// The copy with the replicas of one cluster written into it; as it was where no
    /// rule says how.
    pub async fn revise(&self, kind: &Gvk, mut copy: Value, replicas: i64) -> Result<Value, Error> {
        self.native.revise(kind, &mut copy, replicas);
        Ok(copy)
    }

    /// What is desired, with what the member decides by itself.
    pub async fn retain(
        &self,
        kind: &Gvk,
        mut desired: Value,
        observed: &Value,
    ) -> Result<Value, Error> {
        self.native.retain(kind, &mut desired, observed)?;
        Ok(desired)
    }

    /// Whether the copy in a member is healthy.
    pub async fn healthy(&self, kind: &Gvk, observed: &Object) -> Result<Option<bool>, Error> {
        self.native.healthy(kind, observed)
    }

    /// The part of a copy's status that is collected; `None` when there is none.
    pub async fn reflect(&self, kind: &Gvk, observed: &Object) -> Result<Option<Value>, Error> {
        self.native.reflect(kind, observed)
    }

    /// The status of the template from those of its copies; `None` also when nothing
    /// may change any more.
    pub async fn aggregate(
        &self,
        kind: &Gvk,
        template: &Object,
        items: &[AggregatedItem],
        now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        let items: Vec<_> = items
            .iter()
            .map(|item| ClusterStatus {
                cluster: &item.cluster_name,
                status: item.status.as_ref(),
            })
            .collect();
        self.native.aggregate(kind, template, &items, now)
    }
}
