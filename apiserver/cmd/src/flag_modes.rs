//! The modes of `flotilla serve` in which each flag has an effect. A flag that is set in
//! another mode is an error, so that no operator relies on it.

use std::collections::BTreeSet;

use anyhow::bail;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};

/// The modes in which a flag has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagScope {
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
pub(crate) struct ServeMode {
    pub(crate) behind_host: bool,
    pub(crate) elected: bool,
}

/// The scope of every flag, by its id, which is its name with underscores.
pub(crate) const FLAGS: &[(&str, FlagScope)] = &[
    ("allow_no_execute_taint_policy", FlagScope::Always),
    ("anonymous_auth", FlagScope::Always),
    ("api_audiences", FlagScope::Always),
    (
        "authentication_token_webhook_cache_ttl",
        FlagScope::BehindHost,
    ),
    (
        "authorization_webhook_cache_authorized_ttl",
        FlagScope::BehindHost,
    ),
    (
        "authorization_webhook_cache_unauthorized_ttl",
        FlagScope::BehindHost,
    ),
    ("cluster_failure_threshold", FlagScope::Always),
    ("cluster_monitor_grace_period", FlagScope::Always),
    ("cluster_monitor_period", FlagScope::Always),
    ("cluster_startup_grace_period", FlagScope::Always),
    ("cluster_status_update_frequency", FlagScope::Always),
    ("cluster_success_threshold", FlagScope::Always),
    ("controllers", FlagScope::Always),
    ("data_dir", FlagScope::Always),
    (
        "disable_scheduler_estimator_in_pull_mode",
        FlagScope::Always,
    ),
    ("enable_empty_workload_propagation", FlagScope::Always),
    ("enable_no_execute_taint_eviction", FlagScope::Always),
    ("enable_scheduler_estimator", FlagScope::Always),
    ("enable_taint_manager", FlagScope::Always),
    ("encryption_provider_config", FlagScope::Always),
    // The other flags of etcd require --etcd-servers.
    ("etcd_cafile", FlagScope::Always),
    ("etcd_certificates_secret", FlagScope::BehindHost),
    ("etcd_certfile", FlagScope::Always),
    ("etcd_keyfile", FlagScope::Always),
    ("etcd_prefix", FlagScope::Always),
    ("etcd_servers", FlagScope::Always),
    ("feature_gates", FlagScope::Always),
    ("federated_resource_quota_sync_period", FlagScope::Always),
    ("graceful_eviction_timeout", FlagScope::Always),
    ("host_workloads", FlagScope::BehindHost),
    ("in_cluster", FlagScope::Always),
    ("insecure_skip_estimator_verify", FlagScope::Always),
    ("kubeconfig", FlagScope::Always),
    ("leader_elect", FlagScope::Always),
    ("leader_elect_lease_duration", FlagScope::LeaderElection),
    ("leader_elect_renew_deadline", FlagScope::LeaderElection),
    ("leader_elect_resource_name", FlagScope::LeaderElection),
    ("leader_elect_resource_namespace", FlagScope::LeaderElection),
    ("leader_elect_retry_period", FlagScope::LeaderElection),
    ("listen", FlagScope::Always),
    ("logging_format", FlagScope::Always),
    ("lua_deadline", FlagScope::Always),
    ("lua_memory", FlagScope::Always),
    ("lua_memory_per_byte", FlagScope::Always),
    ("plugins", FlagScope::Always),
    ("no_execute_taint_eviction_purge_mode", FlagScope::Always),
    ("resource_eviction_rate", FlagScope::Always),
    ("scheduler_estimator_ca_file", FlagScope::Always),
    ("scheduler_estimator_cert_file", FlagScope::Always),
    ("scheduler_estimator_key_file", FlagScope::Always),
    ("scheduler_estimator_port", FlagScope::Always),
    ("scheduler_estimator_service_namespace", FlagScope::Always),
    ("scheduler_estimator_service_prefix", FlagScope::Always),
    ("scheduler_estimator_timeout", FlagScope::Always),
    ("scheduler_name", FlagScope::Always),
    ("service_name", FlagScope::BehindHost),
    ("service_namespace", FlagScope::BehindHost),
    ("service_port", FlagScope::BehindHost),
    ("shutdown_delay_duration", FlagScope::Always),
    ("skipped_propagating_apis", FlagScope::Always),
    ("skipped_propagating_namespaces", FlagScope::Always),
    ("tls_san", FlagScope::Standalone),
];

/// The ids of the flags that are set on the command line. It must be the first field of
/// the arguments, since clap moves the values of later fields out of the matches.
pub(crate) struct CommandLineFlags(BTreeSet<String>);

impl FromArgMatches for CommandLineFlags {
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

impl Args for CommandLineFlags {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl CommandLineFlags {
    /// Fails for the first flag that has no effect in a mode.
    pub(crate) fn check(&self, mode: ServeMode) -> anyhow::Result<()> {
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

impl FlagScope {
    /// The condition under which a flag has an effect, if it has none in this mode.
    fn unmet_condition(self, mode: ServeMode) -> Option<&'static str> {
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
                mode.elected,
                "with leader election (--etcd-servers or --leader-elect)",
            ),
        };
        (!acts).then_some(condition)
    }
}
