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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldConflict {
    pub manager: ManagerId,
    pub path: Vec<PathElement>,
}

/// The conflicts of one apply, by manager; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflicts(Vec<FieldConflict>);

impl Conflicts {
    /// `None` without conflicting fields.
    pub(crate) fn new(sets: &BTreeMap<ManagerId, FieldSet>) -> Option<Self> {
        let mut conflicts = Vec::new();
        for (manager, set) in sets {
            set.for_each_path(&mut |path| {
                conflicts.push(FieldConflict {
                    manager: manager.clone(),
                    path: path.to_vec(),
                });
            });
        }
        (!conflicts.is_empty()).then_some(Self(conflicts))
    }

    pub fn iter(&self) -> impl Iterator<Item = &FieldConflict> {
        self.0.iter()
    }

    /// Without the fields of a set; `None` if no conflict is left.
    pub(crate) fn without(&self, allowed: &FieldSet) -> Option<Self> {
        let rest: Vec<FieldConflict> = self
            .iter()
            .filter(|c| !allowed.contains(&c.path))
            .cloned()
            .collect();
        (!rest.is_empty()).then_some(Self(rest))
    }

    /// The causes for `Status.details`; of many the first.
    pub fn causes(&self) -> Vec<StatusCause> {
        self.iter()
            .take(MAX_LISTED)
            .map(|conflict| StatusCause {
                reason: CAUSE_REASON.into(),
                message: format!("conflict with {}", ManagerText(&conflict.manager)),
                field: path_text(&conflict.path),
            })
            .collect()
    }
}

/// The message of the `Status`.
impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = &self.0[..] {
            let manager = ManagerText(&only.manager);
            let path = path_text(&only.path);
            return write!(
                f,
                "Apply failed with 1 conflict: conflict with {manager}: {path}"
            );
        }
        let mut lines = Vec::new();
        let mut last = None;
        for conflict in self.iter().take(MAX_LISTED) {
            if last != Some(&conflict.manager) {
                lines.push(format!(
                    "conflicts with {}:",
                    ManagerText(&conflict.manager)
                ));
                last = Some(&conflict.manager);
            }
            lines.push(format!("- {}", path_text(&conflict.path)));
        }
        let count = self.0.len();
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
