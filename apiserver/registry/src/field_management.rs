//! Tracks which manager owns which fields of an object through creates, updates and patches, and
//! applies configurations (`apiserver/pkg/endpoints/handlers/{create,update,patch}.go`).
//!
//! Trees are as they are written, those of built-in kinds in the storage version, and without
//! `metadata.managedFields`, which is text.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::sync::{Arc, LazyLock};

use machinery::names::split_api_version;
use machinery::{Gvk, Status};
use managed_fields::{
    ApplyError, FieldManager, FieldType, ManagedFields, ResetFields, VersionConversionError,
    VersionedConverter,
};
use serde_json::{Value, json};

use crate::conversion::VersionConversion;
use crate::registry::Registry;
use crate::resource_table::ResourceInfo;
use crate::webhooks::convert_custom_resource;

static STATUS: LazyLock<ResetFields> = LazyLock::new(|| ResetFields::of_paths(&[&["status"]]));
static SPEC: LazyLock<ResetFields> = LazyLock::new(|| ResetFields::of_paths(&[&["spec"]]));
static METADATA_AND_SPEC: LazyLock<ResetFields> =
    LazyLock::new(|| ResetFields::of_paths(&[&["metadata"], &["spec"]]));
static SPEC_AND_LABELS: LazyLock<ResetFields> =
    LazyLock::new(|| ResetFields::of_paths(&[&["spec"], &["metadata", "labels"]]));
static SPEC_DELETION_AND_OWNERS: LazyLock<ResetFields> = LazyLock::new(|| {
    ResetFields::of_paths(&[
        &["spec"],
        &["metadata", "deletionTimestamp"],
        &["metadata", "ownerReferences"],
    ])
});
static SPEC_AND_CONDITIONS: LazyLock<ResetFields> =
    LazyLock::new(|| ResetFields::of_paths(&[&["spec"], &["status", "conditions"]]));
static SPEC_AND_CERTIFICATE: LazyLock<ResetFields> =
    LazyLock::new(|| ResetFields::of_paths(&[&["spec"], &["status", "certificate"]]));
static NOTHING: LazyLock<ResetFields> = LazyLock::new(ResetFields::default);

/// The most objects that webhooks convert for the managers of one write.
const MAX_WEBHOOK_CONVERSIONS: usize = 64;

/// The managers of an object after a write.
#[derive(Debug, Default)]
pub(crate) struct ManagersAfterWrite {
    /// The text of `metadata.managedFields`.
    pub(crate) text: Option<String>,
    /// Whether the write must be stored even if it changes nothing else.
    pub(crate) is_ownership_changed: bool,
}

impl ManagersAfterWrite {
    pub(crate) fn new(managed: &ManagedFields, live: &ManagedFields) -> Self {
        Self {
            text: managed.encode_json(),
            is_ownership_changed: !managed.same_ownership(live),
        }
    }

    fn unchanged(live: Option<&str>) -> Self {
        Self {
            text: live.map(str::to_owned),
            is_ownership_changed: false,
        }
    }
}

/// Maintains the managers of the objects of a resource for one request.
#[derive(Clone, Copy)]
pub(crate) struct ResourceFieldManager<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) resource: &'a ResourceInfo,
    /// Empty for the object itself.
    pub(crate) subresource: &'a str,
    /// The name of the manager.
    pub(crate) manager: &'a str,
}

/// A configuration to apply.
#[derive(Clone, Copy)]
pub(crate) struct Configuration<'a> {
    pub(crate) object: &'a Value,
    /// Whether it takes fields away from other managers.
    pub(crate) force: bool,
}

