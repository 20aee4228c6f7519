//! Promotes the objects that a promoted object depends on, all or none of them.

use anyhow::{Context, anyhow};
use client::remote::RemoteApi;
use client::{Api, ApiResource, ListOptions, Patch, ResourcePath, WriteOptions};
use interpreter::{LuaLimits, ResourceInterpreter};
use karmada_api::dependency::DependentObjectReference;
use karmada_api::resources::CUSTOMIZATIONS;
use karmada_api::well_known_keys::{MANAGED, WORK_ID};
use machinery::{Gvk, Gvr, Object};
use serde_json::json;

use super::promotion::{Promotion, PromotionOptions};
use crate::object_lists::list_all;
use crate::output;

/// Reads what the promoted object depends on, by the control plane's interpreter, from the
/// member.
pub(super) async fn read(
    options: &PromotionOptions,
    control: &dyn Api,
    member: &RemoteApi,
    served: &[ApiResource],
    promotion: &Promotion,
) -> anyhow::Result<Vec<Promotion>> {
    let customizations = list_all(control, &CUSTOMIZATIONS, "").await?;
    let interpreter =
        ResourceInterpreter::from_customizations(&customizations, LuaLimits::default());
    let template = Object::from_value(&promotion.template)?;
    let Gvr { group, version, .. } = promotion.resource.resource.clone();
    let kind = Gvk::new(group, version, promotion.resource.kind.clone());
    let references = interpreter.dependencies(&kind, &template).await;
    let references =
        references.map_err(|reason| anyhow!("the dependencies are unknown: {reason}"))?;
    let mut promotions = Vec::new();
    for reference in references.unwrap_or_default() {
        let read = read_objects(member, served, &reference).await;
        let (resource, objects) = read.with_context(|| {
            format!(
                "failed to get dependency {} {} in cluster({})",
                reference.kind, reference.name, options.cluster
            )
        })?;
        for object in objects {
            promotions.push(Promotion::new(options, resource, &object)?);
        }
    }
    Ok(promotions)
}

/// The objects of a reference, which must be there if it has a name.
async fn read_objects<'a>(
    member: &RemoteApi,
    served: &'a [ApiResource],
    reference: &DependentObjectReference,
) -> anyhow::Result<(&'a ApiResource, Vec<Object>)> {
    let is_it = |r: &&ApiResource| {
        r.kind == reference.kind && r.resource.api_version() == reference.api_version
    };
    let resource = served.iter().find(is_it).with_context(|| {
        format!(
            "the member does not serve {} of {}",
            reference.kind, reference.api_version
        )
    })?;
    if !reference.name.is_empty() {
        let at = ResourcePath::object(&resource.resource, &reference.namespace, &reference.name);
        return Ok((resource, vec![member.get(at).await?]));
    }
    let at = ResourcePath::collection(&resource.resource, &reference.namespace);
    let list = member.list(at, &ListOptions::default()).await?;
    let mut matching = Vec::new();
    for object in list.items {
        if reference
            .matches(object.meta())
            .map_err(|reason| anyhow!(reason))?
        {
            matching.push(object);
        }
    }
    Ok((resource, matching))
}

/// Creates the templates. If one fails, those before it are released: the member keeps its
/// objects, and the templates are deleted.
pub(super) async fn create(
    options: &PromotionOptions,
    control: &dyn Api,
    member: &RemoteApi,
    dependencies: &[Promotion],
) -> anyhow::Result<()> {
    let mut created = Vec::new();
    for dependency in dependencies {
        let is_new = !is_template(control, dependency).await?;
        match dependency.create(control, options, false).await {
            Ok(line) => output::print_line(line),
            Err(failed) => {
                for promotion in created {
                    release(control, member, promotion).await.with_context(|| {
                        format!("{failed:#}; and {} was not released", promotion.text())
                    })?;
                }
                return Err(failed);
            }
        }
        if is_new && !options.dry_run {
            created.push(dependency);
        }
    }
    Ok(())
}

async fn is_template(control: &dyn Api, promotion: &Promotion) -> anyhow::Result<bool> {
    let at = ResourcePath::object(
        &promotion.resource.resource,
        &promotion.namespace,
        &promotion.name,
    );
    Ok(client::api::ignore_not_found(control.get(at).await)?.is_some())
}

/// Deletes a template. The marks of propagation go first, since another policy may have
/// selected it, and a deletion would reach the member's object.
async fn release(
    control: &dyn Api,
    member: &RemoteApi,
    promotion: &Promotion,
) -> anyhow::Result<()> {
    let at = ResourcePath::object(
        &promotion.resource.resource,
        &promotion.namespace,
        &promotion.name,
    );
    let unmarked = json!({"metadata": {"labels": {WORK_ID: null, MANAGED: null}}});
    let options = WriteOptions::default();
    member.patch(at, Patch::Merge(unmarked), &options).await?;
    let deleted = control.delete(at, &client::DeleteOptions::default()).await;
    client::api::ignore_not_found(deleted)?;
    Ok(())
}
