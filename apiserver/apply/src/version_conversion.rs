//! The schemas and conversions that the caller has for the versions of a kind.
//!
//! Managers own fields in the version in which they wrote them, so that sets of different
//! versions are compared with the object in each of these versions.

use std::borrow::Cow;

use serde_json::Value;

use crate::field_set::FieldSet;
use crate::field_type::FieldType;
use crate::typed;

/// The error of a conversion.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionConversionError {
    /// The version is no longer served; entries in it are dropped.
    #[error("no corresponding type for {0}")]
    UnknownVersion(String),
    /// The object cannot be converted.
    #[error("{0}")]
    Failed(String),
}

/// The versions of a kind, by `apiVersion`.
pub trait VersionedConverter {
    /// The type of the kind's objects in a version; `None` if it is not served.
    fn field_type(&self, api_version: &str) -> Option<FieldType<'_>>;

    /// Converts an object between two versions that differ.
    fn convert(
        &self,
        object: &Value,
        from: &str,
        version: &str,
    ) -> Result<Value, VersionConversionError>;
}

/// An object in a version, with the type that it has there (`typed.TypedValue`).
#[derive(Clone)]
pub(crate) struct TypedObject<'v> {
    pub(crate) value: Cow<'v, Value>,
    pub(crate) api_version: &'v str,
    pub(crate) field_type: FieldType<'v>,
}

impl<'v> TypedObject<'v> {
    pub(crate) fn new(
        converter: &'v dyn VersionedConverter,
        value: Cow<'v, Value>,
        api_version: &'v str,
    ) -> Result<Self, VersionConversionError> {
        let field_type = converter
            .field_type(api_version)
            .ok_or_else(|| VersionConversionError::UnknownVersion(api_version.into()))?;
        Ok(Self {
            value,
            api_version,
            field_type,
        })
    }

    /// This object in a version.
    pub(crate) fn convert<'c>(
        &'c self,
        converter: &'c dyn VersionedConverter,
        api_version: &'c str,
    ) -> Result<TypedObject<'c>, VersionConversionError> {
        if self.api_version == api_version {
            return Ok(TypedObject {
                value: Cow::Borrowed(&self.value),
                ..*self
            });
        }
        let served = TypedObject::new(converter, Cow::Borrowed(&self.value), api_version)?;
        let value = converter.convert(&self.value, self.api_version, api_version)?;
        Ok(TypedObject {
            value: Cow::Owned(value),
            ..served
        })
    }

    /// This object in a version; `None` if the version is not served.
    pub(crate) fn convert_if_served<'c>(
        &'c self,
        converter: &'c dyn VersionedConverter,
        api_version: &'c str,
    ) -> Result<Option<TypedObject<'c>>, VersionConversionError> {
        match self.convert(converter, api_version) {
            Err(VersionConversionError::UnknownVersion(_)) => Ok(None),
            converted => converted.map(Some),
        }
    }

    pub(crate) fn with_value(&self, value: Value) -> TypedObject<'v> {
        TypedObject {
            value: Cow::Owned(value),
            ..*self
        }
    }

    /// The fields of the object, with every declared field above them.
    pub(crate) fn complete_field_set(&self) -> FieldSet {
        self.complete(&typed::field_set_of(self.field_type, &self.value))
    }

    pub(crate) fn complete(&self, set: &FieldSet) -> FieldSet {
        typed::named_fields_as_members(self.field_type, set)
    }

    pub(crate) fn remove(&self, set: &FieldSet) -> TypedObject<'v> {
        self.with_value(typed::remove_items(self.field_type, &self.value, set))
    }
}
