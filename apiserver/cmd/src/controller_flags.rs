//! Flags of karmada-controller-manager that choose controllers and their intervals.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use client::remote::RestConfig;
use client::remote::kubeconfig::KubeconfigLoadingRules;
use machinery::duration;

const HPA_SCALE_TARGET_MARKER: &str = "hpaScaleTargetMarker";
const DEPLOYMENT_REPLICAS_SYNCER: &str = "deploymentReplicasSyncer";

#[derive(Args, Clone)]
#[group(id = "manager")]
pub(crate) struct ControllerArgs {
    /// A list of controllers to enable. '*' enables all on-by-default controllers, 'foo'
    /// enables the controller named 'foo', '-foo' disables it. Disabled-by-default
    /// controllers: hpaScaleTargetMarker, deploymentReplicasSyncer. Others cannot be
    /// chosen.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "*",
        allow_hyphen_values = true
    )]
    controllers: Vec<String>,
    /// The interval for a full recalculation of the usage of enforced
    /// FederatedResourceQuotas; 0 recalculates only on changes.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "5m",
        value_parser = duration::parse
    )]
    federated_resource_quota_sync_period: Duration,
    /// Path to the kubeconfig of the management cluster of Cluster API. Clusters that it
    /// provisions are joined, and removed when they are deleted there.
    #[arg(long, value_name = "FILE")]
    cluster_api_kubeconfig: Option<PathBuf>,
    /// Name of the context in that kubeconfig; the current context by default.
    #[arg(long, value_name = "CONTEXT", requires = "cluster_api_kubeconfig")]
    cluster_api_context: Option<String>,
}

/// The values of the flags; the defaults are Karmada's.
#[derive(Clone, Debug)]
pub(crate) struct ControllerOptions {
    pub(crate) autoscale: autoscale::EnabledHpaControllers,
    pub(crate) quota_resync: Duration,
    /// The management cluster of Cluster API.
    pub(crate) cluster_api: Option<RestConfig>,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            autoscale: autoscale::EnabledHpaControllers::default(),
            quota_resync: controller_context::PropagationOptions::default().quota_resync,
            cluster_api: None,
        }
    }
}

impl ControllerArgs {
    pub(crate) fn options(&self) -> anyhow::Result<ControllerOptions> {
        Ok(ControllerOptions {
            autoscale: parse_controllers(&self.controllers).map_err(anyhow::Error::msg)?,
            quota_resync: self.federated_resource_quota_sync_period,
            cluster_api: self.cluster_api_config()?,
        })
    }

    fn cluster_api_config(&self) -> anyhow::Result<Option<RestConfig>> {
        let Some(file) = &self.cluster_api_kubeconfig else {
            return Ok(None);
        };
        let rules = KubeconfigLoadingRules {
            context: self.cluster_api_context.clone(),
            ..KubeconfigLoadingRules::from_file(file)
        };
        Ok(Some(rules.load().context("--cluster-api-kubeconfig")?))
    }
}

fn parse_controllers(names: &[String]) -> Result<autoscale::EnabledHpaControllers, String> {
    if !names.iter().any(|name| name == "*") {
        return Err("--controllers: without * no controller would run".into());
    }
    let mut options = autoscale::EnabledHpaControllers::default();
    for name in names.iter().filter(|name| *name != "*") {
        let (name, on) = match name.strip_prefix('-') {
            Some(name) => (name, false),
            None => (name.as_str(), true),
        };
        match name {
            HPA_SCALE_TARGET_MARKER => options.scale_target_marker = on,
            DEPLOYMENT_REPLICAS_SYNCER => options.replicas_syncer = on,
            _ => {
                return Err(format!(
                    "--controllers: {name:?} is not in the list of known controllers: {HPA_SCALE_TARGET_MARKER}, {DEPLOYMENT_REPLICAS_SYNCER}"
                ));
            }
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: AUT-off
    #[test]
    fn names_enable_and_disable_controllers() {
        let on = |scale_target_marker, replicas_syncer| autoscale::EnabledHpaControllers {
            scale_target_marker,
            replicas_syncer,
        };
        for (text, expected) in [
            ("*", Some(on(false, false))),
            ("*,hpaScaleTargetMarker", Some(on(true, false))),
            (
                "deploymentReplicasSyncer,*,-hpaScaleTargetMarker",
                Some(on(false, true)),
            ),
            ("hpaScaleTargetMarker", None),
            ("*,-cluster", None),
            ("", None),
        ] {
            let names: Vec<String> = text.split(',').map(str::to_owned).collect();
            assert_eq!(parse_controllers(&names).ok(), expected, "{text}");
        }
    }
}
