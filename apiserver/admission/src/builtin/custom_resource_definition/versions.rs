//! Validates the versions of a CustomResourceDefinition. Kubernetes reports parts that are equal
//! in all versions once, at their paths of v1beta1.

use machinery::FieldError;
use machinery::go_pattern::PatternBudget;
use machinery::names::validate_dns1035_label;
use serde_json::Value;

use super::schema::{self, VersionSchema};
use super::{selectable_fields, subresources};
use crate::unstructured::{flag, get, has, index_path, items, report_invalid, text};

const MAX_WARNING_LENGTH: usize = 256;

/// Which parts are equal in all versions.
#[derive(Clone, Copy)]
struct SharedParts {
    schema: bool,
    subresources: bool,
    columns: bool,
    selectable_fields: bool,
}

impl SharedParts {
    fn of(versions: &[Value]) -> Self {
        let shared = |path: &str| {
            let mut values = versions.iter().map(|version| get(version, path));
            let first = values.next();
            values.all(|value| Some(value) == first)
        };
        Self {
            schema: shared("/schema"),
            subresources: shared("/subresources"),
            columns: shared("/additionalPrinterColumns"),
            selectable_fields: shared("/selectableFields"),
        }
    }

    fn opposite(self) -> Self {
        Self {
            schema: !self.schema,
            subresources: !self.subresources,
            columns: !self.columns,
            selectable_fields: !self.selectable_fields,
        }
    }
}

/// The paths of the parts of one version.
struct PartPaths<'a> {
    schema: &'a str,
    parts: &'a str,
}

/// The parts that the versions of a definition share.
#[derive(Clone, Copy)]
struct DefinitionContext<'a> {
    has_status: bool,
    old: Option<&'a Value>,
    patterns: &'a PatternBudget,
}

pub(super) fn validate(spec: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let versions = items(spec, "/versions");
    let patterns = &PatternBudget::default();
    let context = |has_status| DefinitionContext {
        has_status,
        old,
        patterns,
    };
    let shared = SharedParts::of(versions);
    for (i, version) in versions.iter().enumerate() {
        let path = index_path("spec.versions", i);
        validate_name(&format!("{path}.name"), version, errors);
        validate_deprecation(&format!("{path}.deprecationWarning"), version, errors);
        if !has(version, "/schema/openAPIV3Schema") {
            let field = format!("{path}.schema.openAPIV3Schema");
            errors.push(FieldError::required(field, ""));
        }
        let has_status = has(version, "/subresources/status");
        let paths = PartPaths {
            schema: &format!("{path}.schema"),
            parts: &path,
        };
        validate_parts(
            &paths,
            version,
            shared.opposite(),
            context(has_status),
            errors,
        );
    }
    if let Some(first) = versions.first() {
        validate_name("spec.version", first, errors);
        let mut all = versions.iter();
        let has_status = all.any(|version| has(version, "/subresources/status"));
        let paths = PartPaths {
            schema: "spec.validation",
            parts: "spec",
        };
        validate_parts(&paths, first, shared, context(has_status), errors);
    }
    validate_uniqueness(versions, shared, errors);
}

fn validate_name(field: &str, version: &Value, errors: &mut Vec<FieldError>) {
    let name = text(version, "/name");
    report_invalid(field, name, validate_dns1035_label(name), errors);
}

fn validate_deprecation(field: &str, version: &Value, errors: &mut Vec<FieldError>) {
    let warning = get(version, "/deprecationWarning");
    let Some(text) = warning.as_str() else {
        return;
    };
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(field, warning, detail));
    if !flag(version, "/deprecated") {
        return refuse("can only be set for deprecated versions");
    }
    if text.len() > MAX_WARNING_LENGTH {
        refuse("must be <= 256 characters long");
    }
    if text.is_empty() {
        refuse("must not be an empty string");
    }
    if let Some((index, _)) = text.char_indices().find(|(_, c)| c.is_control()) {
        refuse(&format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {index}"
        ));
    }
}

/// Validates the parts of a version that `included` names.
fn validate_parts(
    paths: &PartPaths<'_>,
    version: &Value,
    included: SharedParts,
    context: DefinitionContext<'_>,
    errors: &mut Vec<FieldError>,
) {
    let before = context.old.and_then(|old| {
        let mut versions = items(old, "/spec/versions").iter();
        versions.find(|v| text(v, "/name") == text(version, "/name"))
    });
    let unchanged = |path: &str| before.is_some_and(|old| get(old, path) == get(version, path));
    let openapi = get(version, "/schema/openAPIV3Schema");
    if included.schema && !openapi.is_null() {
        let schema = VersionSchema {
            path: paths.schema,
            schema: openapi,
            has_status: context.has_status,
            stored: unchanged("/schema/openAPIV3Schema"),
            patterns: context.patterns,
        };
        schema::validate(&schema, errors);
    }
    let version_path = paths.parts;
    if included.subresources {
        let field = format!("{version_path}.subresources.scale");
        subresources::validate_scale(&field, get(version, "/subresources/scale"), errors);
    }
    if included.columns {
        let field = format!("{version_path}.additionalPrinterColumns");
        subresources::validate_printer_columns(&field, version, errors);
    }
    if included.selectable_fields {
        let field = format!("{version_path}.selectableFields");
        let unchanged = unchanged("/selectableFields");
        selectable_fields::validate(&field, version, unchanged, errors);
    }
}

fn validate_uniqueness(versions: &[Value], shared: SharedParts, errors: &mut Vec<FieldError>) {
    let mut refuse = |detail: &str| {
        let rendered = render_versions(versions, shared);
        errors.push(FieldError::invalid_rendered(
            "spec.versions",
            &rendered,
            detail,
        ));
    };
    let mut names: Vec<&str> = versions.iter().map(|v| text(v, "/name")).collect();
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        refuse("must contain unique version names");
    }
    if versions.iter().filter(|v| flag(v, "/storage")).count() != 1 {
        refuse("must have exactly one version marked as storage version");
    }
}

/// The versions as Kubernetes shows them: its internal type, without the parts that they share.
fn render_versions(versions: &[Value], shared: SharedParts) -> String {
    let render = |version: &Value| {
        let part = |is_shared: bool, path: &str| match is_shared {
            true => &Value::Null,
            false => get(version, path),
        };
        let [served, storage, deprecated] =
            ["/served", "/storage", "/deprecated"].map(|path| flag(version, path));
        format!(
            "{{\"Name\":{},\"Served\":{served},\"Storage\":{storage},\"Deprecated\":{deprecated},\"DeprecationWarning\":{},\"Schema\":{},\"Subresources\":{},\"AdditionalPrinterColumns\":{},\"SelectableFields\":{}}}",
            Value::from(text(version, "/name")),
            get(version, "/deprecationWarning"),
            part(shared.schema, "/schema"),
            part(shared.subresources, "/subresources"),
            part(shared.columns, "/additionalPrinterColumns"),
            part(shared.selectable_fields, "/selectableFields"),
        )
    };
    let rendered: Vec<String> = versions.iter().map(render).collect();
    format!("[{}]", rendered.join(","))
}
