//! The requests and results of the registry, as plain data.

use std::sync::Arc;
use std::time::Duration;

use admission::{AuditAnnotations, RequestedWriteOptions};
use bytes::Bytes;
use machinery::{Object, Status, UserInfo};
use serde_json::Value;
use tokio::time::Instant;

use crate::resource_table::ResourceInfo;
use crate::strict_errors::StrictErrors;

/// The user and the deadline of a request.
#[derive(Clone, Debug)]
pub struct RequestContext {
    pub user: Arc<UserInfo>,
    /// When a write gives up with 504.
    pub deadline: Option<Instant>,
    /// Admission adds the annotations of the request's audit events here, if the request is
    /// audited.
    pub audit_annotations: Option<Arc<AuditAnnotations>>,
    /// Whether a controller of this process makes the request, which nothing authorizes.
    pub is_from_controller: bool,
}

impl RequestContext {
    /// The context of this process's own controllers, without a deadline.
    pub fn internal() -> Self {
        Self {
            user: Arc::new(UserInfo::internal()),
            deadline: None,
            audit_annotations: None,
            is_from_controller: true,
        }
    }
}

/// A decoded request body.
#[derive(Clone, Debug, Default)]
pub struct ObjectBody {
    pub value: Value,
    /// Paths of duplicate fields, such as `spec.replicas`.
    pub duplicate_fields: Vec<String>,
    /// The text of a JSON body of a kind with a Go type, whose errors are in its order.
    pub json: Bytes,
}

impl ObjectBody {
    /// The errors of strict decoding about the body.
    pub(crate) fn strict_errors(&self) -> StrictErrors {
        StrictErrors {
            duplicates: self.duplicate_fields.clone(),
            json: self.json.clone(),
            patch_errors: Vec::new(),
        }
    }
}

impl From<Value> for ObjectBody {
    fn from(value: Value) -> Self {
        Self {
            value,
            ..Self::default()
        }
    }
}

/// Options of a get.
#[derive(Clone, Debug, Default)]
pub struct GetOptions {
    /// Empty: the newest object; `0`: any version; N: not older than N.
    pub resource_version: String,
}

/// Options of a watch.
#[derive(Clone, Debug, Default)]
pub struct RegistryWatchOptions {
    pub label_selector: String,
    pub field_selector: String,
    pub resource_version: String,
    pub resource_version_match: client::ResourceVersionMatch,
    pub send_initial_events: Option<bool>,
    pub bookmarks: bool,
    /// `None`: a random time between 30 and 60 minutes.
    pub timeout: Option<Duration>,
}

/// How unknown and duplicate fields are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// Options of a write.
#[derive(Clone, Debug, Default)]
pub struct RegistryWriteOptions {
    pub dry_run: bool,
    /// The manager of the fields; the client's name if the request names none.
    pub field_manager: String,
    /// The options of the request itself, for admission.
    pub requested: RequestedWriteOptions,
    /// Whether a create does not track managers: nobody manages the object until it is
    /// applied.
    pub creates_without_managers: bool,
    pub field_validation: FieldValidation,
    /// The errors of strict decoding about the patch of a PATCH.
    pub patch_errors: Vec<String>,
}

/// The result of a write.
#[derive(Clone, Debug)]
pub struct WriteResult {
    pub object: Object,
    /// Whether the object is new (HTTP 201).
    pub created: bool,
    pub warnings: Vec<String>,
}

/// The result of a deletion.
#[derive(Clone, Debug)]
pub struct DeleteResult {
    pub response: DeleteResponse,
    pub warnings: Vec<String>,
}

/// The response to a deletion.
#[derive(Clone, Debug)]
pub enum DeleteResponse {
    /// The object is deleted; the response is this status.
    Status(Status),
    /// The response is the object: it still exists with pending finalizers, or it is
    /// deleted and its kind returns deleted objects.
    Object {
        object: Object,
        /// Whether the object is deleted from the store.
        gone: bool,
    },
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct ObjectListPage {
    pub items: Vec<Object>,
    /// None for objects that are not stored.
    pub revision: Option<u64>,
    /// `metadata.continue`, if there are further pages.
    pub continue_token: Option<String>,
    /// `metadata.remainingItemCount`; unknown for lists with selectors.
    pub remaining_item_count: Option<u64>,
    /// The warnings of the response.
    pub warnings: Vec<String>,
    /// The listed resource; the kind of the list is `resource.kind.list_kind`.
    pub resource: Arc<ResourceInfo>,
}
