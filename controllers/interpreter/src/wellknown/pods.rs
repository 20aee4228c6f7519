//! Pod templates inside third-party objects: requirements and dependencies.

use std::collections::BTreeSet;

use openapi::karmada::Dependency;
use openapi::karmada::binding::Component;
use serde::Deserialize;
use serde_json::Value;

use super::tree::{Error, at, lacks, number, said};
use crate::dependencies::{of_pod, verify};
use crate::empties::settle;
use crate::native::Replicas;
use crate::requirements::{PodTemplate, requirements};

/// The requirements of the pod template at a JSON pointer; fails when there is none.
pub(super) fn needs_at(object: &Value, pointer: &str) -> Result<Option<Value>, Error> {
    needs(at(object, pointer).ok_or_else(|| lacks(pointer, "a pod template"))?)
}

/// The requirements of one replica of a pod template.
pub(super) fn needs(template: &Value) -> Result<Option<Value>, Error> {
    let mut template = template.clone();
    settle(&mut template, &[]);
    let template = PodTemplate::deserialize(template).map_err(|e| Error::Malformed {
        what: "pod template",
        source: e.into(),
    })?;
    Ok(requirements(&template.spec))
}

/// The count at a JSON pointer, and the requirements of `spec.template`, which must be present.
pub(super) fn replicas(
    object: &Value,
    pointer: &str,
    absent: Option<f64>,
) -> Result<Replicas, Error> {
    Ok(Replicas {
        count: count(object, pointer, absent)?,
        requirements: needs_at(object, "/spec/template")?,
    })
}

pub(super) fn count(object: &Value, pointer: &str, absent: Option<f64>) -> Result<i64, Error> {
    let count = match at(object, pointer) {
        None => absent,
        Some(count) => count.as_f64(),
    };
    // Fractions are cut off, like a conversion to int in Go.
    Ok(count.ok_or_else(|| lacks(pointer, "a number"))? as i64)
}

pub(super) fn component(
    name: &str,
    replicas: f64,
    requirements: Option<Value>,
) -> Result<Component, Error> {
    let integer = number(replicas).as_i64();
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
    said(object, "/metadata/namespace").unwrap_or_default()
}

/// The namespace of an object; `default` when it has none.
pub(super) fn own_namespace(object: &Value) -> &str {
    said(object, "/metadata/namespace").unwrap_or("default")
}

/// The dependencies of a pod template.
pub(super) fn refers(namespace: &str, template: &Value) -> Vec<Dependency> {
    match at(template, "/spec") {
        Some(spec) => of_pod(spec, namespace, &BTreeSet::new()),
        None => Vec::new(),
    }
}

/// The dependencies of the pod template at a JSON pointer; fails when there is none.
pub(super) fn refers_at(object: &Value, pointer: &str) -> Result<Vec<Dependency>, Error> {
    let template = at(object, pointer).ok_or_else(|| lacks(pointer, "a pod template"))?;
    Ok(refers(own_namespace(object), template))
}

pub(super) fn core(object: &Value, kind: &str, name: &str) -> Dependency {
    Dependency {
        api_version: "v1".into(),
        kind: kind.into(),
        namespace: namespace(object).into(),
        name: name.into(),
        label_selector: None,
    }
}

/// The dependencies sorted and without duplicates; fails when one is invalid.
pub(super) fn in_order(mut found: Vec<Dependency>) -> Result<Vec<Dependency>, Error> {
    verify(&found)?;
    let key = |d: &Dependency| {
        let Dependency {
            api_version,
            kind,
            namespace,
            name,
            ..
        } = d;
        [api_version, kind, namespace, name].map(Clone::clone)
    };
    found.sort_by_cached_key(key);
    found.dedup();
    Ok(found)
}
