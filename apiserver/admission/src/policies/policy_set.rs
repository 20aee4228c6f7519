//! The policies in force: each with its bindings. Policies are compiled when they change, not
//! when requests come.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use machinery::{FailureLogLimiter, Object};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;

use super::binding::PolicyBinding;

/// Log state of malformed policies and bindings, by UID.
static FAILURES: FailureLogLimiter = FailureLogLimiter::new();

/// Compiles a policy by its name and JSON.
type CompileFunction<P> = fn(&str, &Value) -> Result<P, String>;

/// A policy with the bindings that put it in force.
pub(super) struct BoundPolicy<P> {
    pub(super) policy: Arc<P>,
    pub(super) bindings: Vec<Arc<PolicyBinding>>,
}

impl<P> BoundPolicy<P> {
    pub(super) fn parts(&self) -> (&Arc<P>, &[Arc<PolicyBinding>]) {
        (&self.policy, &self.bindings)
    }
}

/// Policies of one kind, by name, with their bindings.
pub(super) struct PolicySet<P> {
    compile: CompileFunction<P>,
    parts: Mutex<PolicyParts<P>>,
    in_force: RwLock<Arc<Vec<BoundPolicy<P>>>>,
}

struct PolicyParts<P> {
    /// Compiled policies with the versions of their objects, by name.
    policies: BTreeMap<String, (String, Arc<P>)>,
    bindings: Vec<Arc<PolicyBinding>>,
}

impl<P> PolicySet<P> {
    pub(super) fn new(compile: CompileFunction<P>) -> Self {
        let parts = PolicyParts {
            policies: BTreeMap::new(),
            bindings: Vec::new(),
        };
        Self {
            compile,
            parts: Mutex::new(parts),
            in_force: RwLock::default(),
        }
    }

    /// The policies that have bindings, sorted by name.
    pub(super) fn in_force(&self) -> Arc<Vec<BoundPolicy<P>>> {
        Arc::clone(&self.in_force.read())
    }

    /// Whether a policy in force satisfies a condition.
    pub(super) fn any(&self, condition: impl Fn(&P) -> bool) -> bool {
        let policies = self.in_force.read();
        policies.iter().any(|bound| condition(&bound.policy))
    }

    /// Replaces the policies; unchanged policies are not compiled again.
    pub(super) fn set_policies(&self, objects: &[Object]) {
        let mut parts = self.parts.lock();
        let mut before = std::mem::take(&mut parts.policies);
        for object in objects {
            let version = format!("{} {}", object.uid(), object.revision());
            let name = object.name().to_owned();
            let unchanged = before.remove(&name).filter(|(v, _)| *v == version);
            let compiled = match unchanged {
                Some((_, compiled)) => Ok(compiled),
                None => object
                    .value()
                    .map_err(|e| e.to_string())
                    .and_then(|value| (self.compile)(&name, &value))
                    .map(Arc::new),
            };
            match compiled {
                Ok(compiled) => {
                    FAILURES.record_success(object.uid());
                    parts.policies.insert(name, (version, compiled));
                }
                Err(error) => log_failure(object, &error),
            }
        }
        self.join(&parts);
    }

    /// Replaces the bindings.
    pub(super) fn set_bindings(&self, objects: &[Object]) {
        let mut bindings = Vec::new();
        for object in objects {
            match PolicyBinding::parse(object) {
                Ok(binding) => {
                    FAILURES.record_success(object.uid());
                    bindings.push(Arc::new(binding));
                }
                Err(error) => log_failure(object, &error),
            }
        }
        bindings.sort_by(|a, b| a.name.cmp(&b.name));
        let mut parts = self.parts.lock();
        parts.bindings = bindings;
        self.join(&parts);
    }

    fn join(&self, parts: &PolicyParts<P>) {
        let mut by_policy: HashMap<&str, Vec<Arc<PolicyBinding>>> = HashMap::new();
        for binding in &parts.bindings {
            let bindings = by_policy.entry(&binding.policy_name).or_default();
            bindings.push(Arc::clone(binding));
        }
        let bound = parts.policies.iter().filter_map(|(name, (_, policy))| {
            Some(BoundPolicy {
                policy: Arc::clone(policy),
                bindings: by_policy.remove(name.as_str())?,
            })
        });
        *self.in_force.write() = Arc::new(bound.collect());
    }
}

fn log_failure(object: &Object, message: &str) {
    if FAILURES.record_failure(object.uid(), message) {
        tracing::warn!(name = object.name(), error = %message, "failed to parse admission policy");
    }
}
