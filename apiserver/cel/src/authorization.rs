//! The checks of rights that expressions make with the variable `authorizer`, as data. An
//! evaluation does no I/O: it ends at a check whose decision is not known yet, the caller
//! has it decided, and evaluates again.

use std::collections::HashMap;

/// Whose rights are checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CheckedUser {
    /// The user of the request.
    Requester,
    ServiceAccount {
        namespace: String,
        name: String,
    },
}

/// The subject of a check.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CheckedTarget {
    Path(String),
    Resource(CheckedResource),
}

/// A resource whose access is checked; empty strings stand for all or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CheckedResource {
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub field_selector: String,
    pub label_selector: String,
}

/// One check of rights.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AuthorizationCheck {
    pub user: CheckedUser,
    pub verb: String,
    pub target: CheckedTarget,
}

/// The decision of the authorizer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizationDecision {
    pub allowed: bool,
    pub reason: String,
    /// Why it could not be decided.
    pub error: Option<String>,
}

/// The decisions that are known during an evaluation.
pub type AuthorizationDecisions = HashMap<AuthorizationCheck, AuthorizationDecision>;
