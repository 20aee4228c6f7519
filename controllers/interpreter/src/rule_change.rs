//! A change of customizations or webhooks, as it is passed to listeners.

use machinery::Gvk;

use crate::operation::InterpreterOperation;

/// A change of the rules of one level: which operations, and for which kinds.
pub struct InterpreterRuleChange<'a> {
    /// The operations whose rules changed for at least one kind.
    pub(crate) operations: &'a [InterpreterOperation],
    pub(crate) differs: &'a dyn Fn(&Gvk, InterpreterOperation) -> bool,
}

impl InterpreterRuleChange<'_> {
    /// Whether the rules of any of the operations changed for at least one kind.
    pub fn affects_operations(&self, operations: &[InterpreterOperation]) -> bool {
        operations.iter().any(|o| self.operations.contains(o))
    }

    /// Whether the rules of any of the operations changed for a kind.
    pub fn affects_kind(&self, kind: &Gvk, operations: &[InterpreterOperation]) -> bool {
        let differs =
            |o: &&InterpreterOperation| self.operations.contains(o) && (self.differs)(kind, **o);
        operations.iter().any(|o| differs(&o))
    }
}
