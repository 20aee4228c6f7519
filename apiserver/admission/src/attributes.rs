//! What a write is about.

use machinery::{Gvk, Gvr, UserInfo};

/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    /// The name in an admission review.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// A write, apart from the object itself.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    pub gvk: &'a Gvk,
    pub gvr: &'a Gvr,
    /// Empty for cluster-scoped objects.
    pub namespace: &'a str,
    pub name: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    pub operation: Operation,
    pub user: &'a UserInfo,
    pub dry_run: bool,
}
