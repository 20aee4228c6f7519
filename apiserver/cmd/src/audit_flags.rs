//! The flags of the audit log, and its backends.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use client::TaskGroup;
use client::remote::RestConfig;
use client::remote::kubeconfig::KubeconfigLoadingRules;
use flotilla_http::audit::{
    AuditErrorCounters, AuditLogFile, AuditLogRotation, AuditPolicy, AuditWebhook,
    AuditWebhookBatching, Auditor, start_stdout_log,
};
use flotilla_metrics::MetricsRegistry;
use machinery::duration;
use machinery::time::Clock;

/// The path that stands for the standard output.
const STDOUT: &str = "-";
const BATCH: &str = "batch";
const JSON: &str = "json";

/// The flags of the audit log.
#[derive(Args)]
#[command(next_help_heading = "Auditing flags")]
pub(crate) struct AuditArgs {
    /// The file that defines the audit policy (Policy of audit.k8s.io/v1). It is read
    /// once, at the start.
    #[arg(long, value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,
    /// If set, all requests coming to the API server are logged to this file according to
    /// the policy. '-' means standard out.
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    audit_log_path: Option<PathBuf>,
    /// The maximum size in megabytes of the audit log file before it gets rotated; 0 means
    /// no limit.
    #[arg(long, value_name = "MEGABYTES", default_value_t = 100)]
    audit_log_maxsize: u32,
    /// The maximum number of days to retain old audit log files based on the timestamp in
    /// their file name; 0 means no limit.
    #[arg(long, value_name = "DAYS", default_value_t = 0)]
    audit_log_maxage: u32,
    /// The maximum number of old audit log files to retain; 0 means no limit.
    #[arg(long, value_name = "FILES", default_value_t = 0)]
    audit_log_maxbackup: usize,
    /// If set, the rotated log files are compressed using gzip.
    #[arg(long)]
    audit_log_compress: bool,
    /// Strategy for writing audit events to the log: batch. Requests never wait for the log, so
    /// blocking and blocking-strict are refused.
    #[arg(long, value_name = "MODE", default_value = BATCH)]
    audit_log_mode: String,
    /// Format of saved audits: json, one event in each line. The deprecated format legacy is
    /// refused.
    #[arg(long, value_name = "FORMAT", default_value = JSON)]
    audit_log_format: String,
    /// Strategy for sending audit events to the webhook: batch. Requests never wait for the
    /// webhook, so blocking and blocking-strict are refused.
    #[arg(long, value_name = "MODE", default_value = BATCH)]
    audit_webhook_mode: String,
    /// A kubeconfig that defines the server to which audit events are sent in batches.
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    audit_webhook_config_file: Option<PathBuf>,
    /// The number of events that wait for the webhook; events beyond it are dropped.
    #[arg(long, value_name = "EVENTS", default_value_t = 10_000)]
    audit_webhook_batch_buffer_size: usize,
    /// The maximum number of events in a batch.
    #[arg(long, value_name = "EVENTS", default_value_t = 400, value_parser = parse_batch_size)]
    audit_webhook_batch_max_size: usize,
    /// The time to wait before sending a batch that has not reached the maximum size.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    audit_webhook_batch_max_wait: Duration,
    /// The time to wait before repeating the first failed batch.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    audit_webhook_initial_backoff: Duration,
}

fn parse_batch_size(text: &str) -> Result<usize, String> {
    let size = text.parse::<usize>().map_err(|e| e.to_string())?;
    match size {
        0 => Err("must be positive".to_owned()),
        size => Ok(size),
    }
}

/// The validated configuration of the audit log.
pub(crate) struct AuditConfig {
    policy: AuditPolicy,
    log: Option<(PathBuf, AuditLogRotation)>,
    webhook: Option<(RestConfig, AuditWebhookBatching)>,
}

impl AuditArgs {
    /// Reads and validates the files; `None` without a policy or without a backend.
    pub(crate) fn config(&self) -> anyhow::Result<Option<AuditConfig>> {
        self.check_modes()?;
        let Some(file) = &self.audit_policy_file else {
            return Ok(None);
        };
        let flag = || format!("--audit-policy-file {}", file.display());
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", flag()))?;
        let policy = AuditPolicy::parse(&text).map_err(|reason| anyhow!("{}: {reason}", flag()))?;
        let config = AuditConfig {
            policy,
            log: self
                .audit_log_path
                .clone()
                .map(|path| (path, self.rotation())),
            webhook: self.webhook()?,
        };
        if config.log.is_none() && config.webhook.is_none() {
            tracing::warn!(
                "there is an audit policy and neither --audit-log-path nor --audit-webhook-config-file: no events are recorded"
            );
            return Ok(None);
        }
        Ok(Some(config))
    }

    /// Refuses what would make a request wait, and a format that loses what events say.
    fn check_modes(&self) -> anyhow::Result<()> {
        let modes = [
            ("audit-log-mode", &self.audit_log_mode),
            ("audit-webhook-mode", &self.audit_webhook_mode),
        ];
        for (flag, mode) in modes {
            if mode != BATCH {
                bail!(
                    "--{flag}={mode} is not served: requests never wait for audit events, use {BATCH}"
                );
            }
        }
        if self.audit_log_format != JSON {
            let format = &self.audit_log_format;
            bail!(
                "--audit-log-format={format} is not served: use {JSON}, which has all of an event"
            );
        }
        Ok(())
    }

    fn rotation(&self) -> AuditLogRotation {
        AuditLogRotation {
            max_bytes: u64::from(self.audit_log_maxsize) << 20,
            max_age_days: self.audit_log_maxage,
            max_backups: self.audit_log_maxbackup,
            compress: self.audit_log_compress,
        }
    }

    fn webhook(&self) -> anyhow::Result<Option<(RestConfig, AuditWebhookBatching)>> {
        let Some(file) = &self.audit_webhook_config_file else {
            return Ok(None);
        };
        let config = KubeconfigLoadingRules::from_file(file)
            .load()
            .with_context(|| format!("--audit-webhook-config-file {}", file.display()))?;
        let batching = AuditWebhookBatching {
            buffer_events: self.audit_webhook_batch_buffer_size,
            max_batch_events: self.audit_webhook_batch_max_size,
            max_wait: self.audit_webhook_batch_max_wait,
            initial_backoff: self.audit_webhook_initial_backoff,
        };
        Ok(Some((config, batching)))
    }
}

impl AuditConfig {
    /// Starts the backends; they write what is left when `tasks` are stopped.
    pub(crate) fn start(
        self,
        metrics: &MetricsRegistry,
        clock: &Arc<dyn Clock>,
        tasks: &TaskGroup,
    ) -> anyhow::Result<Arc<Auditor>> {
        let errors = AuditErrorCounters::new(metrics);
        let mut queues = Vec::new();
        if let Some((path, rotation)) = self.log {
            queues.push(match path == Path::new(STDOUT) {
                true => start_stdout_log(&errors, tasks),
                false => AuditLogFile::open(&path, rotation, Arc::clone(clock))
                    .with_context(|| format!("--audit-log-path {}", path.display()))?
                    .start(&errors, tasks),
            });
        }
        if let Some((config, batching)) = self.webhook {
            let webhook =
                AuditWebhook::new(config, batching).context("--audit-webhook-config-file")?;
            queues.push(webhook.start(&errors, tasks));
        }
        Ok(Auditor::new(
            self.policy,
            queues,
            Arc::clone(clock),
            metrics,
        ))
    }
}
