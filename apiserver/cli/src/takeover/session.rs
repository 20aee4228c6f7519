//! The host and the record of the takeover in it, as every step needs them.

use std::fmt::Display;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aggregation::{RECORD_CONFIG_MAP, TakeoverPhase, TakeoverRecord, TakeoverReport};
use anyhow::{Context, bail};
use client::{Api, Patch, ResourcePath, WriteOptions, ignore_not_found};
use karmada_api::addons::CONFIG_MAPS;
use serde_json::Value;
use tokio::time::Instant;

use crate::output;

/// The manager of the fields that the command writes; the freeze of writes exempts it.
pub(super) const FIELD_MANAGER: &str = "flotilla-takeover";
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The interval at which a step that waits says so.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// One run of the command.
pub(super) struct TakeoverSession {
    pub(super) host: Arc<dyn Api>,
    /// The namespace of Flotilla.
    pub(super) namespace: String,
    /// How long a step may take.
    pub(super) timeout: Duration,
}

/// The options of the command's writes.
pub(super) fn write_options() -> &'static WriteOptions {
    static OPTIONS: LazyLock<WriteOptions> = LazyLock::new(|| WriteOptions {
        field_manager: FIELD_MANAGER.to_owned(),
        ..WriteOptions::default()
    });
    &OPTIONS
}

/// Says what the command does now.
pub(super) fn print_step(text: impl Display) {
    output::print_progress(format!("takeover: {text}"));
}

impl TakeoverSession {
    /// The host's answer to `/version`.
    pub(super) async fn host_version(&self) -> anyhow::Result<Value> {
        let body = self.host.get_raw("/version").await?;
        machinery::json::from_slice(&body).context("/version of the host")
    }

    fn record_path(&self) -> ResourcePath<'_> {
        ResourcePath::object(&CONFIG_MAPS, &self.namespace, RECORD_CONFIG_MAP)
    }

    /// The record; `None` before the first takeover.
    pub(super) async fn record(&self) -> anyhow::Result<Option<TakeoverRecord>> {
        let map = ignore_not_found(self.host.get(self.record_path()).await)?;
        let record = map.as_ref().map(TakeoverRecord::from_config_map);
        record.transpose().map_err(anyhow::Error::msg)
    }

    /// Enters a phase, and waits until the leader of Flotilla's replicas has acted.
    pub(super) async fn enter(
        &self,
        record: &mut TakeoverRecord,
        phase: TakeoverPhase,
    ) -> anyhow::Result<TakeoverReport> {
        record.phase = phase;
        record.has_moved |= phase == TakeoverPhase::Move;
        record.pass += 1;
        self.write_record(record).await?;
        let waiting = format!(
            "Flotilla in namespace {} to reach the phase {phase} (is it running, and was it \
             started with --await-takeover?)",
            self.namespace
        );
        self.wait_for(&waiting, async || {
            let current = self.record().await?.unwrap_or_default();
            let is_reported = current.is_reported() && current.pass == record.pass;
            Ok(current.report.filter(|_| is_reported))
        })
        .await
    }

    async fn write_record(&self, record: &TakeoverRecord) -> anyhow::Result<()> {
        let mut data = record.command_data();
        let patch = Patch::Merge(data.clone());
        let patched = self.host.patch(self.record_path(), patch, write_options());
        if ignore_not_found(patched.await)?.is_some() {
            return Ok(());
        }
        data["apiVersion"] = "v1".into();
        data["kind"] = "ConfigMap".into();
        data["metadata"] = serde_json::json!({"name": RECORD_CONFIG_MAP,
            "namespace": self.namespace});
        let all = ResourcePath::collection(&CONFIG_MAPS, &self.namespace);
        let created = self.host.create(all, data.into(), write_options()).await;
        created.with_context(|| format!("the record in namespace {}", self.namespace))?;
        Ok(())
    }

    /// Polls until there is a value. Requests that fail are repeated; the last error is returned
    /// when the time is over.
    pub(super) async fn wait_for<T>(
        &self,
        waiting: &str,
        mut poll: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let start = Instant::now();
        let mut next_progress = start + PROGRESS_INTERVAL;
        loop {
            let error = match poll().await {
                Ok(Some(value)) => return Ok(value),
                Ok(None) => None,
                Err(error) => Some(error),
            };
            if start.elapsed() > self.timeout {
                let seconds = self.timeout.as_secs_f64();
                let message = format!("waited {seconds} s for {waiting}");
                match error {
                    Some(error) => return Err(error).context(message),
                    None => bail!("{message}"),
                }
            }
            if Instant::now() >= next_progress {
                print_step(format!("waiting for {waiting}"));
                next_progress = Instant::now() + PROGRESS_INTERVAL;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
