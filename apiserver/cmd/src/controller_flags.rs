//! Flags of karmada-controller-manager that choose controllers and their intervals.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use client::remote::RestConfig;
use client::remote::kubeconfig::KubeconfigLoadingRules;
use estimator::DeschedulerSettings;
use machinery::duration;
use machinery::names::validate_dns1123_label;

use crate::federated_hpa_flags::FederatedHpaArgs;
use crate::rollout_flags::RolloutControllerArgs;

const FEDERATED_HPA: &str = "federatedHorizontalPodAutoscaler";
const CRON_FEDERATED_HPA: &str = "cronFederatedHorizontalPodAutoscaler";
const HPA_SCALE_TARGET_MARKER: &str = "hpaScaleTargetMarker";
const DEPLOYMENT_REPLICAS_SYNCER: &str = "deploymentReplicasSyncer";
const SERVICE_EXPORT: &str = "serviceExport";
const ENDPOINT_SLICE: &str = "endpointSlice";
const SERVICE_IMPORT: &str = "serviceImport";
const MULTI_CLUSTER_SERVICE: &str = "multiclusterservice";
const ENDPOINT_SLICE_COLLECT: &str = "endpointsliceCollect";
const ENDPOINT_SLICE_DISPATCH: &str = "endpointsliceDispatch";
const DESCHEDULER: &str = "descheduler";

#[derive(Args, Clone)]
#[group(id = "manager")]
#[command(next_help_heading = "Controller flags")]
pub(crate) struct ControllerArgs {
    /// A list of controllers to enable. '*' enables all on-by-default controllers, 'foo'
    /// enables the controller named 'foo', '-foo' disables it. Controllers that can be
    /// chosen: federatedHorizontalPodAutoscaler, cronFederatedHorizontalPodAutoscaler,
    /// serviceExport, endpointSlice, serviceImport, with the feature gate MultiClusterService
    /// multiclusterservice, endpointsliceCollect, endpointsliceDispatch, and those disabled by
    /// default: hpaScaleTargetMarker, deploymentReplicasSyncer, descheduler.
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
    /// The time interval between two consecutive descheduling executions, if the controller
    /// descheduler is enabled.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = positive_duration)]
    descheduling_interval: Duration,
    /// The period of pod unschedulable condition, after which the descheduler takes replicas
    /// from a cluster.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    unschedulable_threshold: Duration,
    /// The namespace of the ClusterProfiles that describe the members; by default that in which
    /// Flotilla is installed, or karmada-system of a standalone server. It is created if there is none.
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace_name)]
    cluster_profile_namespace: Option<String>,
    /// Path to the kubeconfig of the management cluster of Cluster API. Clusters that it
    /// provisions are joined, and removed when they are deleted there.
    #[arg(long, value_name = "FILE")]
    cluster_api_kubeconfig: Option<PathBuf>,
    /// Name of the context in that kubeconfig; the current context by default.
    #[arg(long, value_name = "CONTEXT", requires = "cluster_api_kubeconfig")]
    cluster_api_context: Option<String>,
    #[command(flatten)]
    federated_hpa: FederatedHpaArgs,
    #[command(flatten)]
    rollouts: RolloutControllerArgs,
}

/// The values of the flags; the defaults are Karmada's.
#[derive(Clone, Debug)]
pub(crate) struct ControllerOptions {
    pub(crate) autoscale: autoscale::EnabledAutoscalers,
    pub(crate) federated_hpa: autoscale::FederatedHpaSettings,
    pub(crate) services: services::EnabledServiceControllers,
    /// Whether the descheduler is enabled, and when it acts.
    pub(crate) descheduler_enabled: bool,
    pub(crate) descheduler: DeschedulerSettings,
    pub(crate) quota_resync: Duration,
    /// The namespace of ClusterProfiles.
    pub(crate) cluster_profile_namespace: Option<String>,
    /// The management cluster of Cluster API.
    pub(crate) cluster_api: Option<RestConfig>,
    /// The server that answers queries of staged rollouts.
    pub(crate) rollout_prometheus: Option<RestConfig>,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            autoscale: autoscale::EnabledAutoscalers::default(),
            federated_hpa: autoscale::FederatedHpaSettings::default(),
            services: services::EnabledServiceControllers::default(),
            descheduler_enabled: false,
            descheduler: DeschedulerSettings::default(),
            quota_resync: propagation::QUOTA_RESYNC_PERIOD,
            cluster_profile_namespace: None,
            cluster_api: None,
            rollout_prometheus: None,
        }
    }
}

