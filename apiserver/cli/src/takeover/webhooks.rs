//! Karmada's admission webhooks, which would reject or change what Flotilla admits itself: they
//! are taken out of the host, and put back.

use anyhow::Context;
use client::{Api, DeleteOptions, ListOptions, ResourcePath, ignore_not_found};
use machinery::Gvr;
use serde_json::Value;

use super::session::write_options;
use super::snapshot::without_identity;
use crate::conflicts::retry_on_conflict;

pub(super) static VALIDATING: Gvr = Gvr::from_static(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
);
static MUTATING: Gvr = Gvr::from_static(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
);
/// The Service of Karmada's webhooks; their URLs have it too.
const KARMADA_WEBHOOK: &str = "karmada-webhook";

fn resource(configuration: &Value) -> &'static Gvr {
    match configuration["kind"] == "MutatingWebhookConfiguration" {
        true => &MUTATING,
        false => &VALIDATING,
    }
}

/// Whether a webhook leads to karmada-webhook.
fn is_karmada(webhook: &Value) -> bool {
    let client = &webhook["clientConfig"];
    let host = client["url"].as_str().and_then(|url| url.split('/').nth(2));
    let host = host.and_then(|host| host.split(['.', ':']).next());
    host == Some(KARMADA_WEBHOOK) || client["service"]["name"] == KARMADA_WEBHOOK
}

fn webhooks(configuration: &Value) -> impl Iterator<Item = &Value> {
    configuration["webhooks"].as_array().into_iter().flatten()
}

/// The configurations that have webhooks of Karmada.
pub(super) async fn karmada_configurations(host: &dyn Api) -> anyhow::Result<Vec<Value>> {
    let mut configurations = Vec::new();
    for (resource, kind) in [
        (&MUTATING, "MutatingWebhookConfiguration"),
        (&VALIDATING, "ValidatingWebhookConfiguration"),
    ] {
        let all = ResourcePath::collection(resource, "");
        let listed = host.list(all, &ListOptions::default()).await;
        for object in listed.context("webhook configurations")?.items {
            let mut configuration = object.value()?;
            configuration["apiVersion"] = resource.api_version().into();
            configuration["kind"] = kind.into();
            if webhooks(&configuration).any(is_karmada) {
                configurations.push(configuration);
            }
        }
    }
    Ok(configurations)
}

/// The webhooks of Karmada, as configuration/webhook.
pub(super) fn names(configurations: &[Value]) -> Vec<String> {
    let mut names = Vec::new();
    for configuration in configurations {
        let name = configuration["metadata"]["name"].as_str();
        for webhook in webhooks(configuration).filter(|w| is_karmada(w)) {
            let webhook = webhook["name"].as_str().unwrap_or_default();
            names.push(format!("{}/{webhook}", name.unwrap_or_default()));
        }
    }
    names
}

/// A configuration without the webhooks of Karmada; `None` if it has no others.
pub(super) fn without_karmada(mut configuration: Value) -> Option<Value> {
    let others = webhooks(&configuration).filter(|w| !is_karmada(w));
    let others: Vec<Value> = others.cloned().collect();
    let count = webhooks(&configuration).count();
    if others.len() == count {
        return Some(configuration);
    }
    configuration["webhooks"] = others.into();
    let is_empty = webhooks(&configuration).next().is_none();
    (!is_empty).then_some(configuration)
}

/// Takes the webhooks of Karmada out; a configuration without others is deleted.
pub(super) async fn take_out(host: &dyn Api) -> anyhow::Result<()> {
    for configuration in karmada_configurations(host).await? {
        let name = configuration["metadata"]["name"].as_str();
        let name = name.unwrap_or_default().to_owned();
        let at = ResourcePath::object(resource(&configuration), "", &name);
        retry_on_conflict(|| take_out_of(host, at))
            .await
            .with_context(|| format!("webhook configuration {name}"))?;
    }
    Ok(())
}

