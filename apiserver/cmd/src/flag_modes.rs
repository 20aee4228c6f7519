//! The modes of `flotilla serve` in which each flag has an effect. A flag that is set in
//! another mode is an error, so that no operator relies on it.

use std::collections::BTreeSet;

use anyhow::bail;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};

/// The modes in which a flag has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagEffectiveMode {
    Always,
    /// Only in a standalone server.
    Standalone,
    /// Only behind another API server.
    BehindHost,
    /// Only with leader election.
    LeaderElection,
}

/// The mode in which `serve` runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServeModeFlags {
    pub(crate) behind_host: bool,
    pub(crate) leader_elect: bool,
}

/// The scope of every flag, by its id, which is its name with underscores.
pub(crate) const FLAGS: &[(&str, FlagEffectiveMode)] = &[
    ("allow_no_execute_taint_policy", FlagEffectiveMode::Always),
    ("anonymous_auth", FlagEffectiveMode::Always),
    ("api_audiences", FlagEffectiveMode::Always),
    ("audit_log_compress", FlagEffectiveMode::Always),
    ("audit_log_format", FlagEffectiveMode::Always),
    ("audit_log_mode", FlagEffectiveMode::Always),
    ("audit_webhook_mode", FlagEffectiveMode::Always),
    ("audit_log_maxage", FlagEffectiveMode::Always),
    ("audit_log_maxbackup", FlagEffectiveMode::Always),
    ("audit_log_maxsize", FlagEffectiveMode::Always),
    ("audit_log_path", FlagEffectiveMode::Always),
    ("audit_policy_file", FlagEffectiveMode::Always),
    ("audit_webhook_batch_buffer_size", FlagEffectiveMode::Always),
    ("audit_webhook_batch_max_size", FlagEffectiveMode::Always),
    ("audit_webhook_batch_max_wait", FlagEffectiveMode::Always),
    ("audit_webhook_config_file", FlagEffectiveMode::Always),
    ("audit_webhook_initial_backoff", FlagEffectiveMode::Always),
    (
        "authentication_token_webhook_cache_ttl",
        FlagEffectiveMode::Always,
    ),
    (
        "authorization_webhook_cache_authorized_ttl",
        FlagEffectiveMode::Always,
    ),
    (
        "authorization_webhook_cache_unauthorized_ttl",
        FlagEffectiveMode::Always,
    ),
    ("authentication_config", FlagEffectiveMode::Standalone),
    (
        "authentication_token_webhook_config_file",
        FlagEffectiveMode::Standalone,
    ),
    ("authorization_config", FlagEffectiveMode::Standalone),
    ("authorization_mode", FlagEffectiveMode::Standalone),
    (
        "authorization_webhook_config_file",
        FlagEffectiveMode::Standalone,
    ),
    ("client_ca_file", FlagEffectiveMode::Standalone),
    ("cluster_api_context", FlagEffectiveMode::Always),
    ("cluster_api_kubeconfig", FlagEffectiveMode::Always),
    ("cluster_failure_threshold", FlagEffectiveMode::Always),
    ("cluster_monitor_grace_period", FlagEffectiveMode::Always),
    ("cluster_signing_cert_file", FlagEffectiveMode::Standalone),
    ("cluster_signing_key_file", FlagEffectiveMode::Standalone),
    ("cluster_monitor_period", FlagEffectiveMode::Always),
    ("cluster_startup_grace_period", FlagEffectiveMode::Always),
    ("cluster_status_update_frequency", FlagEffectiveMode::Always),
    ("cluster_success_threshold", FlagEffectiveMode::Always),
    ("controllers", FlagEffectiveMode::Always),
    ("descheduling_interval", FlagEffectiveMode::Always),
    (
        "horizontal_pod_autoscaler_cpu_initialization_period",
        FlagEffectiveMode::Always,
    ),
    (
        "horizontal_pod_autoscaler_downscale_stabilization",
        FlagEffectiveMode::Always,
    ),
    (
        "horizontal_pod_autoscaler_initial_readiness_delay",
        FlagEffectiveMode::Always,
    ),
    (
        "horizontal_pod_autoscaler_sync_period",
        FlagEffectiveMode::Always,
    ),
    (
        "horizontal_pod_autoscaler_tolerance",
        FlagEffectiveMode::Always,
    ),
    ("unschedulable_threshold", FlagEffectiveMode::Always),
    ("data_dir", FlagEffectiveMode::Always),
    (
        "disable_scheduler_estimator_in_pull_mode",
        FlagEffectiveMode::Always,
    ),
    ("enable_bootstrap_token_auth", FlagEffectiveMode::Standalone),
    (
        "enable_empty_workload_propagation",
        FlagEffectiveMode::Always,
    ),
    (
        "enable_no_execute_taint_eviction",
        FlagEffectiveMode::Always,
    ),
    (
        "enable_priority_and_fairness",
        FlagEffectiveMode::Standalone,
    ),
    ("enable_scheduler_estimator", FlagEffectiveMode::Always),
    ("enable_taint_manager", FlagEffectiveMode::Always),
    ("encryption_provider_config", FlagEffectiveMode::Always),
    // The other flags of etcd require --etcd-servers.
    ("etcd_cafile", FlagEffectiveMode::Always),
    ("etcd_certificates_secret", FlagEffectiveMode::BehindHost),
    ("etcd_certfile", FlagEffectiveMode::Always),
    ("etcd_keyfile", FlagEffectiveMode::Always),
    ("etcd_prefix", FlagEffectiveMode::Always),
    ("etcd_servers", FlagEffectiveMode::Always),
    ("feature_gates", FlagEffectiveMode::Always),
    (
        "federated_resource_quota_sync_period",
        FlagEffectiveMode::Always,
    ),
    ("graceful_eviction_timeout", FlagEffectiveMode::Always),
    ("host_workloads", FlagEffectiveMode::BehindHost),
    ("in_cluster", FlagEffectiveMode::Always),
    ("insecure_skip_estimator_verify", FlagEffectiveMode::Always),
    ("kubeconfig", FlagEffectiveMode::Always),
    ("insecure_agent_registration", FlagEffectiveMode::Always),
    ("leader_elect", FlagEffectiveMode::Always),
    (
        "leader_elect_lease_duration",
        FlagEffectiveMode::LeaderElection,
    ),
    (
        "leader_elect_renew_deadline",
        FlagEffectiveMode::LeaderElection,
    ),
    (
        "leader_elect_resource_name",
        FlagEffectiveMode::LeaderElection,
    ),
    (
        "leader_elect_resource_namespace",
        FlagEffectiveMode::LeaderElection,
    ),
    (
        "leader_elect_retry_period",
        FlagEffectiveMode::LeaderElection,
    ),
    ("listen", FlagEffectiveMode::Always),
    ("logging_format", FlagEffectiveMode::Always),
    ("lua_deadline", FlagEffectiveMode::Always),
    ("lua_memory", FlagEffectiveMode::Always),
    ("lua_memory_per_byte", FlagEffectiveMode::Always),
    ("max_mutating_requests_inflight", FlagEffectiveMode::Always),
    ("max_requests_inflight", FlagEffectiveMode::Always),
    ("oidc_ca_file", FlagEffectiveMode::Standalone),
    ("oidc_client_id", FlagEffectiveMode::Standalone),
    ("oidc_groups_claim", FlagEffectiveMode::Standalone),
    ("oidc_groups_prefix", FlagEffectiveMode::Standalone),
    ("oidc_issuer_url", FlagEffectiveMode::Standalone),
    ("oidc_required_claim", FlagEffectiveMode::Standalone),
    ("oidc_signing_algs", FlagEffectiveMode::Standalone),
    ("oidc_username_claim", FlagEffectiveMode::Standalone),
    ("oidc_username_prefix", FlagEffectiveMode::Standalone),
    ("plugins", FlagEffectiveMode::Always),
    (
        "no_execute_taint_eviction_purge_mode",
        FlagEffectiveMode::Always,
    ),
    ("profiling", FlagEffectiveMode::Always),
    ("request_timeout", FlagEffectiveMode::Always),
    ("root_ca_file", FlagEffectiveMode::Standalone),
    ("resource_eviction_rate", FlagEffectiveMode::Always),
    ("scheduler_estimator_ca_file", FlagEffectiveMode::Always),
    ("scheduler_estimator_cert_file", FlagEffectiveMode::Always),
    ("scheduler_estimator_key_file", FlagEffectiveMode::Always),
    ("scheduler_estimator_port", FlagEffectiveMode::Always),
    (
        "scheduler_estimator_service_namespace",
        FlagEffectiveMode::Always,
    ),
    (
        "scheduler_estimator_service_prefix",
        FlagEffectiveMode::Always,
    ),
    ("scheduler_estimator_timeout", FlagEffectiveMode::Always),
    ("scheduler_name", FlagEffectiveMode::Always),
    ("service_account_key_file", FlagEffectiveMode::Standalone),
    (
        "service_account_signing_key_file",
        FlagEffectiveMode::Standalone,
    ),
    ("metrics_api_services", FlagEffectiveMode::BehindHost),
    ("service_name", FlagEffectiveMode::BehindHost),
    ("service_namespace", FlagEffectiveMode::BehindHost),
    ("service_port", FlagEffectiveMode::BehindHost),
    ("shutdown_delay_duration", FlagEffectiveMode::Always),
    ("skipped_propagating_apis", FlagEffectiveMode::Always),
    ("skipped_propagating_namespaces", FlagEffectiveMode::Always),
    ("tls_cert_file", FlagEffectiveMode::Standalone),
    ("tls_private_key_file", FlagEffectiveMode::Standalone),
    ("tls_sni_cert_key", FlagEffectiveMode::Standalone),
    ("tls_san", FlagEffectiveMode::Standalone),
    ("token_auth_file", FlagEffectiveMode::Standalone),
    ("tracing_config_file", FlagEffectiveMode::Always),
];

