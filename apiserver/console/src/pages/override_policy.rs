//! The page of an override policy: what it selects, in which clusters, and what it changes there.

use client::ResourcePath;
use flotilla_cli::plan::manifest_of_kind;
use karmada_api::policy::{OverrideSpec, Overriders};
use karmada_api::resources::{CLUSTER_OVERRIDES, OVERRIDES};
use karmada_api::{ClusterAffinity, OverridePolicy};
use maud::{Markup, html};

use super::layout::PageParts;
use super::markup::empty_state;
use super::policy_parts::{
    cluster_chips, manifest_section, policy_frame, policy_heading, selected_clusters,
    selects_section,
};
use crate::clipped_text::clipped;
use crate::console::Console;
use crate::inventory::{OVERRIDE_PAGES, ObjectKey, describe_affinity};

/// Rules and changes of a rule that are shown; the manifest has all.
const MAX_RULES: usize = 50;
const MAX_CHANGES: usize = 50;

pub(super) fn parts(key: &ObjectKey) -> PageParts {
    policy_frame(key, OVERRIDE_PAGES, "All override policies")
}

pub(super) async fn content(console: &Console, key: &ObjectKey) -> anyhow::Result<Markup> {
    let (namespace, name) = key;
    let (resource, kind) = match namespace.as_str() {
        "" => (&CLUSTER_OVERRIDES, "ClusterOverridePolicy"),
        _ => (&OVERRIDES, "OverridePolicy"),
    };
    let at = ResourcePath::object(resource, namespace, name);
    let policy = console.api.get(at).await?;
    let manifest = manifest_of_kind(&policy, &resource.api_version(), kind)?;
    let policy = policy.decode::<OverridePolicy>()?;
    let spec = &policy.spec;
    Ok(html! {
        (policy_heading(kind, key))
        (selects_section(&spec.resource_selectors, namespace))
        (rules_section(console, spec))
        @if may_select_secrets(spec) {
            section aria-labelledby="manifest" {
                h2 #manifest { "Manifest" }
                p .muted { "It is not shown, since it may have values of Secrets, which this policy selects too." }
            }
        } @else {
            (manifest_section(&manifest))
        }
    })
}

fn may_select_secrets(spec: &OverrideSpec) -> bool {
    let mut selectors = spec.resource_selectors.iter();
    spec.resource_selectors.is_empty() || selectors.any(|selector| selector.kind == "Secret")
}

/// The rules with their clusters; the deprecated form of the policy is one rule.
fn rules_of(spec: &OverrideSpec) -> Vec<(Option<&ClusterAffinity>, &Overriders)> {
    match spec.override_rules.as_slice() {
        [] => vec![(spec.target_cluster.as_ref(), &spec.overriders)],
        rules => {
            let rules = rules.iter();
            rules
                .map(|rule| (rule.target_cluster.as_ref(), &rule.overriders))
                .collect()
        }
    }
}

fn rules_section(console: &Console, spec: &OverrideSpec) -> Markup {
    html! {
        section aria-labelledby="changes" {
            h2 #changes { "Changes" }
            @for (affinity, overriders) in rules_of(spec).into_iter().take(MAX_RULES) {
                @let changes = describe_overriders(overriders);
                div .card.rule {
                    p { "In " (affinity.map_or_else(|| "all clusters".to_owned(), describe_affinity)) }
                    (cluster_chips(&selected_clusters(console, affinity)))
                    @if changes.is_empty() {
                        (empty_state("Nothing", &html! { "The rule has no overriders." }))
                    } @else {
                        ul .differences {
                            @for change in changes.iter().take(MAX_CHANGES) { li { (clipped(change)) } }
                        }
                    }
                }
            }
        }
    }
}

/// The changes of overriders, without the values that they write, which may be of a Secret.
fn describe_overriders(overriders: &Overriders) -> Vec<String> {
    let Overriders {
        plaintext,
        image_overrider,
        command_overrider,
        args_overrider,
        labels_overrider,
        annotations_overrider,
        field_overrider,
    } = overriders;
    let mut lines = Vec::new();
    let plaintext = plaintext.iter();
    lines.extend(plaintext.map(|change| format!("{} {}", change.operator, change.path)));
    let images = image_overrider.iter();
    lines.extend(images.map(|change| {
        let (operator, component) = (&change.operator, change.component.to_lowercase());
        match &change.predicate {
            Some(predicate) => {
                format!("{operator} the {component} of the image {}", predicate.path)
            }
            None => format!("{operator} the {component} of the images"),
        }
    }));
    let lists = [
        ("command", command_overrider),
        ("arguments", args_overrider),
    ];
    for (noun, changes) in lists {
        lines.extend(changes.iter().map(|change| {
            format!(
                "{} in the {noun} of the container {}",
                change.operator, change.container_name
            )
        }));
    }
    let maps = [
        ("label", labels_overrider),
        ("annotation", annotations_overrider),
    ];
    for (noun, changes) in maps {
        lines.extend(changes.iter().flat_map(|change| {
            let keys = change.value.keys();
            keys.map(move |key| format!("{} the {noun} {key}", change.operator))
        }));
    }
    for change in field_overrider {
        let operations = change.json.iter().chain(&change.yaml);
        lines.extend(operations.map(|operation| {
            format!(
                "{} {} within {}",
                operation.operator, operation.sub_path, change.field_path
            )
        }));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // proves: CON-override-policy
    #[test]
    fn overriders_are_described_without_their_values() {
        let overriders: Overriders = serde_json::from_value(json!({
            "plaintext": [{"path": "/spec/replicas", "operator": "replace", "value": "hidden"}],
            "imageOverrider": [{"component": "Tag", "operator": "replace", "value": "hidden"},
                {"component": "Registry", "operator": "add", "value": "hidden", "predicate": {"path": "/spec/image"}}],
            "commandOverrider": [{"containerName": "web", "operator": "add", "value": ["hidden"]}],
            "argsOverrider": [{"containerName": "web", "operator": "remove", "value": ["hidden"]}],
            "labelsOverrider": [{"operator": "add", "value": {"team": "hidden"}}],
            "annotationsOverrider": [{"operator": "remove", "value": {"note": "hidden"}}],
            "fieldOverrider": [{"fieldPath": "/data/a", "json": [{"subPath": "/b", "operator": "add", "value": "hidden"}],
                "yaml": [{"subPath": "/c", "operator": "remove"}]}]}))
        .unwrap();
        let expected = [
            "replace /spec/replicas",
            "replace the tag of the images",
            "add the registry of the image /spec/image",
            "add in the command of the container web",
            "remove in the arguments of the container web",
            "add the label team",
            "remove the annotation note",
            "add /b within /data/a",
            "remove /c within /data/a",
        ];
        assert_eq!(describe_overriders(&overriders), expected);
    }
}