impl ControllerArgs {
    pub(crate) fn options(&self) -> anyhow::Result<ControllerOptions> {
        let enabled = parse_controllers(&self.controllers).map_err(anyhow::Error::msg)?;
        Ok(ControllerOptions {
            autoscale: enabled.autoscale,
            federated_hpa: self.federated_hpa.settings()?,
            services: enabled.services,
            descheduler_enabled: enabled.descheduler,
            descheduler: DeschedulerSettings {
                interval: self.descheduling_interval,
                unschedulable_threshold: self.unschedulable_threshold,
            },
            quota_resync: self.federated_resource_quota_sync_period,
            cluster_profile_namespace: self.cluster_profile_namespace.clone(),
            cluster_api: self.cluster_api_config()?,
            rollout_prometheus: self.rollouts.prometheus()?,
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

/// Which of the controllers run that can be chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct EnabledControllers {
    autoscale: autoscale::EnabledAutoscalers,
    services: services::EnabledServiceControllers,
    descheduler: bool,
}

fn positive_duration(text: &str) -> Result<Duration, String> {
    let parsed = duration::parse(text)?;
    match parsed {
        Duration::ZERO => Err("must be greater than 0".into()),
        positive => Ok(positive),
    }
}

fn namespace_name(text: &str) -> Result<String, String> {
    validate_dns1123_label(text).map(|()| text.to_owned())
}

fn parse_controllers(names: &[String]) -> Result<EnabledControllers, String> {
    if !names.iter().any(|name| name == "*") {
        return Err("--controllers: without * no controller would run".into());
    }
    let mut enabled = EnabledControllers::default();
    for name in names.iter().filter(|name| *name != "*") {
        let (name, on) = match name.strip_prefix('-') {
            Some(name) => (name, false),
            None => (name.as_str(), true),
        };
        match name {
            FEDERATED_HPA => enabled.autoscale.federated_hpa = on,
            CRON_FEDERATED_HPA => enabled.autoscale.cron_federated_hpa = on,
            HPA_SCALE_TARGET_MARKER => enabled.autoscale.scale_target_marker = on,
            DEPLOYMENT_REPLICAS_SYNCER => enabled.autoscale.replicas_syncer = on,
            SERVICE_EXPORT => enabled.services.service_export = on,
            ENDPOINT_SLICE => enabled.services.endpoint_slice = on,
            SERVICE_IMPORT => enabled.services.service_import = on,
            MULTI_CLUSTER_SERVICE => enabled.services.multi_cluster_service = on,
            ENDPOINT_SLICE_COLLECT => enabled.services.endpoint_slice_collect = on,
            ENDPOINT_SLICE_DISPATCH => enabled.services.endpoint_slice_dispatch = on,
            DESCHEDULER => enabled.descheduler = on,
            _ => {
                return Err(format!(
                    "--controllers: {name:?} is not in the list of known controllers: {FEDERATED_HPA}, {CRON_FEDERATED_HPA}, {HPA_SCALE_TARGET_MARKER}, {DEPLOYMENT_REPLICAS_SYNCER}, {SERVICE_EXPORT}, {ENDPOINT_SLICE}, {SERVICE_IMPORT}, {MULTI_CLUSTER_SERVICE}, {ENDPOINT_SLICE_COLLECT}, {ENDPOINT_SLICE_DISPATCH}, {DESCHEDULER}"
                ));
            }
        }
    }
    Ok(enabled)
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: AUT-off, DES-off, SVC-off
    #[test]
    fn names_enable_and_disable_controllers() {
        let on = |federated_hpa, cron_federated_hpa, scale_target_marker, replicas_syncer| {
            EnabledControllers {
                autoscale: autoscale::EnabledAutoscalers {
                    federated_hpa,
                    cron_federated_hpa,
                    scale_target_marker,
                    replicas_syncer,
                },
                ..EnabledControllers::default()
            }
        };
        let descheduler = EnabledControllers {
            descheduler: true,
            ..EnabledControllers::default()
        };
        let mut no_exports = EnabledControllers::default();
        no_exports.services.service_export = false;
        let mut no_dispatch = EnabledControllers::default();
        no_dispatch.services.endpoint_slice_dispatch = false;
        for (text, expected) in [
            ("*", Some(on(true, true, false, false))),
            ("*,hpaScaleTargetMarker", Some(on(true, true, true, false))),
            (
                "deploymentReplicasSyncer,*,-hpaScaleTargetMarker",
                Some(on(true, true, false, true)),
            ),
            (
                "*,-cronFederatedHorizontalPodAutoscaler",
                Some(on(true, false, false, false)),
            ),
            (
                "*,-federatedHorizontalPodAutoscaler",
                Some(on(false, true, false, false)),
            ),
            ("*,descheduler", Some(descheduler)),
            ("*,-serviceExport", Some(no_exports)),
            ("*,-endpointsliceDispatch", Some(no_dispatch)),
            ("*,-descheduler", Some(on(true, true, false, false))),
            ("hpaScaleTargetMarker", None),
            ("*,-cluster", None),
            ("", None),
        ] {
            let names: Vec<String> = text.split(',').map(str::to_owned).collect();
            assert_eq!(parse_controllers(&names).ok(), expected, "{text}");
        }
    }
}
