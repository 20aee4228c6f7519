//! Fields that a path of the API never writes, like `status` of a kind with the `status`
//! subresource. A writer of that path does not come to own them.

use crate::field_set::FieldSet;
use crate::path_element::PathElement;
use crate::typed::Comparison;

/// The reset fields of one path of the API, the same in all versions.
#[derive(Clone, Debug, Default)]
pub struct ResetFields(FieldSet);

impl ResetFields {
    /// From paths of field names, like `["status"]`.
    pub fn of_paths(paths: &[&[&str]]) -> Self {
        let elements = |path: &&[&str]| {
            let names = path.iter();
            names
                .map(|name| PathElement::field(name))
                .collect::<Vec<_>>()
        };
        Self(paths.iter().map(elements).collect())
    }

    pub(crate) fn exclude_from(&self, set: FieldSet) -> FieldSet {
        match self.0.is_empty() {
            true => set,
            false => set.recursive_difference(&self.0),
        }
    }

    pub(crate) fn exclude_from_comparison(&self, comparison: Comparison) -> Comparison {
        match self.0.is_empty() {
            true => comparison,
            false => comparison.exclude(&self.0),
        }
    }
}
