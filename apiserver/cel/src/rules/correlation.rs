//! Finds the old value that a new value is compared with, and decides whether an error is tolerated
//! because nothing changed (`k8s.io/apiserver/pkg/cel/common/equality.go`).

use serde_json::Value as Json;

/// The position of a value beside its old one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Correlation<'v> {
    /// The value with its old one, where there is one.
    current: Option<(&'v Json, &'v Json)>,
    /// The nearest value around this one that has an old one.
    parent: Option<(&'v Json, &'v Json)>,
}

impl<'v> Correlation<'v> {
    pub(super) fn root(new: &'v Json, old: Option<&'v Json>) -> Self {
        Self {
            current: old.map(|old| (new, old)),
            parent: None,
        }
    }

    /// The position of a field or entry; `old` is what it was before.
    pub(super) fn field(self, name: &str, new: &'v Json, old: Option<&'v Json>) -> Self {
        if self.current.is_none() {
            return self;
        }
        // Both objects have the version of the request: its change is not seen.
        if self.parent.is_none() && matches!(name, "apiVersion" | "kind") {
            return Self::default();
        }
        Self {
            current: old.map(|old| (new, old)),
            parent: self.current,
        }
    }

    pub(super) fn item(self, new: &'v Json, old: Option<&'v Json>) -> Self {
        if self.current.is_none() {
            return self;
        }
        Self {
            current: old.map(|old| (new, old)),
            parent: self.current,
        }
    }

    /// The position of the same value, under rules whose errors are tolerated only when its
    /// parent is unchanged.
    pub(super) fn without_current(self) -> Self {
        Self {
            current: None,
            parent: self.parent,
        }
    }

    /// Whether errors are tolerated: the value, or the nearest one that can be compared, is
    /// what it was.
    pub(super) fn is_unchanged(self) -> bool {
        let compared = self.current.or(self.parent);
        compared.is_some_and(|(new, old)| new == old)
    }
}