impl ResourceFieldManager<'_> {
    /// Calls `run` with the field manager of this resource, version and subresource; again
    /// after each conversion by a webhook that it needed.
    async fn with_field_manager<T>(&self, run: impl Fn(&FieldManager<'_>) -> T) -> T {
        let mut versions = ResourceVersions::new(self.registry, self.resource);
        let now = self.registry.options.clock.now();
        loop {
            let outcome = run(&FieldManager {
                converter: &versions,
                gvk: &self.resource.kind.gvk,
                subresource: self.subresource,
                reset_fields: self.reset_fields(),
                now,
            });
            let Some(missing) = versions.take_missing_conversion() else {
                return outcome;
            };
            drop(outcome);
            versions.convert_by_webhook(missing).await;
        }
    }

    /// Fields that this path does not write (`GetResetFields` of the strategies).
    fn reset_fields(&self) -> &'static ResetFields {
        match self.subresource {
            "status" if !self.resource.has_go_type() => &METADATA_AND_SPEC,
            "status" => match &*self.resource.kind.gvk.kind {
                "CustomResourceDefinition" | "VolumeAttachment" => &METADATA_AND_SPEC,
                "Deployment" => &SPEC_AND_LABELS,
                "Pod" => &SPEC_DELETION_AND_OWNERS,
                "CertificateSigningRequest" => &SPEC_AND_CONDITIONS,
                _ => &SPEC,
            },
            "approval" => &SPEC_AND_CERTIFICATE,
            _ if self.resource.kind.status => &STATUS,
            _ => &NOTHING,
        }
    }

    fn in_request_version<'v>(&self, value: &'v Value) -> Cow<'v, Value> {
        if self.resource.conversion == VersionConversion::Stored {
            return Cow::Borrowed(value);
        }
        let mut converted = value.clone();
        let gvk = &self.resource.kind.gvk;
        self.resource
            .conversion
            .convert_from_storage(gvk, &mut converted);
        Cow::Owned(converted)
    }

    /// An object without fields.
    fn empty_object(&self) -> Value {
        let gvk = &self.resource.kind.gvk;
        json!({"apiVersion": gvk.api_version(), "kind": &*gvk.kind})
    }

    /// The object to which a create is compared. A Go type has its structs from the beginning, so
    /// that nobody owns these themselves; a custom resource has nothing.
    fn zero_object(&self) -> Value {
        let mut zero = self.empty_object();
        if self.resource.has_go_type()
            && let (Value::Object(zero), Value::Object(fields)) = (
                &mut zero,
                openapi::defaults::zero_value(&self.resource.kind),
            )
        {
            zero.extend(fields);
        }
        zero
    }

    /// The text of the managers of a new object, some of which the client may send.
    pub(crate) async fn track_create(
        &self,
        new: &Value,
        sent_managers: Option<&Value>,
    ) -> Option<String> {
        let new = self.in_request_version(new);
        let zero = self.zero_object();
        let managed = ManagedFields::decode_live_or_new(None, sent_managers, false);
        let tracked = self
            .with_field_manager(|m| m.update(&zero, &new, managed.clone(), self.manager))
            .await;
        tracked.ok()?.encode_json()
    }

    /// The managers after an update or patch. `sent_managers` is the value of
    /// `metadata.managedFields` that the client requests.
    pub(crate) async fn track_update(
        &self,
        old: &Value,
        new: &Value,
        live: Option<&str>,
        sent_managers: Option<&Value>,
    ) -> ManagersAfterWrite {
        let sent_managers = sent_managers.filter(|sent_managers| {
            self.subresource.is_empty() && !is_same_text(sent_managers, live)
        });
        let Some(sent_managers) = sent_managers else {
            let Some(text) = live.filter(|_| new != old) else {
                return ManagersAfterWrite::unchanged(live);
            };
            let (old, new) = (self.in_request_version(old), self.in_request_version(new));
            let tracked = self
                .with_field_manager(|m| m.update_json(&old, &new, text, self.manager))
                .await;
            return match tracked {
                Ok(text) => ManagersAfterWrite {
                    text,
                    is_ownership_changed: false,
                },
                Err(_) => ManagersAfterWrite::unchanged(live),
            };
        };
        let (old, new) = (self.in_request_version(old), self.in_request_version(new));
        let live_list = live.and_then(|text| machinery::json::from_str::<Value>(text).ok());
        let managed =
            ManagedFields::decode_live_or_new(live_list.as_ref(), Some(sent_managers), false);
        let tracked = self
            .with_field_manager(|m| m.update(&old, &new, managed.clone(), self.manager))
            .await;
        match tracked {
            Ok(managed) => ManagersAfterWrite::new(&managed, &decode_managers(live)),
            Err(_) => ManagersAfterWrite::unchanged(live),
        }
    }

    /// Applies a configuration. Returns the requested object in the version of the request.
    pub(crate) async fn apply(
        &self,
        old: &Value,
        config: Configuration<'_>,
        live: Option<&str>,
    ) -> Result<(Value, ManagersAfterWrite), Status> {
        let old = self.in_request_version(old);
        self.apply_in_request_version(&old, config, live).await
    }

    /// Applies a configuration to an object that does not exist.
    pub(crate) async fn apply_create(
        &self,
        config: Configuration<'_>,
    ) -> Result<(Value, ManagersAfterWrite), Status> {
        self.apply_in_request_version(&self.empty_object(), config, None)
            .await
    }

    async fn apply_in_request_version(
        &self,
        old: &Value,
        config: Configuration<'_>,
        live: Option<&str>,
    ) -> Result<(Value, ManagersAfterWrite), Status> {
        let live = decode_managers(live);
        let Configuration { object, force } = config;
        let applied = self
            .with_field_manager(|m| m.apply(old, object, live.clone(), self.manager, force))
            .await;
        let applied = applied.map_err(apply_failure)?;
        let managers = ManagersAfterWrite::new(&applied.managed, &live);
        Ok((applied.object, managers))
    }
}

/// Reads the managers of a stored object; malformed ones count as none.
pub(crate) fn decode_managers(text: Option<&str>) -> ManagedFields {
    text.and_then(|text| ManagedFields::decode_json(text).ok())
        .unwrap_or_default()
}

fn is_same_text(sent_managers: &Value, live: Option<&str>) -> bool {
    live.is_some_and(|live| {
        serde_json::to_string(sent_managers).is_ok_and(|sent_managers| sent_managers == live)
    })
}

