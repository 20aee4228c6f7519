//! Remembers from which versions of its template and its policy each binding was built, so that an
//! event that changes neither of them needs no work.

use std::collections::{HashMap, HashSet};

use controller_context::TemplateKey;
use parking_lot::Mutex;

/// The versions from which a binding was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AppliedPolicy {
    /// The hash of the template without its status.
    pub(crate) template_hash: u64,
    pub(crate) policy_uid: String,
    pub(crate) policy_generation: i64,
}

/// The last applied policy of each template.
///
/// An event handler may invalidate a template while a worker builds its binding. The result then
/// rests on the state before the event, so the worker's versions are not recorded: the event has
/// enqueued the template, and the next run builds the binding again.
#[derive(Default)]
pub(crate) struct AppliedPolicies(Mutex<AppliedPoliciesState>);

#[derive(Default)]
struct AppliedPoliciesState {
    applied: HashMap<TemplateKey, AppliedPolicy>,
    /// Templates whose binding is being built, and that no event has invalidated since.
    in_progress: HashSet<TemplateKey>,
}

impl AppliedPolicies {
    /// Whether the binding of a template was built from these versions.
    pub(crate) fn is_current(&self, key: &TemplateKey, versions: &AppliedPolicy) -> bool {
        self.0.lock().applied.get(key) == Some(versions)
    }

    pub(crate) fn contains(&self, key: &TemplateKey) -> bool {
        self.0.lock().applied.contains_key(key)
    }

    /// A worker starts to build the binding; the queue lets one worker at a time do so.
    pub(crate) fn begin(&self, key: &TemplateKey) {
        self.0.lock().in_progress.insert(key.clone());
    }

    /// The worker has built the binding; its versions are recorded unless an event has invalidated
    /// the template in the meantime.
    pub(crate) fn finish(&self, key: &TemplateKey, versions: AppliedPolicy) {
        let mut state = self.0.lock();
        if state.in_progress.remove(key) {
            state.applied.insert(key.clone(), versions);
        }
    }

    /// Requires that the binding is built again even if its template and policy stay the same.
    pub(crate) fn invalidate(&self, key: &TemplateKey) {
        let mut state = self.0.lock();
        state.applied.remove(key);
        state.in_progress.remove(key);
    }
}
