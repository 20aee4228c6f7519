//! Flags of the controller of staged rollouts.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use client::remote::RestConfig;

#[derive(Args, Clone)]
#[group(id = "rollouts")]
#[command(next_help_heading = "Staged rollout flags")]
pub(crate) struct RolloutControllerArgs {
    /// URL of a server that answers PromQL queries as Prometheus does, such as
    /// https://thanos.example.com. It answers the queries of RolloutPolicies that name no Service in
    /// the members.
    #[arg(long, value_name = "URL")]
    rollout_prometheus_url: Option<String>,
    /// Path to the authorities of the certificate of that server, in PEM; by default those of the
    /// system.
    #[arg(long, value_name = "FILE", requires = "rollout_prometheus_url")]
    rollout_prometheus_ca_file: Option<PathBuf>,
    /// Path to a bearer token for that server, whose URL has to be https then. The file is read
    /// again when it may have changed.
    #[arg(long, value_name = "FILE", requires = "rollout_prometheus_url")]
    rollout_prometheus_token_file: Option<PathBuf>,
}

impl RolloutControllerArgs {
    /// The server that answers queries.
    pub(crate) fn prometheus(&self) -> anyhow::Result<Option<RestConfig>> {
        let Some(url) = &self.rollout_prometheus_url else {
            return Ok(None);
        };
        let mut config = RestConfig::new(url).context("--rollout-prometheus-url")?;
        if let Some(file) = &self.rollout_prometheus_ca_file {
            let bundle = std::fs::read(file)
                .with_context(|| format!("--rollout-prometheus-ca-file {}", file.display()))?;
            config.ca = Some(bundle);
        }
        let has_token = self.rollout_prometheus_token_file.is_some();
        anyhow::ensure!(
            !has_token || config.server.scheme_str() == Some("https"),
            "--rollout-prometheus-token-file: the token would not be encrypted; --rollout-prometheus-url must be an https URL"
        );
        config
            .auth
            .token_file
            .clone_from(&self.rollout_prometheus_token_file);
        Ok(Some(config))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct RolloutCommandLine {
        #[command(flatten)]
        rollouts: RolloutControllerArgs,
    }

    // proves: ROL-query-control-plane
    #[test]
    fn a_url_with_a_token_is_encrypted() {
        let url = |url: &str, more: &[&str]| {
            let url = format!("--rollout-prometheus-url={url}");
            let arguments = ["flotilla", &url].into_iter().chain(more.iter().copied());
            let line = RolloutCommandLine::try_parse_from(arguments).map_err(|e| e.to_string())?;
            let config = line.rollouts.prometheus().map_err(|e| format!("{e:#}"))?;
            Ok::<_, String>(config.unwrap().server.to_string())
        };
        let token = &["--rollout-prometheus-token-file=token"][..];
        let missing = &["--rollout-prometheus-ca-file=missing.pem"][..];
        for (address, more, expected) in [
            ("http://prom:9090", &[][..], Ok("http://prom:9090/")),
            ("https://a.b/prom", token, Ok("https://a.b/prom")),
            ("http://prom", token, Err("would not be encrypted")),
            ("ftp://prom", &[], Err("--rollout-prometheus-url: server")),
            ("https://a:b@prom", &[], Err("must not hold credentials")),
            (
                "https://a.b",
                missing,
                Err("--rollout-prometheus-ca-file missing.pem"),
            ),
        ] {
            match (url(address, more), expected) {
                (Ok(server), Ok(expected)) => assert_eq!(server, expected),
                (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
                (result, _) => panic!("{address}: {result:?}"),
            }
        }
        let alone = RolloutCommandLine::try_parse_from(["flotilla", token[0]]);
        assert!(alone.is_err());
    }
}
