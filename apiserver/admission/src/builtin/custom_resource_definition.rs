//! Validates CustomResourceDefinitions: names, versions, conversion, printer columns,
//! subresources, and schemas by [`structural`]
//! (`apiextensions/validation/validation.go`). Does no I/O.

mod conversion;
mod structural;

use kubernetes_cel::{SchemaRules, validate_schema_rules};
use machinery::FieldError;
use machinery::names::{validate_dns1035_label, validate_dns1123_subdomain};
use openapi::{API_APPROVED_ANNOTATION, ApiApproval, JsonPath, is_protected_community_group};
use serde_json::Value;

use crate::unstructured::{
    flag, get, has, index_path, items, report_invalid, text, texts, validate_immutable_field,
};

const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] = &[
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];

pub(super) fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = get(new, "/spec");
    let (group, plural) = (text(spec, "/group"), text(spec, "/names/plural"));
    let name = get(new, "/metadata/name");
    if old.is_none() && name != &Value::from(format!("{plural}.{group}")) {
        let why = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", name, why));
    }
    validate_api_approval(new, old, errors);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else {
        report_invalid(
            "spec.group",
            group,
            validate_dns1123_subdomain(group),
            errors,
        );
        if !group.contains('.') {
            let why = "should be a domain with at least one dot";
            errors.push(FieldError::invalid("spec.group", &group.into(), why));
        }
    }
    let scope = text(spec, "/scope");
    if !matches!(scope, "" | "Cluster" | "Namespaced") {
        let known = &["Cluster", "Namespaced"];
        errors.push(FieldError::not_supported(
            "spec.scope",
            &scope.into(),
            known,
        ));
    }
    validate_versions(spec, old, errors);
    validate_names(get(spec, "/names"), errors);
    conversion::validate(get(spec, "/conversion"), errors);
    if flag(spec, "/preserveUnknownFields") {
        let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        let field = "spec.preserveUnknownFields";
        errors.push(FieldError::invalid(field, &true.into(), why));
    }
    if let Some(old) = old {
        validate_immutable_field(new, old, "spec.group", errors);
        validate_immutable_field(new, old, "spec.names.plural", errors);
        if is_established(old) {
            validate_immutable_field(new, old, "spec.scope", errors);
            validate_immutable_field(new, old, "spec.names.kind", errors);
        }
        validate_stored_versions(new, errors);
    }
}

fn is_established(crd: &Value) -> bool {
    items(crd, "/status/conditions")
        .iter()
        .any(|c| text(c, "/type") == "Established" && text(c, "/status") == "True")
}

/// Requires a definition in a group of the Kubernetes project to be approved, unless an update
/// leaves the state of its approval as it was.
fn validate_api_approval(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if !is_protected_community_group(text(new, "/spec/group")) {
        return;
    }
    let approval = ApiApproval::of(new);
    if old.is_some_and(|old| ApiApproval::of(old) == approval) {
        return;
    }
    let field = format!("metadata.annotations[{API_APPROVED_ANNOTATION}]");
    let why = approval.message(new);
    match approval {
        ApiApproval::Missing => errors.push(FieldError::required(field, &why)),
        ApiApproval::Invalid => {
            let annotation = &new["metadata"]["annotations"][API_APPROVED_ANNOTATION];
            errors.push(FieldError::invalid(field, annotation, why));
        }
        ApiApproval::Approved | ApiApproval::Bypassed => {}
    }
}

/// Requires every stored version in spec.versions: without it its objects could not be read.
fn validate_stored_versions(crd: &Value, errors: &mut Vec<FieldError>) {
    for (i, version) in texts(crd, "/status/storedVersions").enumerate() {
        let there = |v: &Value| text(v, "/name") == version;
        if !items(crd, "/spec/versions").iter().any(there) {
            errors.push(FieldError::invalid(
                index_path("status.storedVersions", i),
                &version.into(),
                format!("missing from spec.versions; {version} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {version} and removes {version} from status.storedVersions"),
            ));
        }
    }
}