/// The ids of the flags that are set on the command line. It must be the first field of
/// the arguments, since clap moves the values of later fields out of the matches.
pub(crate) struct ExplicitFlagIds(BTreeSet<String>);

impl FromArgMatches for ExplicitFlagIds {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let ids = matches.ids().map(clap::Id::as_str);
        let set = ids.filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine));
        Ok(Self(set.map(str::to_owned).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for ExplicitFlagIds {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl ExplicitFlagIds {
    /// Fails for the first flag that has no effect in a mode.
    pub(crate) fn check(&self, mode: ServeModeFlags) -> anyhow::Result<()> {
        for (id, acts) in FLAGS {
            if self.0.contains(*id)
                && let Some(condition) = acts.unmet_condition(mode)
            {
                bail!("--{} has an effect only {condition}", id.replace('_', "-"));
            }
        }
        Ok(())
    }
}

impl FlagEffectiveMode {
    /// The condition under which a flag has an effect, if it has none in this mode.
    fn unmet_condition(self, mode: ServeModeFlags) -> Option<&'static str> {
        let (acts, condition) = match self {
            Self::Always => (true, ""),
            Self::Standalone => (
                !mode.behind_host,
                "when Flotilla serves alone, without --kubeconfig and --in-cluster",
            ),
            Self::BehindHost => (
                mode.behind_host,
                "behind another API server (--kubeconfig or --in-cluster)",
            ),
            Self::LeaderElection => (
                mode.leader_elect,
                "with leader election (--etcd-servers or --leader-elect)",
            ),
        };
        (!acts).then_some(condition)
    }
}
