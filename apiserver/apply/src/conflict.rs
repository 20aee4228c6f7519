//! Fields that an applier would change although others own them, with the texts of
//! `managedfields/internal/conflict.go`.

use std::collections::BTreeMap;
use std::fmt;

use machinery::StatusCause;
use machinery::bounded_text::{MAX_LISTED, and_more};

use crate::field_set::FieldSet;
use crate::manager::{ManagerId, ManagerOperation};
use crate::path_element::{PathElement, path_text};

/// The reason of every cause of a conflict.
const CAUSE_REASON: &str = "FieldManagerConflict";

/// A field and the manager that owns it.
pub(crate) struct FieldConflict<'m> {
    pub(crate) manager: &'m ManagerId,
    pub(crate) path: Vec<PathElement>,
}

/// The conflicts of one apply: the fields of each manager; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflicts(BTreeMap<ManagerId, FieldSet>);

impl Conflicts {
    /// `None` without conflicting fields.
    pub(crate) fn new(mut sets: BTreeMap<ManagerId, FieldSet>) -> Option<Self> {
        sets.retain(|_, set| !set.is_empty());
        (!sets.is_empty()).then_some(Self(sets))
    }

    /// Without the fields of a set; `None` if no conflict is left.
    pub(crate) fn without(&self, allowed: &FieldSet) -> Option<Self> {
        let rest = self.0.iter();
        Self::new(
            rest.map(|(manager, set)| (manager.clone(), set.difference(allowed)))
                .collect(),
        )
    }

    /// The first conflicts, and the number of all. The paths of all could take a thousand times
    /// as much memory as the sets.
    pub(crate) fn listed(&self) -> (Vec<FieldConflict<'_>>, usize) {
        let (mut listed, mut count) = (Vec::new(), 0);
        for (manager, set) in &self.0 {
            set.for_each_path(&mut |path| {
                count += 1;
                if listed.len() < MAX_LISTED {
                    let path = path.to_vec();
                    listed.push(FieldConflict { manager, path });
                }
            });
        }
        (listed, count)
    }

    /// The causes for `Status.details`; of many the first.
    pub fn causes(&self) -> Vec<StatusCause> {
        let (listed, _) = self.listed();
        listed
            .iter()
            .map(|conflict| StatusCause {
                reason: CAUSE_REASON.into(),
                message: format!("conflict with {}", ManagerText(conflict.manager)),
                field: path_text(&conflict.path),
            })
            .collect()
    }
}

/// The message of the `Status`.
impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (listed, count) = self.listed();
        if let [single] = &listed[..] {
            let manager = ManagerText(single.manager);
            let path = path_text(&single.path);
            return write!(
                f,
                "Apply failed with 1 conflict: conflict with {manager}: {path}"
            );
        }
        let mut lines = Vec::new();
        let mut last = None;
        for conflict in &listed {
            if last != Some(conflict.manager) {
                lines.push(format!("conflicts with {}:", ManagerText(conflict.manager)));
                last = Some(conflict.manager);
            }
            lines.push(format!("- {}", path_text(&conflict.path)));
        }
        if count > MAX_LISTED {
            lines.push(and_more(count - MAX_LISTED));
        }
        write!(
            f,
            "Apply failed with {count} conflicts: {}",
            lines.join("\n")
        )
    }
}

impl std::error::Error for Conflicts {}

struct ManagerText<'m>(&'m ManagerId);

impl fmt::Display for ManagerText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(id) = self;
        write!(f, "{:?}", id.manager)?;
        if !id.subresource.is_empty() {
            write!(f, " with subresource {:?}", id.subresource)?;
        }
        match id.operation {
            ManagerOperation::Apply => Ok(()),
            ManagerOperation::Update => write!(f, " using {}", id.api_version),
        }
    }
}
