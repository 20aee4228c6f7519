//! The steps that all writes share: checks kind and namespace, decodes unknown and duplicate
//! fields, applies defaults, validates, and calls admission.

use admission::{AdmissionAttributes, AdmissionOperation, OperationOptions, metadata as rules};
use client::ResourcePath;
use machinery::bounded_text::{MAX_MESSAGE_BYTES, joined, rendered, rendered_json};
use machinery::json_errors::value_type_name;
use machinery::{FieldError, FieldErrorType, Gvk, Status, go_numbers};
use openapi::{DefaultsTooLarge, Schema};
use serde_json::Value;

use crate::object_meta;
use crate::registry::Registry;
use crate::request::{FieldValidation, RequestContext};
use crate::resource_table::ResourceInfo;
use crate::scale_validation;
use crate::shown_managers::ShownManagers;
use crate::strict_errors::StrictErrors;

/// Sets kind and version if the body omits them. If they are others, a body is 400 and the
/// result of a patch is 422.
pub(crate) fn check_kind(
    resource: &ResourceInfo,
    value: &mut Value,
    patched: bool,
) -> Result<(), Status> {
    let gvk = &resource.kind.gvk;
    let api_version = gvk.api_version();
    let Some(map) = value.as_object_mut() else {
        return Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {})",
            gvk.kind
        )));
    };
    let mut type_meta =
        [("apiVersion", api_version.as_str()), ("kind", &*gvk.kind)].map(|(field, expected)| {
            let value = map.get(field).unwrap_or(&Value::Null);
            match value.as_str().unwrap_or("?") {
                text if !value.is_null() && !text.is_empty() => text.to_owned(),
                _ => expected.to_owned(),
            }
        });
    if type_meta[0] != api_version || type_meta[1] != *gvk.kind {
        if !resource.has_go_type() && (patched || type_meta[1] != *gvk.kind) {
            return Err(unexpected_custom_kind(
                resource,
                value,
                &type_meta[0],
                &type_meta[1],
            ));
        }
        return Err(unexpected_kind(
            resource,
            value,
            &type_meta[0],
            &type_meta[1],
            patched,
        ));
    }
    let [api_version, kind] = &mut type_meta;
    map.insert("apiVersion".into(), std::mem::take(api_version).into());
    map.insert("kind".into(), std::mem::take(kind).into());
    Ok(())
}

/// The error for an object of another kind or version, as Kubernetes' decoder has it: it
/// knows the built-in kinds, and decodes custom resources whatever their kind.
fn unexpected_kind(
    resource: &ResourceInfo,
    value: &Value,
    api_version: &str,
    kind: &str,
    patched: bool,
) -> Status {
    let expected = &resource.kind.gvk;
    let sent_kind = Gvk::from_api_version(api_version, kind);
    let is_served = is_served_version(&sent_kind);
    if sent_kind.kind == expected.kind && (!resource.has_go_type() || is_served) {
        let message = version_mismatch(api_version, expected);
        return match patched {
            true => decode_error(resource, value, true, &message),
            false => Status::bad_request(message),
        };
    }
    let message = if is_served {
        format!(
            "converting ({}.{kind}) to ({}.{}): unknown conversion",
            sent_kind.version,
            resource.go_package(),
            expected.kind
        )
    } else {
        format!(
            "no kind {kind:?} is registered for version {api_version:?} in scheme \
             \"pkg/api/legacyscheme/scheme.go:30\""
        )
    };
    if patched {
        return decode_error(resource, value, true, &message);
    }
    Status::bad_request(format!(
        "{kind} in version {:?} cannot be handled as a {}: {message}",
        sent_kind.version, expected.kind
    ))
}

/// As [`unexpected_kind`] for custom resources, whose decoder takes any kind.
fn unexpected_custom_kind(
    resource: &ResourceInfo,
    value: &Value,
    api_version: &str,
    kind: &str,
) -> Status {
    let expected = &resource.kind.gvk;
    let sent_kind = Gvk::from_api_version(api_version, kind);
    let expected_version = expected.api_version();
    if sent_kind.kind != expected.kind
        && (&sent_kind.group, &sent_kind.version) != (&expected.group, &expected.version)
    {
        return Status::bad_request(version_mismatch(api_version, expected));
    }
    let mut errors = Vec::new();
    if sent_kind.kind != expected.kind {
        let message = format!("must be {}", expected.kind);
        errors.push(FieldError::invalid("kind", &kind.into(), message));
    }
    if api_version != expected_version {
        let message = format!("must be {expected_version}");
        errors.push(FieldError::invalid(
            "apiVersion",
            &api_version.into(),
            message,
        ));
    }
    let name = object_meta::metadata_string(value, "name");
    Status::invalid(&sent_kind, name, &errors)
}

