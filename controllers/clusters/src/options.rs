//! What the controllers of this crate work with beside their context.

use std::time::Duration;

use interpreter::ResourceInterpreter;
use jiff::Timestamp;
use karmada_api::FeatureGates;
use machinery::certificate_request::certificate_validity;
use members::MemberClusterManager;

use crate::failover::options::FailoverOptions;

/// The parts and settings that the controllers need beside their context.
pub struct ClusterControllersOptions {
    pub members: MemberClusterManager,
    pub interpreter: ResourceInterpreter,
    pub settings: ClusterControllersSettings,
}

/// The times from and until which the certificate of an agent is valid.
#[derive(Clone, Copy, Debug)]
pub struct AgentCertificateValidity {
    pub from: Timestamp,
    pub until: Timestamp,
}

impl AgentCertificateValidity {
    /// `None` if the certificate cannot be read.
    pub fn from_pem(pem: &[u8]) -> Option<Self> {
        let (from, until) = certificate_validity(&String::from_utf8_lossy(pem))?;
        Some(Self {
            from: Timestamp::from_second(from).ok()?,
            until: Timestamp::from_second(until).ok()?,
        })
    }
}

/// Who signs the certificates of agents, and how far holders of bootstrap tokens are trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentRegistrationMode {
    /// This server signs, and creates the roles of agents.
    #[default]
    Standalone,
    /// A host signs; this control plane creates the roles of agents.
    BehindHost,
    /// `--insecure-agent-registration`: as Karmada does, which trusts every token with all clusters.
    Karmada,
}

/// The settings of the controllers. The defaults are those of
/// `karmada-controller-manager`.
#[derive(Clone, Debug)]
pub struct ClusterControllersSettings {
    /// `--cluster-status-update-frequency`
    pub status_update_period: Duration,
    /// `--cluster-success-threshold`
    pub success_threshold: Duration,
    /// `--cluster-failure-threshold`
    pub failure_threshold: Duration,
    /// `--cluster-monitor-period`
    pub monitor_period: Duration,
    /// `--cluster-monitor-grace-period`
    pub monitor_grace_period: Duration,
    /// `--cluster-startup-grace-period`
    pub startup_grace_period: Duration,
    /// `--concurrent-cluster-syncs`: the number of workers of the cluster controller.
    pub concurrent_syncs: usize,
    /// `--enable-cluster-resource-modeling`: whether nodes and pods are aggregated.
    pub resource_modeling: bool,
    /// The cluster beside which this process runs as an agent: the only one whose status it
    /// reports.
    pub agent_cluster: Option<String>,
    /// When the certificate is valid with which the agent reaches the control plane.
    pub agent_certificate: Option<AgentCertificateValidity>,
    pub agent_registration: AgentRegistrationMode,
    /// The feature gates.
    pub gates: FeatureGates,
    pub failover: FailoverOptions,
}

impl Default for ClusterControllersSettings {
    fn default() -> Self {
        Self {
            status_update_period: Duration::from_secs(10),
            success_threshold: Duration::from_secs(30),
            failure_threshold: Duration::from_secs(30),
            monitor_period: Duration::from_secs(5),
            monitor_grace_period: Duration::from_secs(40),
            startup_grace_period: Duration::from_secs(60),
            concurrent_syncs: 5,
            resource_modeling: true,
            agent_cluster: None,
            agent_certificate: None,
            agent_registration: AgentRegistrationMode::default(),
            gates: FeatureGates::default(),
            failover: FailoverOptions::default(),
        }
    }
}
