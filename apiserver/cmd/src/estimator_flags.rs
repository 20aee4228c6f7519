//! Flags of karmada-scheduler for accurate scheduler estimators.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use estimator::{EstimatorOptions, EstimatorTlsClientConfig};
use karmada_api::{FeatureGates, KarmadaFeature};
use machinery::duration;

#[derive(Args, Clone)]
#[group(id = "estimators")]
#[command(next_help_heading = "Scheduler estimator flags")]
pub(crate) struct EstimatorArgs {
    /// Enable calling cluster scheduler estimator for adjusting replicas. Clusters with a
    /// karmada-scheduler-estimator are called by gRPC; for other clusters in push mode
    /// Flotilla estimates the available replicas from their nodes.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_scheduler_estimator: bool,
    /// Disable the scheduler estimator for clusters in pull mode.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    disable_scheduler_estimator_in_pull_mode: bool,
    /// Specifies the timeout period of calling the scheduler estimator service.
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = duration::parse)]
    scheduler_estimator_timeout: Duration,
    /// The namespace to be used for discovering scheduler estimator services.
    #[arg(long, value_name = "NAMESPACE", default_value = "karmada-system")]
    scheduler_estimator_service_namespace: String,
    /// The prefix of scheduler estimator service name; a dash and the cluster's name
    /// follow.
    #[arg(
        long,
        value_name = "PREFIX",
        default_value = "karmada-scheduler-estimator"
    )]
    scheduler_estimator_service_prefix: String,
    /// The port on which to connect to the scheduler estimator.
    #[arg(long, value_name = "PORT", default_value_t = 10352, value_parser = clap::value_parser!(u16).range(1..))]
    scheduler_estimator_port: u16,
    /// SSL certification file used to secure scheduler estimator communication.
    #[arg(long, value_name = "FILE", requires = "scheduler_estimator_key_file")]
    scheduler_estimator_cert_file: Option<PathBuf>,
    /// SSL key file used to secure scheduler estimator communication.
    #[arg(long, value_name = "FILE", requires = "scheduler_estimator_cert_file")]
    scheduler_estimator_key_file: Option<PathBuf>,
    /// SSL Certificate Authority file used to secure scheduler estimator communication.
    /// Without it, connections are not encrypted unless verification is skipped.
    #[arg(long, value_name = "FILE")]
    scheduler_estimator_ca_file: Option<PathBuf>,
    /// Encrypt connections, but do not verify the estimator's certificate chain and host
    /// name.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    insecure_skip_estimator_verify: bool,
}

impl EstimatorArgs {
    /// Whether the scheduler calls estimators.
    pub(crate) fn are_used_by_scheduler(&self) -> bool {
        self.enable_scheduler_estimator
    }

    /// The options of the estimators. Certificates are checked if the scheduler or the descheduler
    /// calls estimators from the start.
    pub(crate) fn options(
        &self,
        gates: FeatureGates,
        descheduler: bool,
    ) -> anyhow::Result<EstimatorOptions> {
        let tls = self.tls();
        if let Some(files) = &tls
            && (self.enable_scheduler_estimator || descheduler)
        {
            let checked = files.check().map_err(anyhow::Error::msg);
            checked.context("certificates for scheduler estimators")?;
        }
        Ok(EstimatorOptions {
            timeout: self.scheduler_estimator_timeout,
            namespace: self.scheduler_estimator_service_namespace.clone(),
            prefix: self.scheduler_estimator_service_prefix.clone(),
            port: self.scheduler_estimator_port,
            tls,
            skip_pull_clusters: self.disable_scheduler_estimator_in_pull_mode,
            quotas: gates.enabled(KarmadaFeature::ResourceQuotaEstimate),
        })
    }

    fn tls(&self) -> Option<EstimatorTlsClientConfig> {
        let ca = self.scheduler_estimator_ca_file.clone();
        let insecure = self.insecure_skip_estimator_verify;
        let certificate = self.scheduler_estimator_cert_file.clone();
        let key = self.scheduler_estimator_key_file.clone();
        (ca.is_some() || insecure).then(|| EstimatorTlsClientConfig {
            ca,
            certificate: certificate.zip(key),
            insecure,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct EstimatorTestCli {
        #[command(flatten)]
        flags: EstimatorArgs,
    }

    /// Whether the scheduler calls estimators, and their options.
    fn parse(arguments: &str) -> Result<(bool, EstimatorOptions), String> {
        let arguments = arguments.split(' ').filter(|a| !a.is_empty());
        let cli = EstimatorTestCli::try_parse_from(["flotilla"].into_iter().chain(arguments));
        let cli = cli.map_err(|e| e.to_string())?;
        let read = cli.flags.options(FeatureGates::default(), false);
        let options = read.map_err(|e| format!("{e:#}"))?;
        Ok((cli.flags.are_used_by_scheduler(), options))
    }

    // proves: EST-flags
    #[test]
    fn estimators_are_disabled_by_default_and_flags_are_karmadas() {
        assert!(!parse("").unwrap().0);
        assert!(!parse("--insecure-skip-estimator-verify").unwrap().0);
        let (enabled, plain) = parse("--enable-scheduler-estimator").unwrap();
        assert!(enabled);
        assert_eq!(
            format!("{plain:?}"),
            format!("{:?}", EstimatorOptions::default())
        );
        let options = parse(
            "--enable-scheduler-estimator=true --disable-scheduler-estimator-in-pull-mode \
             --scheduler-estimator-timeout=500ms --scheduler-estimator-service-namespace=n \
             --scheduler-estimator-service-prefix=p --scheduler-estimator-port=7 \
             --insecure-skip-estimator-verify",
        );
        let (_, options) = options.unwrap();
        assert_eq!(
            (
                options.timeout,
                options.namespace.as_str(),
                options.prefix.as_str(),
                options.port
            ),
            (Duration::from_millis(500), "n", "p", 7)
        );
        let insecure = EstimatorTlsClientConfig {
            insecure: true,
            ..EstimatorTlsClientConfig::default()
        };
        assert!(options.skip_pull_clusters && options.tls == Some(insecure));
    }

    #[test]
    fn invalid_flags_are_refused_at_the_start() {
        for (arguments, part) in [
            ("--scheduler-estimator-port=0", "scheduler-estimator-port"),
            (
                "--scheduler-estimator-timeout=soon",
                "scheduler-estimator-timeout",
            ),
            (
                "--scheduler-estimator-cert-file=c",
                "--scheduler-estimator-key-file",
            ),
            (
                "--enable-scheduler-estimator --scheduler-estimator-ca-file=/none/ca.crt",
                "scheduler estimators: /none/ca.crt: ",
            ),
        ] {
            let error = parse(arguments).unwrap_err();
            assert!(error.contains(part), "{arguments}: {error}");
        }
    }
}