/// The error text for an object of another version.
pub fn version_mismatch(api_version: &str, expected: &Gvk) -> String {
    format!(
        "the API version in the data ({api_version}) does not match the expected API version ({})",
        expected.api_version()
    )
}

/// Checks that a patched custom resource has a kind, and metadata that is an object, which its
/// decoder needs.
pub(crate) fn check_patched_head(resource: &ResourceInfo, value: &Value) -> Result<(), Status> {
    if resource.has_go_type() {
        return Ok(());
    }
    let metadata = &value["metadata"];
    let message = if value["kind"].as_str().is_none_or(str::is_empty) {
        let value = rendered(value, MAX_MESSAGE_BYTES);
        format!("Object 'Kind' is missing in '{value}'")
    } else if !metadata.is_object() && !metadata.is_null() {
        format!(
            "json: cannot unmarshal {} into Go value of type v1.ObjectMeta",
            value_type_name(metadata)
        )
    } else {
        return Ok(());
    };
    Err(decode_error(resource, value, true, &message))
}

/// Whether this is one of the built-in kinds.
fn is_served_version(kind: &Gvk) -> bool {
    let kind_info = openapi::catalog().kind(kind);
    kind_info.is_some_and(|kind| kind.protobuf)
}

/// Sets the namespace of the path if the body omits it; 400 if it is another one.
pub(crate) fn check_namespace(
    resource: &ResourceInfo,
    path: &ResourcePath<'_>,
    value: &mut Value,
) -> Result<(), Status> {
    let meta = object_meta::metadata_mut(value)?;
    if !resource.kind.namespaced {
        meta.remove("namespace");
        return Ok(());
    }
    match meta.get("namespace").and_then(Value::as_str).unwrap_or("") {
        "" => {
            if path.namespace.is_empty() {
                return Err(Status::bad_request(
                    "an empty namespace may not be set during creation",
                ));
            }
            meta.insert("namespace".into(), path.namespace.into());
            Ok(())
        }
        other if other == path.namespace => Ok(()),
        _ => Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
    }
}

/// Decodes as a typed decoder does: rejects values of a wrong type, and removes unknown
/// fields. Unknown and duplicate fields are an error with `Strict`, and are returned as
/// warnings with `Warn`. Errors are 400, or 422 for the result of a patch.
pub(crate) fn decode(
    resource: &ResourceInfo,
    value: &mut Value,
    strict_errors: &StrictErrors,
    field_validation: FieldValidation,
    patched: bool,
) -> Result<Vec<String>, Status> {
    let has_go_type = resource.has_go_type();
    if has_go_type && let Some(message) = resource.schema.decode_error(value) {
        return Err(decode_error(resource, value, patched, &message));
    }
    if !has_go_type {
        go_numbers::normalize(value);
    }
    let is_strict = field_validation == FieldValidation::Strict;
    // The error for a patch shows the object with its unknown fields.
    let error_value = (is_strict && patched).then(|| value.clone());
    let mut unknown = resource.schema.prune(value);
    if resource.custom
        && let Some(message) = resource.schema.embedded_resource_error(value)
    {
        return Err(decode_error(resource, value, patched, &message));
    }
    replace_nulls(resource, &resource.schema, value);
    let repeated_owners = object_meta::remove_repeated_owners(value);
    let warnings = Vec::from_iter(repeated_owners);
    if field_validation == FieldValidation::Ignore || unknown.is_empty() && strict_errors.is_empty()
    {
        return Ok(warnings);
    }
    unknown.sort_by_key(|path| decoding_stage(path));
    let problems = strict_errors.with_unknown(&unknown);
    if !is_strict {
        return Ok(problems.into_iter().chain(warnings).collect());
    }
    let message = format!("strict decoding error: {}", joined(&problems, ", "));
    Err(decode_error(
        resource,
        error_value.as_ref().unwrap_or(value),
        patched,
        &message,
    ))
}

