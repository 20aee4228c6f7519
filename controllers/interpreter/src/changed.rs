//! Which rules answer otherwise than before.

use machinery::Gvk;

use crate::operation::Operation;

/// A change of the rules of one level.
pub struct Changed<'a> {
    /// Those that are answered otherwise for some kind.
    pub(crate) operations: &'a [Operation],
    pub(crate) differs: &'a dyn Fn(&Gvk, Operation) -> bool,
}

impl Changed<'_> {
    /// Whether any of the operations is answered otherwise, for whatever kind.
    pub fn touches(&self, operations: &[Operation]) -> bool {
        operations.iter().any(|o| self.operations.contains(o))
    }

    /// Whether any of the operations is answered otherwise for a kind.
    pub fn concerns(&self, kind: &Gvk, operations: &[Operation]) -> bool {
        let differs = |o: &&Operation| self.operations.contains(o) && (self.differs)(kind, **o);
        operations.iter().any(|o| differs(&o))
    }
}