/// The response to an apply that fails.
pub(crate) fn apply_failure(error: ApplyError) -> Status {
    match error {
        ApplyError::BadRequest(message) => Status::bad_request(message),
        ApplyError::Conflicts(conflicts) => {
            Status::apply_conflict(conflicts.causes(), conflicts.to_string())
        }
        // As in Kubernetes, where such errors have no reason.
        ApplyError::Internal(message) => Status::failure(500, "", message),
    }
}

/// The schemas and conversions of the versions in which a resource is served.
struct ResourceVersions<'a> {
    registry: &'a Registry,
    requested: &'a ResourceInfo,
    /// Looked up if an entry has another version.
    all: OnceCell<Vec<Arc<ResourceInfo>>>,
    webhook_conversions: RefCell<WebhookConversions>,
}

/// The conversions of one write that need calls to a webhook, which a field manager cannot
/// wait for.
#[derive(Default)]
struct WebhookConversions {
    done: Vec<(ObjectToConvert, Result<Value, String>)>,
    /// A conversion that was asked for and is not done.
    missing: Option<ObjectToConvert>,
}

struct ObjectToConvert {
    object: Value,
    target: Gvk,
}

impl<'a> ResourceVersions<'a> {
    fn new(registry: &'a Registry, requested: &'a ResourceInfo) -> Self {
        Self {
            registry,
            requested,
            all: OnceCell::new(),
            webhook_conversions: RefCell::default(),
        }
    }

    fn take_missing_conversion(&mut self) -> Option<ObjectToConvert> {
        let conversions = self.webhook_conversions.get_mut();
        let missing = conversions.missing.take();
        missing.filter(|_| conversions.done.len() < MAX_WEBHOOK_CONVERSIONS)
    }

    async fn convert_by_webhook(&mut self, missing: ObjectToConvert) {
        let object = missing.object.clone();
        let converted = convert_custom_resource(self.requested, object, &missing.target).await;
        let converted = converted.map_err(|status| status.message);
        let conversions = self.webhook_conversions.get_mut();
        conversions.done.push((missing, converted));
    }

    /// The result of a conversion by a webhook. One that is not done fails and is noted.
    fn webhook_conversion(
        &self,
        object: &Value,
        target: &Gvk,
    ) -> Result<Value, VersionConversionError> {
        let mut conversions = self.webhook_conversions.borrow_mut();
        let mut done = conversions.done.iter();
        let finished = done.find(|(from, _)| from.target == *target && from.object == *object);
        if let Some((_, converted)) = finished {
            return converted.clone().map_err(VersionConversionError::Failed);
        }
        conversions.missing = Some(ObjectToConvert {
            object: object.clone(),
            target: target.clone(),
        });
        let message = "too many conversions between the versions of its managers";
        Err(VersionConversionError::Failed(message.to_owned()))
    }

    fn version(&self, api_version: &str) -> Option<&ResourceInfo> {
        let (group, version) = split_api_version(api_version);
        let has_version = |resource: &ResourceInfo| {
            let gvr = &resource.kind.gvr;
            *gvr.group == *group && *gvr.version == *version
        };
        if has_version(self.requested) {
            return Some(self.requested);
        }
        let all = self
            .all
            .get_or_init(|| self.registry.stored_versions(self.requested));
        all.iter().map(|r| &**r).find(|r| has_version(r))
    }
}

impl VersionedConverter for ResourceVersions<'_> {
    fn field_type(&self, api_version: &str) -> Option<FieldType<'_>> {
        let resource = self.version(api_version)?;
        Some(FieldType::of_schema(&resource.schema))
    }

    fn convert(
        &self,
        object: &Value,
        from: &str,
        to: &str,
    ) -> Result<Value, VersionConversionError> {
        let version = |name: &str| {
            self.version(name)
                .ok_or_else(|| VersionConversionError::UnknownVersion(name.to_owned()))
        };
        let (from, to) = (version(from)?, version(to)?);
        if let Some(converter) = &self.requested.storage.converter {
            return match converter.convert_without_webhook(object, &to.kind.gvk) {
                Some(converted) => Ok(converted),
                None => self.webhook_conversion(object, &to.kind.gvk),
            };
        }
        let mut converted = object.clone();
        let stored = &from.storage.kind.gvk;
        from.conversion.convert_to_storage(stored, &mut converted);
        to.conversion
            .convert_from_storage(&to.kind.gvk, &mut converted);
        Ok(converted)
    }
}

impl Registry {
    /// All resources that share the storage of one.
    pub(crate) fn stored_versions(&self, resource: &ResourceInfo) -> Vec<Arc<ResourceInfo>> {
        let prefix = &resource.storage.kind.storage_prefix;
        let table = self.table();
        let versions = table
            .resources()
            .iter()
            .filter(|other| other.storage.kind.storage_prefix == *prefix);
        versions.cloned().collect()
    }
}
