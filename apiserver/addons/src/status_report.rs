//! The server's report of the addons, in an annotation of their ConfigMap. No I/O but the write.

use client::{Api, Patch, ResourcePath, WriteOptions};
use karmada_api::addons::{
    ADDON_STATUSES, ADDONS_CONFIG_MAP, Addon, AddonConfiguration, AddonStatus, CONFIG_MAPS,
    DISABLED, ENABLED, UNHEALTHY, UNKNOWN,
};
use serde_json::{Value, json};

use super::switches::ConfiguredAddons;

/// How many names of no addon are reported, and how long a value that is quoted may be.
const MAX_UNKNOWN_NAMES: usize = 20;
const MAX_VALUE_CHARACTERS: usize = 60;

/// The state of an addon in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddonState {
    Enabled,
    Disabled,
    /// It is enabled and has not started for long.
    NotStarted,
}

/// Why an addon is in its state.
fn reason_and_message(configuration: &AddonConfiguration, addon: Addon) -> (&str, String) {
    match (
        configuration.state(addon),
        configuration.invalid_value(addon),
    ) {
        (Some(_), _) => ("Configured", String::new()),
        (None, None) => ("Default", "the flags of the server decide".to_owned()),
        (None, Some(value)) => {
            let quoted: String = value.chars().take(MAX_VALUE_CHARACTERS).collect();
            let text = format!(
                "{quoted:?} is neither \"{ENABLED}\" nor \"{DISABLED}\"; the flags of the server decide"
            );
            ("InvalidValue", text)
        }
    }
}

/// The report, in the order of the names; last are names of no addon.
pub(super) fn addon_statuses(
    configuration: &AddonConfiguration,
    state: impl Fn(Addon) -> AddonState,
) -> Vec<AddonStatus> {
    let statuses = Addon::ALL.into_iter().map(|addon| {
        let (reason, mut message) = reason_and_message(configuration, addon);
        let status = match state(addon) {
            AddonState::Enabled => ENABLED,
            AddonState::Disabled => DISABLED,
            AddonState::NotStarted => {
                "what it watches is not listed yet".clone_into(&mut message);
                UNHEALTHY
            }
        };
        AddonStatus {
            name: addon.name().to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
        }
    });
    let unknown = configuration.unknown_names().iter();
    let unknown = unknown.take(MAX_UNKNOWN_NAMES).map(|name| AddonStatus {
        name: name.clone(),
        status: UNKNOWN.to_owned(),
        reason: "UnknownAddon".to_owned(),
        message: "there is no addon of this name".to_owned(),
    });
    statuses.chain(unknown).collect()
}

/// Writes the report if the ConfigMap does not have it. Creates the ConfigMap if it is absent.
pub(super) async fn write_report(
    api: &dyn Api,
    namespace: &str,
    configured: &ConfiguredAddons,
    statuses: &[AddonStatus],
) -> client::Result<()> {
    if configured.exists && configured.reported.as_deref() == Some(statuses) {
        return Ok(());
    }
    let options = WriteOptions::default();
    let report = Value::from(json!(statuses).to_string());
    let metadata = json!({"annotations": {ADDON_STATUSES: report}});
    if configured.exists {
        let at = ResourcePath::object(&CONFIG_MAPS, namespace, ADDONS_CONFIG_MAP);
        let patch = Patch::Merge(json!({"metadata": metadata}));
        return match api.patch(at, patch, &options).await {
            // Its deletion is a change, after which it is created.
            Err(error) if error.is_not_found() => Ok(()),
            other => other.map(drop),
        };
    }
    let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    map["metadata"]["name"] = ADDONS_CONFIG_MAP.into();
    map["metadata"]["namespace"] = namespace.into();
    let all = ResourcePath::collection(&CONFIG_MAPS, namespace);
    match api.create(all, map.into(), &options).await {
        // It is a change, after which the report is compared.
        Err(error) if error.is_already_exists() => Ok(()),
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use client_fake::FakeApi;
    use machinery::Object;

    use super::*;

    fn configuration(data: Value) -> AddonConfiguration {
        let map = json!({"metadata": {"name": ADDONS_CONFIG_MAP}, "data": data});
        AddonConfiguration::from_config_map(&Object::from_value(&map).unwrap())
    }

    // proves: ADD-invalid
    #[test]
    fn invalid_values_and_unknown_names_are_reported() {
        let read = configuration(json!({"karmada-search": "disabled",
            "karmada-descheduler": "on", "karmada-serch": "enabled"}));
        let statuses = addon_statuses(&read, |addon| match addon {
            Addon::Search | Addon::Descheduler => AddonState::Disabled,
            Addon::MultiClusterServices => AddonState::NotStarted,
            _ => AddonState::Enabled,
        });
        let lines: Vec<String> = statuses
            .iter()
            .map(|s| format!("{} {} {} {}", s.name, s.status, s.reason, s.message))
            .collect();
        assert_eq!(
            lines,
            [
                "flotilla-autoscalers enabled Default the flags of the server decide",
                "flotilla-cluster-inventory enabled Default the flags of the server decide",
                "flotilla-multicluster-services unhealthy Default what it watches is not listed yet",
                "karmada-descheduler disabled InvalidValue \"on\" is neither \"enabled\" nor \"disabled\"; the flags of the server decide",
                "karmada-metrics-adapter enabled Default the flags of the server decide",
                "karmada-scheduler-estimator enabled Default the flags of the server decide",
                "karmada-search disabled Configured ",
                "karmada-serch unknown UnknownAddon there is no addon of this name",
            ]
        );
    }

    #[tokio::test]
    async fn the_report_is_written_once() {
        let fake = FakeApi::new();
        let statuses = addon_statuses(&AddonConfiguration::default(), |_| AddonState::Enabled);
        let mut configured = ConfiguredAddons::default();
        write_report(&*fake, "ns", &configured, &statuses)
            .await
            .unwrap();
        let at = ResourcePath::object(&CONFIG_MAPS, "ns", ADDONS_CONFIG_MAP);
        let written = fake.get(at).await.unwrap();
        let reported = AddonStatus::from_config_map(&written);
        assert_eq!(reported.as_deref(), Some(&*statuses));
        configured.exists = true;
        configured.reported = reported;
        write_report(&*fake, "ns", &configured, &statuses)
            .await
            .unwrap();
        assert_eq!(fake.get(at).await.unwrap().revision(), written.revision());
        let others = addon_statuses(&AddonConfiguration::default(), |_| AddonState::Disabled);
        write_report(&*fake, "ns", &configured, &others)
            .await
            .unwrap();
        let written = fake.get(at).await.unwrap();
        assert_eq!(AddonStatus::from_config_map(&written), Some(others));
    }
}
