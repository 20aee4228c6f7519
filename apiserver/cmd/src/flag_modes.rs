//! The modes of `flotilla serve` in which each flag has an effect. A flag that is set in
//! another mode is an error, so that no operator relies on it.

use std::collections::BTreeSet;

use anyhow::bail;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};

/// The modes in which a flag has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Acts {
    Always,
    /// Only in a standalone server.
    Alone,
    /// Only behind another API server.
    BehindHost,
    /// Only with leader election.
    Elected,
}

/// The mode in which `serve` runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    pub(crate) behind_host: bool,
    pub(crate) elected: bool,
}

/// The scope of every flag, by its id, which is its name with underscores.
const FLAGS: &[(&str, Acts)] = &[
    ("allow_no_execute_taint_policy", Acts::Always),
    ("anonymous_auth", Acts::Always),
    ("api_audiences", Acts::Always),
    ("authentication_token_webhook_cache_ttl", Acts::BehindHost),
    (
        "authorization_webhook_cache_authorized_ttl",
        Acts::BehindHost,
    ),
    (
        "authorization_webhook_cache_unauthorized_ttl",
        Acts::BehindHost,
    ),
    ("cluster_failure_threshold", Acts::Always),
    ("cluster_monitor_grace_period", Acts::Always),
    ("cluster_monitor_period", Acts::Always),
    ("cluster_startup_grace_period", Acts::Always),
    ("cluster_status_update_frequency", Acts::Always),
    ("cluster_success_threshold", Acts::Always),
    ("controllers", Acts::Always),
    ("data_dir", Acts::Always),
    ("disable_scheduler_estimator_in_pull_mode", Acts::Always),
    ("enable_empty_workload_propagation", Acts::Always),
    ("enable_no_execute_taint_eviction", Acts::Always),
    ("enable_scheduler_estimator", Acts::Always),
    ("enable_taint_manager", Acts::Always),
    ("encryption_provider_config", Acts::Always),
    // The other flags of etcd require --etcd-servers.
    ("etcd_cafile", Acts::Always),
    ("etcd_certificates_secret", Acts::BehindHost),
    ("etcd_certfile", Acts::Always),
    ("etcd_keyfile", Acts::Always),
    ("etcd_prefix", Acts::Always),
    ("etcd_servers", Acts::Always),
    ("feature_gates", Acts::Always),
    ("federated_resource_quota_sync_period", Acts::Always),
    ("graceful_eviction_timeout", Acts::Always),
    ("host_workloads", Acts::BehindHost),
    ("in_cluster", Acts::Always),
    ("insecure_skip_estimator_verify", Acts::Always),
    ("kubeconfig", Acts::Always),
    ("leader_elect", Acts::Always),
    ("leader_elect_lease_duration", Acts::Elected),
    ("leader_elect_renew_deadline", Acts::Elected),
    ("leader_elect_resource_name", Acts::Elected),
    ("leader_elect_resource_namespace", Acts::Elected),
    ("leader_elect_retry_period", Acts::Elected),
    ("listen", Acts::Always),
    ("logging_format", Acts::Always),
    ("lua_deadline", Acts::Always),
    ("lua_memory", Acts::Always),
    ("lua_memory_per_byte", Acts::Always),
    ("plugins", Acts::Always),
    ("no_execute_taint_eviction_purge_mode", Acts::Always),
    ("resource_eviction_rate", Acts::Always),
    ("scheduler_estimator_ca_file", Acts::Always),
    ("scheduler_estimator_cert_file", Acts::Always),
    ("scheduler_estimator_key_file", Acts::Always),
    ("scheduler_estimator_port", Acts::Always),
    ("scheduler_estimator_service_namespace", Acts::Always),
    ("scheduler_estimator_service_prefix", Acts::Always),
    ("scheduler_estimator_timeout", Acts::Always),
    ("scheduler_name", Acts::Always),
    ("service_name", Acts::BehindHost),
    ("service_namespace", Acts::BehindHost),
    ("service_port", Acts::BehindHost),
    ("shutdown_delay_duration", Acts::Always),
    ("skipped_propagating_apis", Acts::Always),
    ("skipped_propagating_namespaces", Acts::Always),
    ("tls_san", Acts::Alone),
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
    pub(crate) fn check(&self, mode: Mode) -> anyhow::Result<()> {
        for (id, acts) in FLAGS {
            if self.0.contains(*id)
                && let Some(condition) = acts.unless_in(mode)
            {
                bail!("--{} has an effect only {condition}", id.replace('_', "-"));
            }
        }
        Ok(())
    }
}

