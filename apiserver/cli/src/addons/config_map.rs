//! The ConfigMap of the addons in a control plane: where it is, and its reads and writes.

use std::sync::Arc;

use anyhow::{Context, anyhow};
use client::{
    Api, Patch, ResourcePath, TaskGroup, WatchEvent, WatchOptions, WriteOptions, ignore_not_found,
};
use futures_util::StreamExt;
use karmada_api::addons::{
    ADDONS_CONFIG_MAP, ADDONS_NAMESPACE, Addon, AddonStatus, CONFIG_MAPS, DISABLED, ENABLED,
};
use machinery::{Gvr, Object};
use serde_json::{Value, json};

use super::server_flags::AddonsServerArgs;

static API_SERVICES: Gvr = Gvr::from_static("apiregistration.k8s.io", "v1", "apiservices");
/// The APIService that leads from a host to Flotilla.
const OWN_API_SERVICE: &str = "v1alpha1.cluster.karmada.io";

/// The ConfigMap of a server.
pub(super) struct AddonsConfigMap {
    api: Arc<dyn Api>,
    pub(super) namespace: String,
}

impl AddonsConfigMap {
    /// Connects, and finds the namespace.
    pub(super) async fn connect(
        arguments: &AddonsServerArgs,
        tasks: &TaskGroup,
    ) -> anyhow::Result<Self> {
        let api = arguments.control.connect(tasks)?;
        let namespace = match &arguments.namespace {
            Some(namespace) => namespace.clone(),
            None => own_namespace(&*api).await?,
        };
        Ok(Self { api, namespace })
    }

    fn path(&self) -> ResourcePath<'_> {
        ResourcePath::object(&CONFIG_MAPS, &self.namespace, ADDONS_CONFIG_MAP)
    }

    /// The server's report; `None` if it has written none.
    pub(super) async fn statuses(&self) -> anyhow::Result<Option<Vec<AddonStatus>>> {
        let map = ignore_not_found(self.api.get(self.path()).await)?;
        Ok(map.as_ref().and_then(AddonStatus::from_config_map))
    }

    /// Writes the states of addons.
    pub(super) async fn set_states(
        &self,
        addons: &[Addon],
        enabled: bool,
        dry_run: bool,
    ) -> anyhow::Result<()> {
        let state = if enabled { ENABLED } else { DISABLED };
        let data = addons.iter().map(|addon| (addon.name(), state));
        let data: serde_json::Map<String, Value> = data
            .map(|(name, state)| (name.to_owned(), state.into()))
            .collect();
        let options = WriteOptions {
            dry_run,
            ..WriteOptions::default()
        };
        let patch = || {
            let patch = Patch::Merge(json!({"data": data}));
            self.api.patch(self.path(), patch, &options)
        };
        match patch().await {
            Err(error) if error.is_not_found() => {}
            other => return Ok(other.map(drop)?),
        }
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": ADDONS_CONFIG_MAP, "namespace": self.namespace}});
        let all = ResourcePath::collection(&CONFIG_MAPS, &self.namespace);
        match self.api.create(all, map.into(), &options).await {
            // The server has created it meanwhile.
            Err(error) if error.is_already_exists() => Ok(patch().await.map(drop)?),
            other => Ok(other.map(drop)?),
        }
    }

    /// Calls `report` with what the server reports, now and after each change, until that returns
    /// true.
    pub(super) async fn watch_statuses(
        &self,
        mut report: impl FnMut(Vec<AddonStatus>) -> bool,
    ) -> anyhow::Result<()> {
        let options = WatchOptions {
            field_selector: format!("metadata.name={ADDONS_CONFIG_MAP}"),
            ..WatchOptions::default()
        };
        let all = ResourcePath::collection(&CONFIG_MAPS, &self.namespace);
        let mut events = self.api.watch(all, &options).await?;
        while let Some(event) = events.next().await {
            let (WatchEvent::Added(map) | WatchEvent::Modified(map)) = event? else {
                continue;
            };
            if report(AddonStatus::from_config_map(&map).unwrap_or_default()) {
                return Ok(());
            }
        }
        Err(anyhow!("the server has ended the watch"))
    }
}

/// The namespace in which Flotilla is installed, or that of a standalone server.
async fn own_namespace(api: &dyn Api) -> anyhow::Result<String> {
    let at = ResourcePath::object(&API_SERVICES, "", OWN_API_SERVICE);
    let registration = ignore_not_found(api.get(at).await)
        .with_context(|| format!("APIService {OWN_API_SERVICE} (or set --namespace)"))?;
    let namespace = registration.as_ref().and_then(service_namespace);
    Ok(namespace.unwrap_or_else(|| ADDONS_NAMESPACE.to_owned()))
}

fn service_namespace(registration: &Object) -> Option<String> {
    let value = registration.value().ok()?;
    value["spec"]["service"]["namespace"]
        .as_str()
        .map(str::to_owned)
}
