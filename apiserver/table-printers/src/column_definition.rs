//! The definition of one column of a Table.

use serde::Serialize;

/// A column header (`TableColumnDefinition`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableColumnDefinition {
    pub name: String,
    #[serde(rename = "type")]
    pub ty: String,
    pub format: String,
    pub description: String,
    /// Above 0: shown in wide output only.
    pub priority: i32,
}

impl TableColumnDefinition {
    /// A column that is always shown.
    pub fn new(name: &str, ty: &str) -> Self {
        Self {
            name: name.to_owned(),
            ty: ty.to_owned(),
            format: if name == "Name" { "name" } else { "" }.to_owned(),
            description: String::new(),
            priority: 0,
        }
    }

    /// Shown in wide output only.
    pub fn wide_only(mut self) -> Self {
        self.priority = 1;
        self
    }

    /// Sets the description.
    pub fn with_description(mut self, description: &str) -> Self {
        description.clone_into(&mut self.description);
        self
    }
}
