//! Fields that a path of the API never writes, like `status` of a kind with the `status`
//! subresource. A writer of that path does not come to own them.

use std::collections::BTreeMap;

use crate::field_set::FieldSet;
use crate::path_element::PathElement;
use crate::typed::Comparison;

/// The reset fields of one path of the API, by version.
#[derive(Clone, Debug, Default)]
pub struct ResetFields(BTreeMap<Box<str>, FieldSet>);

impl ResetFields {
    pub fn new(by_version: impl IntoIterator<Item = (Box<str>, FieldSet)>) -> Self {
        Self(by_version.into_iter().collect())
    }

    /// The same paths of field names, like `["status"]`, in every version.
    pub fn in_versions<'v>(versions: impl IntoIterator<Item = &'v str>, paths: &[&[&str]]) -> Self {
        let set: FieldSet = paths
            .iter()
            .map(|path| {
                path.iter()
                    .map(|name| PathElement::field(name))
                    .collect::<Vec<_>>()
            })
            .collect();
        Self::new(versions.into_iter().map(|v| (v.into(), set.clone())))
    }

    pub(crate) fn exclude_from(&self, api_version: &str, set: FieldSet) -> FieldSet {
        match self.0.get(api_version) {
            Some(reset) => set.recursive_difference(reset),
            None => set,
        }
    }

    pub(crate) fn exclude_from_comparison(
        &self,
        api_version: &str,
        comparison: Comparison,
    ) -> Comparison {
        match self.0.get(api_version) {
            Some(reset) => comparison.exclude(reset),
            None => comparison,
        }
    }
}