impl Acts {
    /// The condition under which a flag has an effect, if it has none in this mode.
    fn unless_in(self, mode: Mode) -> Option<&'static str> {
        let (acts, condition) = match self {
            Self::Always => (true, ""),
            Self::Alone => (
                !mode.behind_host,
                "when Flotilla serves alone, without --kubeconfig and --in-cluster",
            ),
            Self::BehindHost => (
                mode.behind_host,
                "behind another API server (--kubeconfig or --in-cluster)",
            ),
            Self::Elected => (
                mode.elected,
                "with leader election (--etcd-servers or --leader-elect)",
            ),
        };
        (!acts).then_some(condition)
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::Cli;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        given: CommandLineFlags,
        #[command(flatten)]
        _serve: crate::serve::Arguments,
    }

    const MODES: [Mode; 4] = [
        Mode {
            behind_host: false,
            elected: false,
        },
        Mode {
            behind_host: false,
            elected: true,
        },
        Mode {
            behind_host: true,
            elected: false,
        },
        Mode {
            behind_host: true,
            elected: true,
        },
    ];

    fn serve() -> Command {
        let mut cli = Cli::command();
        cli.build();
        cli.find_subcommand("serve").unwrap().clone()
    }

    #[test]
    fn every_flag_has_a_scope() {
        let command = serve();
        let everywhere = ["verbosity", "help", "version"];
        let ids = command.get_arguments().map(|a| a.get_id().as_str());
        let flags: BTreeSet<&str> = ids.filter(|id| !everywhere.contains(id)).collect();
        let classified: BTreeSet<&str> = FLAGS.iter().map(|(id, _)| *id).collect();
        assert_eq!(classified.len(), FLAGS.len(), "a flag is listed twice");
        let new: Vec<_> = flags.difference(&classified).collect();
        assert!(new.is_empty(), "add the scope of these flags: {new:?}");
        let removed: Vec<_> = classified.difference(&flags).collect();
        assert!(removed.is_empty(), "these flags do not exist: {removed:?}");
        for flag in command.get_arguments() {
            let id = flag.get_id().as_str().replace('_', "-");
            if flags.contains(flag.get_id().as_str()) {
                assert_eq!(flag.get_long(), Some(&*id));
            }
        }
    }

    /// A valid value of a flag.
    fn value(flag: &clap::Arg) -> Option<String> {
        if !flag.get_action().takes_values() {
            return None;
        }
        let default = flag.get_default_values().first();
        let possible = || {
            flag.get_possible_values()
                .first()
                .map(|v| v.get_name().to_owned())
        };
        let default = default.map(|v| v.to_string_lossy().into_owned());
        Some(
            default
                .filter(|v| !v.is_empty())
                .or_else(possible)
                .unwrap_or_else(|| "x".into()),
        )
    }

    #[test]
    fn a_flag_is_refused_where_it_has_no_effect() {
        let command = serve();
        let mut refusals = 0;
        for (id, acts) in FLAGS.iter().filter(|(_, acts)| *acts != Acts::Always) {
            let flag = command.get_arguments().find(|a| a.get_id() == id).unwrap();
            let long = format!("--{}", flag.get_long().unwrap());
            let argument = match value(flag) {
                Some(value) => format!("{long}={value}"),
                None => long.clone(),
            };
            let line =
                Line::try_parse_from(["x", "--data-dir=d", "--etcd-servers=http://e", &argument])
                    .unwrap();
            for mode in MODES {
                let fits = match acts {
                    Acts::Always => true,
                    Acts::Alone => !mode.behind_host,
                    Acts::BehindHost => mode.behind_host,
                    Acts::Elected => mode.elected,
                };
                let checked = line.given.check(mode).map_err(|e| e.to_string());
                assert_eq!(checked.is_ok(), fits, "{long} {mode:?}: {checked:?}");
                if let Err(why) = checked {
                    let expected = format!("{long} has an effect only ");
                    assert!(why.starts_with(&expected), "{why}");
                    refusals += 1;
                }
            }
        }
        assert!(refusals > 0);
        // A flag that is not set is never refused.
        let plain = Line::try_parse_from(["x", "--data-dir", "d"]).unwrap();
        for mode in MODES {
            plain.given.check(mode).unwrap();
        }
    }

    #[test]
    fn flags_of_etcd_require_its_servers() {
        for flag in ["--etcd-prefix=/p", "--etcd-cafile=f", "--etcd-certfile=f"] {
            assert!(
                Line::try_parse_from(["x", "--data-dir", "d", flag]).is_err(),
                "{flag}"
            );
        }
    }
}
