//! A named point in the engine at which a test pauses or panics. Compiled for tests only.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

type FailpointAction = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
pub(super) struct Failpoint(Mutex<Option<FailpointAction>>);

impl Failpoint {
    /// Installs an action, or removes it (`None`).
    pub(super) fn set(&self, action: Option<FailpointAction>) {
        *self.0.lock() = action;
    }

    /// Runs the action, if there is one.
    pub(super) fn hit(&self) {
        let action = self.0.lock().clone();
        if let Some(action) = action {
            action();
        }
    }
}

impl fmt::Debug for Failpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Failpoint")
    }
}
