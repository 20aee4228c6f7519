//! Translates the managers of an object into the managers of its Scale during a write of `scale`,
//! and back (`managedfields/scalehandler.go`).

use std::sync::LazyLock;

use machinery::{Gvk, Status};
use managed_fields::{
    FieldManager, FieldType, ManagedFields, ResetFields, ScaleEntries, VersionConversionError,
    VersionedConverter,
};
use openapi::ScalePaths;
use serde_json::Value;

use crate::field_management::{
    Configuration, ManagersAfterWrite, ResourceFieldManager, apply_failure, decode_managers,
};
use crate::scale::{SCALE_KIND, SCALE_SCHEMA, scale_of};

static SCALE: Gvk = SCALE_KIND;
static NOTHING: LazyLock<ResetFields> = LazyLock::new(ResetFields::default);

/// autoscaling/v1, the only version of a Scale.
struct ScaleVersion;

impl VersionedConverter for ScaleVersion {
    fn field_type(&self, api_version: &str) -> Option<FieldType<'_>> {
        (api_version == SCALE.api_version()).then(|| FieldType::of_schema(&SCALE_SCHEMA))
    }

    fn convert(&self, _: &Value, _: &str, version: &str) -> Result<Value, VersionConversionError> {
        Err(VersionConversionError::UnknownVersion(version.to_owned()))
    }
}

impl ResourceFieldManager<'_> {
    fn scale_field_manager(&self) -> FieldManager<'_> {
        FieldManager {
            converter: &ScaleVersion,
            gvk: &SCALE,
            subresource: self.subresource,
            reset_fields: &NOTHING,
            now: self.registry.options.clock.now(),
        }
    }

    fn scale_entries(&self) -> ScaleEntries {
        let versions = self.registry.stored_versions(self.resource);
        let paths: Vec<(String, Option<String>)> = versions
            .iter()
            .map(|version| {
                let paths = version.kind.scale.as_ref();
                (
                    version.kind.gvr.api_version(),
                    paths.map(|p| p.spec.clone()),
                )
            })
            .collect();
        ScaleEntries::new(paths.iter().map(|(v, path)| (v.as_str(), path.as_deref())))
    }

    fn managers_of_parent(
        &self,
        entries: &ScaleEntries,
        live: &ManagedFields,
        scale: &ManagedFields,
    ) -> ManagersAfterWrite {
        let version = self.resource.kind.gvr.api_version();
        ManagersAfterWrite::new(&entries.to_parent(live, scale, &version), live)
    }

    /// The managers after an update of the scale, from the object before and after it.
    pub(crate) fn track_scale(
        &self,
        paths: &ScalePaths,
        old: &Value,
        new: &Value,
        live: Option<&str>,
    ) -> Result<ManagersAfterWrite, Status> {
        let live = decode_managers(live);
        let (old, new) = (scale_of(paths, old)?, scale_of(paths, new)?);
        if live.is_empty() || old == new {
            return Ok(ManagersAfterWrite::new(&live, &live));
        }
        let entries = self.scale_entries();
        let tracked =
            self.scale_field_manager()
                .update(&old, &new, entries.to_scale(&live), self.manager);
        let scale = tracked.map_err(Status::internal)?;
        Ok(self.managers_of_parent(&entries, &live, &scale))
    }

    /// Applies a Scale; returns the requested Scale.
    pub(crate) fn apply_scale(
        &self,
        paths: &ScalePaths,
        parent: &Value,
        config: Configuration<'_>,
        live: Option<&str>,
    ) -> Result<(Value, ManagersAfterWrite), Status> {
        let live = decode_managers(live);
        let entries = self.scale_entries();
        let scale = scale_of(paths, parent)?;
        let managed = entries.to_scale(&live);
        let Configuration { object, force } = config;
        let applied = self
            .scale_field_manager()
            .apply(&scale, object, managed, self.manager, force)
            .map_err(apply_failure)?;
        let managers = self.managers_of_parent(&entries, &live, &applied.managed);
        Ok((applied.object, managers))
    }
}
