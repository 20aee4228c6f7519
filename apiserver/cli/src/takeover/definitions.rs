//! Karmada's definitions in the host, which have watches of clients: agents of members, and others.
//! Such a watch goes on after the host has begun to route requests to another server, and tells its
//! client nothing any more. The host ends the watches of a definition whose spec changes.

use std::time::Duration;

use aggregation::MovedResource;
use anyhow::{Context, anyhow};
use client::{Api, ResourcePath, ignore_not_found};
use machinery::Gvr;
use serde_json::Value;

use super::session::write_options;
use crate::conflicts::retry_on_conflict;

static DEFINITIONS: Gvr =
    Gvr::from_static("apiextensions.k8s.io", "v1", "customresourcedefinitions");
/// The time in which all replicas of the API server see a change.
const SETTLE_PAUSE: Duration = Duration::from_secs(1);
/// The end of a changed description: a definition says the same with it.
const MARK: &str = " ";

/// Ends the watches of all definitions: each is changed, and then as it was. One that an interrupted
/// run has left changed is so, too.
pub(super) async fn end_watches(host: &dyn Api, resources: &[MovedResource]) -> anyhow::Result<()> {
    let names: Vec<String> = resources
        .iter()
        .map(|resource| format!("{}.{}", resource.resource, resource.group))
        .collect();
    for is_marked in [true, false] {
        for name in &names {
            let written = write_mark(host, name, is_marked).await;
            written.with_context(|| format!("CustomResourceDefinition {name}"))?;
        }
        tokio::time::sleep(SETTLE_PAUSE).await;
    }
    Ok(())
}

/// A resource that another server than the host itself serves has no definition.
async fn write_mark(host: &dyn Api, name: &str, is_marked: bool) -> anyhow::Result<()> {
    let at = ResourcePath::object(&DEFINITIONS, "", name);
    retry_on_conflict(|| async {
        let Some(definition) = ignore_not_found(host.get(at).await)? else {
            return Ok(());
        };
        let mut definition = definition.value()?;
        set_mark(&mut definition, is_marked)?;
        host.update(at, definition.into(), write_options()).await?;
        Ok(())
    })
    .await
}

/// Appends the mark to the description of the first version, or takes it off.
fn set_mark(definition: &mut Value, is_marked: bool) -> anyhow::Result<()> {
    let schema = definition.pointer_mut("/spec/versions/0/schema/openAPIV3Schema");
    let schema = schema.and_then(Value::as_object_mut);
    let schema = schema.ok_or_else(|| anyhow!("its first version has no schema"))?;
    let text = schema.get("description").and_then(Value::as_str);
    let plain = text.unwrap_or_default().trim_end_matches(MARK);
    match (is_marked, plain) {
        (true, plain) => {
            let marked = format!("{plain}{MARK}");
            schema.insert("description".to_owned(), marked.into());
        }
        (false, "") => {
            schema.remove("description");
        }
        (false, plain) => {
            let plain = plain.to_owned();
            schema.insert("description".to_owned(), plain.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use client_fake::FakeApi;
    use serde_json::json;

    use super::*;

    fn resource(resource: &str, group: &str) -> MovedResource {
        MovedResource {
            group: group.into(),
            version: "v1".into(),
            resource: resource.into(),
            kind: "K".into(),
            namespaced: true,
            objects: 0,
        }
    }

    // proves: TKO-watches
    #[tokio::test(start_paused = true)]
    async fn definitions_are_changed_and_are_then_as_they_were() {
        let fake = FakeApi::new();
        let definition = |name: &str, schema: Value| {
            json!({"metadata": {"name": name}, "spec": {"versions": [
                {"name": "v1", "schema": {"openAPIV3Schema": schema}}]}})
        };
        let schemas = [
            json!({"type": "object"}),
            json!({"type": "object", "description": "A policy."}),
        ];
        for (name, schema) in ["a.g", "b.g"].into_iter().zip(&schemas) {
            fake.seed(&DEFINITIONS, definition(name, schema.clone()));
        }
        let moved = [
            resource("a", "g"),
            resource("b", "g"),
            resource("clusters", "g"),
        ];
        for name in ["a.g", "b.g"] {
            write_mark(&*fake, name, true).await.unwrap();
        }
        end_watches(&*fake, &moved).await.unwrap();
        assert_eq!(fake.writes().len(), 6);
        for (name, schema) in ["a.g", "b.g"].into_iter().zip(&schemas) {
            let object = fake.get_object(&DEFINITIONS, "", name).unwrap();
            let written = &object["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            assert_eq!(written, schema, "{name}");
        }
    }
}