async fn take_out_of(host: &dyn Api, at: ResourcePath<'_>) -> anyhow::Result<()> {
    let Some(configuration) = ignore_not_found(host.get(at).await)? else {
        return Ok(());
    };
    match without_karmada(configuration.value()?) {
        Some(rest) => {
            host.update(at, rest.into(), write_options()).await?;
        }
        None => {
            ignore_not_found(host.delete(at, &DeleteOptions::default()).await)?;
        }
    }
    Ok(())
}

/// Puts the webhooks of Karmada back into their configurations.
pub(super) async fn put_back(host: &dyn Api, configurations: &[Value]) -> anyhow::Result<()> {
    for configuration in configurations {
        let name = configuration["metadata"]["name"].as_str();
        let name = name.unwrap_or_default();
        retry_on_conflict(|| put_back_into(host, configuration, name))
            .await
            .with_context(|| format!("webhook configuration {name}"))?;
    }
    Ok(())
}

async fn put_back_into(host: &dyn Api, configuration: &Value, name: &str) -> anyhow::Result<()> {
    let resource = resource(configuration);
    let at = ResourcePath::object(resource, "", name);
    let Some(existing) = ignore_not_found(host.get(at).await)? else {
        let body = without_identity(configuration);
        let all = ResourcePath::collection(resource, "");
        host.create(all, body.into(), write_options()).await?;
        return Ok(());
    };
    let mut restored = existing.value()?;
    let missing = missing_webhooks(configuration, &restored);
    if missing.is_empty() {
        return Ok(());
    }
    let mut all: Vec<Value> = webhooks(&restored).cloned().collect();
    all.extend(missing);
    restored["webhooks"] = all.into();
    host.update(at, restored.into(), write_options()).await?;
    Ok(())
}

/// The webhooks of Karmada that a configuration lacks now.
fn missing_webhooks(backup: &Value, current: &Value) -> Vec<Value> {
    let missing = webhooks(backup).filter(|webhook| {
        let mut present = webhooks(current);
        is_karmada(webhook) && !present.any(|p| p["name"] == webhook["name"])
    });
    missing.cloned().collect()
}

#[cfg(test)]
mod tests {
    use client_fake::FakeApi;
    use serde_json::json;

    use super::*;

    #[test]
    fn webhooks_of_karmada_lead_to_its_service() {
        for (client, expected) in [
            (
                json!({"url": "https://karmada-webhook.karmada-system.svc:443/m"}),
                true,
            ),
            (
                json!({"service": {"name": "karmada-webhook", "namespace": "k"}}),
                true,
            ),
            (json!({"url": "https://example.com/karmada-webhook"}), false),
            (
                json!({"service": {"name": "gatekeeper", "namespace": "g"}}),
                false,
            ),
        ] {
            assert_eq!(
                is_karmada(&json!({"clientConfig": client})),
                expected,
                "{client}"
            );
        }
    }

    // proves: TKO-webhooks
    #[tokio::test]
    async fn webhooks_are_taken_out_and_put_back() {
        let fake = FakeApi::new();
        let webhook = |name: &str, host: &str| json!({"name": name, "clientConfig": {"url": format!("https://{host}/x")}});
        let karmada = webhook("a", "karmada-webhook.karmada-system.svc");
        let other = webhook("b", "other.example.com");
        let configuration = |name: &str, webhooks: Value| {
            json!({"apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": name}, "webhooks": webhooks})
        };
        fake.seed(&VALIDATING, configuration("mixed", json!([karmada, other])));
        fake.seed(&VALIDATING, configuration("pure", json!([karmada])));
        fake.seed(&VALIDATING, configuration("others", json!([other])));
        let backup = karmada_configurations(&*fake).await.unwrap();
        assert_eq!(names(&backup), ["mixed/a", "pure/a"]);
        let count = |name: &str| {
            let object = fake.get_object(&VALIDATING, "", name);
            object.map(|o| o["webhooks"].as_array().unwrap().len())
        };
        for _ in 0..2 {
            take_out(&*fake).await.unwrap();
            assert_eq!(
                (count("mixed"), count("pure"), count("others")),
                (Some(1), None, Some(1))
            );
        }
        for _ in 0..2 {
            put_back(&*fake, &backup).await.unwrap();
            assert_eq!((count("mixed"), count("pure")), (Some(2), Some(1)));
        }
    }
}
