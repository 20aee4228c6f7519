//! What the registry is asked and what it answers: plain data, no behaviour.

use std::sync::Arc;
use std::time::Duration;

use machinery::{Object, Status, UserInfo};
use serde_json::Value;
use tokio::time::Instant;

use crate::table::Row;

/// Who asks, and until when an answer is of use.
#[derive(Clone, Debug)]
pub struct Ctx {
    pub user: Arc<UserInfo>,
    /// Past it a write loop gives up with 504.
    pub deadline: Option<Instant>,
}

impl Ctx {
    /// The process's own controllers, without a deadline.
    pub fn internal() -> Self {
        Self {
            user: Arc::new(UserInfo::internal()),
            deadline: None,
        }
    }
}

/// A decoded request body.
#[derive(Clone, Debug, Default)]
pub struct Body {
    pub value: Value,
    /// Paths of fields that occurred twice, as `spec.replicas`.
    pub duplicates: Vec<String>,
}

impl From<Value> for Body {
    fn from(value: Value) -> Self {
        Self {
            value,
            duplicates: Vec::new(),
        }
    }
}

/// How to read one object.
#[derive(Clone, Debug, Default)]
pub struct GetOptions {
    /// Empty: newest; `0`: any; N: not older than N.
    pub resource_version: String,
}

/// How to watch.
#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    pub label_selector: String,
    pub field_selector: String,
    pub resource_version: String,
    pub resource_version_match: client::Match,
    pub send_initial_events: Option<bool>,
    pub bookmarks: bool,
    /// `None`: a random time between 30 and 60 minutes.
    pub timeout: Option<Duration>,
}

/// What becomes of fields the schema does not know, or that occur twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// How to write.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    pub dry_run: bool,
    pub field_manager: String,
    pub field_validation: FieldValidation,
}

/// The result of a write.
#[derive(Clone, Debug)]
pub struct Written {
    pub object: Object,
    /// A new object: HTTP 201.
    pub created: bool,
    pub warnings: Vec<String>,
}

/// The result of a deletion.
#[derive(Clone, Debug)]
pub enum Deleted {
    /// Gone; the body of the answer.
    Gone(Status),
    /// The object: still there with finalizers pending, or gone and of a kind
    /// that answers with its last state.
    Object {
        object: Object,
        /// Nothing is stored under its name any more.
        gone: bool,
    },
}

/// A page of a list, true at `revision`.
#[derive(Clone, Debug)]
pub struct ListReply {
    pub items: Vec<Object>,
    pub revision: u64,
    /// `metadata.continue`, when more follows.
    pub next: Option<String>,
    /// `metadata.remainingItemCount`; unknown with selectors.
    pub remaining: Option<u64>,
    /// What was listed; the list's kind is `row.kind.list_kind`.
    pub row: Arc<Row>,
}
