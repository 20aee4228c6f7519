//! Pod templates inside third-party objects: requirements and dependencies.

use std::collections::BTreeSet;

use karmada_api::DependentObjectReference;
use karmada_api::binding::Component;
use serde::Deserialize;
use serde_json::Value;

use super::json_map::{Error, field_error, json_number, non_empty_string_at, value_at};
use crate::empty_values::prune_empty;
use crate::native::TemplateReplicas;
use crate::native::dependencies::{pod_spec_dependencies, validate_dependencies};
use crate::replica_requirements::{PodTemplateSpec, generate_replica_requirements};

/// The requirements of the pod template at a JSON pointer; fails when there is none.
pub(super) fn requirements_at(object: &Value, pointer: &str) -> Result<Option<Value>, Error> {
    pod_template_requirements(
        value_at(object, pointer).ok_or_else(|| field_error(pointer, "a pod template"))?,
    )
}

/// The requirements of one replica of a pod template.
pub(super) fn pod_template_requirements(template: &Value) -> Result<Option<Value>, Error> {
    let mut template = template.clone();
    prune_empty(&mut template, &[]);
    let template = PodTemplateSpec::deserialize(template).map_err(|e| Error::Malformed {
        what: "pod template",
        source: e.into(),
    })?;
    Ok(generate_replica_requirements(&template.spec))
}

/// The count at a JSON pointer, and the requirements of `spec.template`, which must be present.
pub(super) fn replicas_at(
    object: &Value,
    pointer: &str,
    absent: Option<f64>,
) -> Result<TemplateReplicas, Error> {
    Ok(TemplateReplicas {
        count: count_at(object, pointer, absent)?,
        requirements: requirements_at(object, "/spec/template")?,
    })
}

pub(super) fn count_at(object: &Value, pointer: &str, absent: Option<f64>) -> Result<i64, Error> {
    let count = match value_at(object, pointer) {
        None => absent,
        Some(count) => count.as_f64(),
    };
    // Fractions are cut off, like a conversion to int in Go.
    Ok(count.ok_or_else(|| field_error(pointer, "a number"))? as i64)
}

pub(super) fn new_component(
    name: &str,
    replicas: f64,
    requirements: Option<Value>,
) -> Result<Component, Error> {
    let integer = json_number(replicas).as_i64();
    let replicas = integer.filter(|n| i32::try_from(*n).is_ok());
    Ok(Component {
        name: name.to_owned(),
        replicas: replicas.ok_or_else(|| Error::Field {
            path: format!("replicas of component {name}"),
            expected: "a whole number of 32 bits",
        })?,
        replica_requirements: requirements,
    })
}

/// The namespace of an object; empty when it has none.
pub(super) fn namespace(object: &Value) -> &str {
    non_empty_string_at(object, "/metadata/namespace").unwrap_or_default()
}

/// The namespace of an object; `default` when it has none.
pub(super) fn namespace_or_default(object: &Value) -> &str {
    non_empty_string_at(object, "/metadata/namespace").unwrap_or("default")
}

/// The dependencies of a pod template.
pub(super) fn pod_template_dependencies(
    namespace: &str,
    template: &Value,
) -> Vec<DependentObjectReference> {
    match value_at(template, "/spec") {
        Some(spec) => pod_spec_dependencies(spec, namespace, &BTreeSet::new()),
        None => Vec::new(),
    }
}

/// The dependencies of the pod template at a JSON pointer; fails when there is none.
pub(super) fn pod_template_dependencies_at(
    object: &Value,
    pointer: &str,
) -> Result<Vec<DependentObjectReference>, Error> {
    let template =
        value_at(object, pointer).ok_or_else(|| field_error(pointer, "a pod template"))?;
    Ok(pod_template_dependencies(
        namespace_or_default(object),
        template,
    ))
}

pub(super) fn core_dependency(object: &Value, kind: &str, name: &str) -> DependentObjectReference {
    DependentObjectReference {
        api_version: "v1".into(),
        kind: kind.into(),
        namespace: namespace(object).into(),
        name: name.into(),
        label_selector: None,
    }
}

/// The dependencies sorted and without duplicates; fails when one is invalid.
pub(super) fn sorted_dependencies(
    mut dependencies: Vec<DependentObjectReference>,
) -> Result<Vec<DependentObjectReference>, Error> {
    validate_dependencies(&dependencies)?;
    let key = |d: &DependentObjectReference| {
        let DependentObjectReference {
            api_version,
            kind,
            namespace,
            name,
            ..
        } = d;
        [api_version, kind, namespace, name].map(Clone::clone)
    };
    dependencies.sort_by_cached_key(key);
    dependencies.dedup();
    Ok(dependencies)
}
