//! A change of customizations or webhooks, as it is passed to listeners.

use machinery::Gvk;

use crate::operation::Operation;

/// A change of the rules of one level: which operations, and for which kinds.
pub struct Changed<'a> {
    /// The operations whose rules changed for at least one kind.
    pub(crate) operations: &'a [Operation],
    pub(crate) differs: &'a dyn Fn(&Gvk, Operation) -> bool,
}

impl Changed<'_> {
    /// Whether the rules of any of the operations changed for at least one kind.
    pub fn touches(&self, operations: &[Operation]) -> bool {
        operations.iter().any(|o| self.operations.contains(o))
    }

    /// Whether the rules of any of the operations changed for a kind.
    pub fn concerns(&self, kind: &Gvk, operations: &[Operation]) -> bool {
        let differs = |o: &&Operation| self.operations.contains(o) && (self.differs)(kind, **o);
        operations.iter().any(|o| differs(&o))
    }
}