/// Replaces nulls by zero values where Kubernetes has Go types.
fn replace_nulls(resource: &ResourceInfo, schema: &Schema, value: &mut Value) {
    if resource.has_go_type() {
        schema.replace_nulls(value);
    } else {
        schema.replace_nulls_in_metadata(value);
    }
}

/// The order in which Kubernetes decodes a field: the metadata first, the metadata of embedded
/// resources last.
fn decoding_stage(path: &str) -> u8 {
    if path.starts_with("metadata.") {
        0
    } else if path.contains(".metadata.") {
        2
    } else {
        1
    }
}

/// Checks the types of the metadata of an object whose kind has no Go type: Kubernetes decodes
/// them before anything else.
pub(crate) fn check_metadata_types(
    resource: &ResourceInfo,
    value: &Value,
    patched: bool,
) -> Result<(), Status> {
    if resource.has_go_type() {
        return Ok(());
    }
    match openapi::object_meta_error(&value["metadata"]) {
        Some(message) => Err(decode_error(resource, value, patched, &message)),
        None => Ok(()),
    }
}

/// The error of [`decode`]; for a patch without the object, as in
/// `endpoints/handlers/patch.go`.
pub(crate) fn decode_error(
    resource: &ResourceInfo,
    value: &Value,
    patched: bool,
    message: &str,
) -> Status {
    let gvk = &resource.kind.gvk;
    if patched {
        let error = FieldError::invalid("patch", &Value::String(rendered_json(value)), message);
        return Status::invalid(&Gvk::new("", "", ""), "", &[error]);
    }
    Status::bad_request(format!(
        "{} in version {:?} cannot be handled as a {}: {message}",
        gvk.kind, gvk.version, gvk.kind
    ))
}

/// Applies defaults to the result of an apply, in the storage version.
pub(crate) fn apply_defaults_to_applied(
    resource: &ResourceInfo,
    value: &mut Value,
) -> Result<(), Status> {
    if !resource.custom {
        return apply_defaults(resource, value);
    }
    let schema = &resource.storage.schema;
    schema
        .apply_defaults_and_keep_nulls(value)
        .map_err(defaults_too_large)
}

fn defaults_too_large(error: DefaultsTooLarge) -> Status {
    Status::request_entity_too_large(error.to_string())
}

/// Drops what was applied as null: validation has accepted it, and Kubernetes does not read it
/// from the store.
pub(crate) fn drop_applied_nulls(resource: &ResourceInfo, value: &mut Value) -> Result<(), Status> {
    if !resource.custom {
        return Ok(());
    }
    let schema = &resource.storage.schema;
    schema.apply_defaults(value).map_err(defaults_too_large)
}

/// Applies defaults to an object in the storage version.
pub(crate) fn apply_defaults(resource: &ResourceInfo, value: &mut Value) -> Result<(), Status> {
    let schema = &resource.storage.schema;
    schema.apply_defaults(value).map_err(defaults_too_large)?;
    if !resource.custom {
        openapi::defaults::apply(&resource.storage.kind.gvk, value);
    }
    Ok(())
}

