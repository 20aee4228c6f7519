//! One update or patch: its body, the part of the object that it may change, and its options.

use client::{Patch, ResourcePath};
use serde_json::Value;

use crate::field_management::ResourceFieldManager;
use crate::registry::Registry;
use crate::request::{ObjectBody, RegistryWriteOptions, RequestContext};
use crate::resource_table::ResourceInfo;

/// The new object, or a patch or configuration that produces it.
pub(crate) enum UpdateSource {
    Put(ObjectBody),
    Patch(Patch),
    /// Server-side apply of a configuration.
    Apply {
        config: Value,
        force: bool,
    },
}

/// The part of an object that a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpdateTarget {
    Object,
    Status,
    Scale,
    /// The status, with other rules than a write of `status`.
    Approval,
    /// `spec.finalizers` of a namespace.
    Finalize,
}

impl UpdateTarget {
    /// `None` for a subresource that is not written by updates and patches.
    pub(crate) fn from_subresource(subresource: &str) -> Option<Self> {
        Some(match subresource {
            "" => Self::Object,
            "status" => Self::Status,
            "scale" => Self::Scale,
            "approval" => Self::Approval,
            "finalize" => Self::Finalize,
            _ => return None,
        })
    }
}

/// One update or patch, with all its attempts.
pub(crate) struct UpdateRequest<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) ctx: &'a RequestContext,
    pub(crate) resource: &'a ResourceInfo,
    pub(crate) path: ResourcePath<'a>,
    pub(crate) target: UpdateTarget,
    pub(crate) options: &'a RegistryWriteOptions,
}

impl UpdateRequest<'_> {
    /// The field manager of the writer.
    pub(crate) fn field_manager(&self) -> ResourceFieldManager<'_> {
        ResourceFieldManager {
            registry: self.registry,
            resource: self.resource,
            subresource: self.path.subresource,
            manager: &self.options.field_manager,
        }
    }

    /// Whether it is an apply of a configuration.
    pub(crate) fn is_apply(source: &UpdateSource) -> bool {
        matches!(source, UpdateSource::Apply { .. })
    }
}