fn validate_versions(spec: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let versions = items(spec, "/versions");
    let all = get(spec, "/versions");
    let shared = |path: &str| {
        let mut values = versions.iter().map(|v| get(v, path));
        let first = values.next();
        values.all(|v| Some(v) == first)
    };
    // Fields that are equal in all versions are reported once, at their v1beta1 path.
    let same = [
        "/schema",
        "/subresources",
        "/additionalPrinterColumns",
        "/selectableFields",
    ]
    .map(shared);
    for (i, version) in versions.iter().enumerate() {
        let at = index_path("spec.versions", i);
        let name = text(version, "/name");
        report_invalid(
            format!("{at}.name"),
            name,
            validate_dns1035_label(name),
            errors,
        );
        if has(version, "/deprecationWarning") && !flag(version, "/deprecated") {
            let why = "can only be set for deprecated versions";
            let warning = get(version, "/deprecationWarning");
            errors.push(FieldError::invalid(
                format!("{at}.deprecationWarning"),
                warning,
                why,
            ));
        }
        let field_path = |shared: bool, own: &str, v1beta1: &str| match (shared, i) {
            (true, 0) => Some(format!("spec.{v1beta1}")),
            (true, _) => None,
            (false, _) => Some(format!("{at}.{own}")),
        };
        let schema = get(version, "/schema/openAPIV3Schema");
        if schema.is_null() {
            let field = format!("{at}.schema.openAPIV3Schema");
            errors.push(FieldError::required(field, ""));
        } else if let Some(field) = field_path(
            same[0],
            "schema.openAPIV3Schema",
            "validation.openAPIV3Schema",
        ) {
            validate_schema(&field, version, old, errors);
        }
        if let Some(field) = field_path(same[1], "subresources.scale", "subresources.scale") {
            validate_scale_subresource(&field, get(version, "/subresources/scale"), errors);
        }
        let columns = "additionalPrinterColumns";
        if let Some(field) = field_path(same[2], columns, columns) {
            for (n, c) in items(version, "/additionalPrinterColumns")
                .iter()
                .enumerate()
            {
                validate_printer_column(&index_path(&field, n), c, errors);
            }
        }
        if let Some(field) = field_path(same[3], "selectableFields", "selectableFields") {
            for (n, f) in items(version, "/selectableFields").iter().enumerate() {
                validate_json_path(&format!("{}.jsonPath", index_path(&field, n)), f, errors);
            }
        }
    }
    let mut names: Vec<&str> = versions.iter().map(|v| text(v, "/name")).collect();
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        let why = "must contain unique version names";
        errors.push(FieldError::invalid("spec.versions", all, why));
    }
    if versions.iter().filter(|v| flag(v, "/storage")).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", all, why));
    }
}

/// Checks that a schema is structural, and if it is, its rules.
fn validate_schema(
    field: &str,
    version: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let schema = get(version, "/schema/openAPIV3Schema");
    let before = errors.len();
    structural::validate(field, schema, errors);
    if errors.len() > before {
        return;
    }
    let name = text(version, "/name");
    let stored = old.is_some_and(|old| {
        let versions = items(old, "/spec/versions").iter();
        let mut same_name = versions.filter(|v| text(v, "/name") == name);
        same_name.any(|v| get(v, "/schema/openAPIV3Schema") == schema)
    });
    let rules = SchemaRules {
        at: field,
        schema,
        stored,
    };
    validate_schema_rules(rules, errors);
}

fn validate_names(names: &Value, errors: &mut Vec<FieldError>) {
    for name in ["plural", "singular"] {
        let value = text(names, &format!("/{name}"));
        if !value.is_empty() {
            report_invalid(
                format!("spec.names.{name}"),
                value,
                validate_dns1035_label(value),
                errors,
            );
        }
    }
    for name in ["kind", "listKind"] {
        let value = text(names, &format!("/{name}"));
        if value.is_empty() {
            continue;
        }
        let result = validate_dns1035_label(&value.to_lowercase());
        let result =
            result.map_err(|e| format!("may have mixed case, but should otherwise match: {e}"));
        report_invalid(format!("spec.names.{name}"), value, result, errors);
    }
    for list in ["shortNames", "categories"] {
        for (i, value) in texts(names, &format!("/{list}")).enumerate() {
            let field = index_path(&format!("spec.names.{list}"), i);
            report_invalid(field, value, validate_dns1035_label(value), errors);
        }
    }
    let kind = text(names, "/kind");
    if !kind.is_empty() && kind == text(names, "/listKind") {
        errors.push(FieldError::invalid(
            "spec.names.listKind",
            &kind.into(),
            "kind and listKind may not be the same",
        ));
    }
}

fn validate_scale_subresource(at: &str, scale: &Value, errors: &mut Vec<FieldError>) {
    let table: [(&str, &[&str]); 3] = [
        ("specReplicasPath", &[".spec."]),
        ("statusReplicasPath", &[".status."]),
        ("labelSelectorPath", &[".spec.", ".status."]),
    ];
    for (name, roots) in table {
        let value = text(scale, &format!("/{name}"));
        if value.is_empty() {
            continue;
        }
        let field = format!("{at}.{name}");
        if value.contains('[') || JsonPath::compile(value).is_err() {
            let why = "is not a simple json path";
            errors.push(FieldError::invalid(field, &value.into(), why));
        } else if !roots.iter().any(|r| value.starts_with(r)) {
            let roots: Vec<&str> = roots.iter().map(|r| r.trim_end_matches('.')).collect();
            let why = format!("should be a json path under {}", roots.join(" or "));
            errors.push(FieldError::invalid(field, &value.into(), why));
        }
    }
}

fn validate_printer_column(at: &str, column: &Value, errors: &mut Vec<FieldError>) {
    let kind = text(column, "/type");
    if !kind.is_empty() && !COLUMN_TYPES.contains(&kind) {
        let why = format!("must be one of {}", COLUMN_TYPES.join(","));
        errors.push(FieldError::invalid(format!("{at}.type"), &kind.into(), why));
    }
    let format = text(column, "/format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        let why = format!("must be one of {}", COLUMN_FORMATS.join(","));
        let field = format!("{at}.format");
        errors.push(FieldError::invalid(field, &format.into(), why));
    }
    validate_json_path(&format!("{at}.jsonPath"), column, errors);
}

fn validate_json_path(field: &str, object: &Value, errors: &mut Vec<FieldError>) {
    let value = text(object, "/jsonPath");
    if value.is_empty() {
        return;
    }
    if let Err(why) = JsonPath::compile(value) {
        errors.push(FieldError::invalid(field, &value.into(), why));
    }
}