/// Validates the metadata, the rules of the kind (if `validate_kind`) and the schema; fails with
/// 422 and all errors that `concerns` accepts. A rule of the kind reports its field with
/// Kubernetes' text, so the schema's error for that field is omitted. An update of a custom
/// resource may keep values that violate the schema. Finally evaluates the rules of a custom
/// resource's schema and returns the violations that an update may keep as warnings.
pub(crate) fn validate_object(
    resource: &ResourceInfo,
    new: &Value,
    old: Option<&Value>,
    validate_kind: bool,
    concerns: impl Fn(&FieldError) -> bool,
) -> Result<Vec<String>, Status> {
    let kind = &resource.storage.kind;
    let mut errors = rules::validate(&kind.gvk, kind.namespaced, new);
    if let Some(old) = old {
        errors.extend(rules::validate_update(new, old));
    }
    if !resource.custom {
        if validate_kind {
            errors.extend(admission::rules(&kind.gvk, new, old));
        }
    } else if let Some(paths) = &kind.scale {
        errors.extend(scale_validation::validate(paths, new, validate_kind));
    }
    let schema = &resource.storage.schema;
    if resource.custom {
        for embedded in schema.embedded_resources(new) {
            errors.extend(rules::validate_embedded(&embedded.path, embedded.fields));
        }
    }
    let rule_errors = errors.len();
    let schema_errors = match old {
        Some(old) if resource.custom => schema.validate_update(new, old),
        _ => schema.validate(new),
    };
    for error in schema_errors {
        let has_rule = errors[..rule_errors].iter().any(|e| e.field == error.field)
            || error.error_type == FieldErrorType::Required
                && error.field.starts_with("metadata.ownerReferences[")
            || admission::replaces_schema_error(&kind.gvk, &error);
        if !has_rule {
            errors.push(error);
        }
    }
    errors.retain(concerns);
    let mut warnings = Vec::new();
    if let Some(rules) = &resource.rules {
        if errors.iter().any(prevents_rules) {
            errors.push(unchecked_rules());
        } else {
            let outcome = rules.validate(new, old);
            errors.extend(outcome.errors);
            warnings = outcome.warnings;
        }
    }
    if errors.is_empty() {
        return Ok(warnings);
    }
    Err(Status::invalid(
        &resource.kind.gvk,
        object_meta::metadata_string(new, "name"),
        &errors,
    ))
}

/// Whether rules cannot be evaluated for an object with this error: they would read values
/// without their declared type or beyond their declared size.
fn prevents_rules(error: &FieldError) -> bool {
    matches!(
        error.error_type,
        FieldErrorType::NotSupported
            | FieldErrorType::Required
            | FieldErrorType::TooLong
            | FieldErrorType::TooMany
            | FieldErrorType::TypeInvalid
    )
}

fn unchecked_rules() -> FieldError {
    let message = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
    FieldError::invalid("<nil>", &Value::Null, message)
}

/// The context of one admission request.
pub(crate) struct AdmissionContext<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) ctx: &'a RequestContext,
    pub(crate) resource: &'a ResourceInfo,
    pub(crate) path: ResourcePath<'a>,
    pub(crate) operation: AdmissionOperation,
    pub(crate) dry_run: bool,
    pub(crate) options: OperationOptions<'a>,
    /// The managers as webhooks see them.
    pub(crate) managers: ShownManagers<'a>,
}

impl AdmissionContext<'_> {
    pub(crate) fn attributes(&self) -> AdmissionAttributes<'_> {
        AdmissionAttributes {
            gvk: &self.resource.storage.kind.gvk,
            gvr: &self.resource.storage.kind.gvr,
            namespace: self.path.namespace,
            name: self.path.name,
            subresource: self.path.subresource,
            operation: self.operation,
            user: &self.ctx.user,
            dry_run: self.dry_run,
            options: self.options,
            audit_annotations: self.ctx.audit_annotations.as_deref(),
        }
    }

    /// Runs mutating admission; returns warnings for the client.
    pub(crate) async fn mutate(
        &self,
        new: &mut Value,
        old: Option<&Value>,
    ) -> Result<Vec<String>, Status> {
        let chain = &self.registry.options.admission_chain;
        chain.mutate(&self.attributes(), new, old).await?;
        let mut warnings = Vec::new();
        if let Some(hooks) = self
            .registry
            .matching_admission(self.resource, self.path.subresource)
        {
            let before = new.clone();
            let changed =
                Box::pin(self.run_mutating_webhooks(hooks, new, old, &mut warnings)).await?;
            if changed {
                self.revert_forbidden_changes(&before, new);
                self.check_controller_write(&before, new).await?;
                let schema = &self.resource.storage.schema;
                schema.prune(new);
                replace_nulls(self.resource, schema, new);
                apply_defaults(self.resource, new)?;
                chain.mutate(&self.attributes(), new, old).await?;
            }
        }
        Ok(warnings)
    }

    /// Runs validating admission on the new object (null for a deletion).
    pub(crate) async fn validate(
        &self,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<Vec<String>, Status> {
        let chain = &self.registry.options.admission_chain;
        let mut warnings = chain.validate(&self.attributes(), new, old).await?;
        if let Some(hooks) = self
            .registry
            .matching_admission(self.resource, self.path.subresource)
        {
            Box::pin(self.run_validating_webhooks(hooks, new, old, &mut warnings)).await?;
        }
        Ok(warnings)
    }
}
