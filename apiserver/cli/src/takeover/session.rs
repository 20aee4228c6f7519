//! The host and the record of the takeover in it, as every step needs them.

use std::fmt::Display;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aggregation::{RECORD_CONFIG_MAP, TakeoverPhase, TakeoverRecord, TakeoverReport};
use anyhow::{Context, bail, ensure};
use client::{Api, Patch, ResourcePath, WriteOptions, ignore_not_found};
use karmada_api::addons::CONFIG_MAPS;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::output;

/// The manager of the fields that the command writes; the freeze of writes exempts it.
pub(super) const FIELD_MANAGER: &str = "flotilla-takeover";
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The interval at which a step that waits says so.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// How long a Flotilla that should stand still is waited for.
const STAND_STILL_TIMEOUT: Duration = Duration::from_secs(15);
/// How often the record is written that others write too.
const WRITE_ATTEMPTS: usize = 10;

/// One run of the command.
pub(super) struct TakeoverSession {
    pub(super) host: Arc<dyn Api>,
    /// The namespace of Flotilla.
    pub(super) namespace: String,
    /// How long a step may take.
    pub(super) timeout: Duration,
    /// The id of this run, which the record bears while it acts.
    pub(super) run: String,
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

    /// Makes this run the one that acts, if the record allows it: earlier runs write no more.
    pub(super) async fn claim(
        &self,
        is_allowed: impl Fn(&TakeoverRecord) -> anyhow::Result<()>,
    ) -> anyhow::Result<TakeoverRecord> {
        self.modify_record(|record| {
            is_allowed(record)?;
            record.run.clone_from(&self.run);
            Ok(())
        })
        .await
    }

    /// Fails if another run has begun to act.
    pub(super) async fn ensure_current(&self) -> anyhow::Result<()> {
        self.check_run(&self.record().await?.unwrap_or_default())
    }

    fn check_run(&self, record: &TakeoverRecord) -> anyhow::Result<()> {
        ensure!(
            record.run == self.run,
            "another flotilla takeover has continued in the phase {}: this one has stopped",
            record.phase
        );
        Ok(())
    }

    /// Enters a phase, and waits until the leader of Flotilla's replicas has acted.
    pub(super) async fn enter(
        &self,
        record: &mut TakeoverRecord,
        phase: TakeoverPhase,
    ) -> anyhow::Result<TakeoverReport> {
        self.write_phase(record, phase).await?;
        self.wait_for_report(record, self.timeout).await
    }

    /// Enters a phase in which Flotilla has nothing to do but to stand still, so that one that has
    /// ended holds nothing up.
    pub(super) async fn stand_still(
        &self,
        record: &mut TakeoverRecord,
        phase: TakeoverPhase,
    ) -> anyhow::Result<()> {
        self.write_phase(record, phase).await?;
        let limit = self.timeout.min(STAND_STILL_TIMEOUT);
        if let Err(error) = self.wait_for_report(record, limit).await {
            self.ensure_current().await?;
            print_step(format!("going on without Flotilla: {error:#}"));
        }
        Ok(())
    }

    async fn write_phase(
        &self,
        record: &mut TakeoverRecord,
        phase: TakeoverPhase,
    ) -> anyhow::Result<()> {
        record.phase = phase;
        record.has_moved |= phase == TakeoverPhase::Move;
        record.pass += 1;
        self.modify_record(|current| {
            self.check_run(current)?;
            current.clone_from(record);
            Ok(())
        })
        .await?;
        Ok(())
    }

    async fn wait_for_report(
        &self,
        record: &TakeoverRecord,
        limit: Duration,
    ) -> anyhow::Result<TakeoverReport> {
        let waiting = format!(
            "Flotilla in namespace {} to reach the phase {} (is it running, and was it started \
             with --await-takeover?)",
            self.namespace, record.phase
        );
        let outcome = self.wait_within(limit, &waiting, async || {
            let current = self.record().await?.unwrap_or_default();
            if self.check_run(&current).is_err() {
                return Ok(Some(Err(current)));
            }
            let is_reported = current.is_reported() && current.pass == record.pass;
            Ok(current.report.filter(|_| is_reported).map(Ok))
        });
        match outcome.await? {
            Ok(report) => Ok(report),
            Err(current) => self.check_run(&current).map(|()| TakeoverReport::default()),
        }
    }

    /// Changes what the command writes of the record, which is read again if the leader or another
    /// run writes it at the same time. Returns the changed record.
    async fn modify_record(
        &self,
        modify: impl Fn(&mut TakeoverRecord) -> anyhow::Result<()>,
    ) -> anyhow::Result<TakeoverRecord> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let map = ignore_not_found(self.host.get(self.record_path()).await)?;
            let record = map.as_ref().map(TakeoverRecord::from_config_map);
            let record = record.transpose().map_err(anyhow::Error::msg)?;
            let mut record = record.unwrap_or_default();
            modify(&mut record)?;
            let version = map.map(|map| map.value()).transpose()?;
            let version = version.map(|map| map["metadata"]["resourceVersion"].clone());
            match self.write_record(version, &record).await {
                Err(error)
                    if (error.is_conflict() || error.is_already_exists())
                        && attempt < WRITE_ATTEMPTS => {}
                outcome => {
                    outcome
                        .with_context(|| format!("the record in namespace {}", self.namespace))?;
                    return Ok(record);
                }
            }
        }
    }

    /// Writes the record over the version that was read, or creates it.
    async fn write_record(
        &self,
        version: Option<Value>,
        record: &TakeoverRecord,
    ) -> client::Result<()> {
        let mut data = record.command_data();
        if let Some(version) = version {
            data["metadata"] = json!({"resourceVersion": version});
            let patch = Patch::Merge(data);
            self.host
                .patch(self.record_path(), patch, write_options())
                .await?;
            return Ok(());
        }
        data["apiVersion"] = "v1".into();
        data["kind"] = "ConfigMap".into();
        data["metadata"] = json!({"name": RECORD_CONFIG_MAP, "namespace": self.namespace});
        let all = ResourcePath::collection(&CONFIG_MAPS, &self.namespace);
        self.host.create(all, data.into(), write_options()).await?;
        Ok(())
    }

    /// Polls until there is a value, as long as a step may take.
    pub(super) async fn wait_for<T>(
        &self,
        waiting: &str,
        poll: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        self.wait_within(self.timeout, waiting, poll).await
    }

    /// Polls until there is a value. Requests that fail are repeated; the last error is returned
    /// when the time is over.
    async fn wait_within<T>(
        &self,
        limit: Duration,
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
            if start.elapsed() > limit {
                let seconds = limit.as_secs_f64();
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

#[cfg(test)]
mod tests {
    use client_fake::FakeApi;

    use super::*;

    fn session(host: &Arc<FakeApi>, run: &str) -> TakeoverSession {
        TakeoverSession {
            host: host.clone(),
            namespace: "f".into(),
            timeout: Duration::ZERO,
            run: run.into(),
        }
    }

    // proves: TKO-one-run
    #[tokio::test]
    async fn a_later_run_stops_an_earlier_one() {
        let fake = FakeApi::new();
        let (one, two) = (session(&fake, "1"), session(&fake, "2"));
        let mut record = one.claim(|_| Ok(())).await.unwrap();
        let refusal = two.claim(|_| bail!("not now")).await.unwrap_err();
        assert_eq!(refusal.to_string(), "not now");
        one.stand_still(&mut record, TakeoverPhase::Move)
            .await
            .unwrap();
        let continued = two.claim(|_| Ok(())).await.unwrap();
        assert_eq!(continued.phase, TakeoverPhase::Move);
        assert!(continued.has_moved);
        let error = one.enter(&mut record, TakeoverPhase::Switch).await;
        let error = format!("{:#}", error.unwrap_err());
        assert!(error.contains("another flotilla takeover"), "{error}");
        assert!(one.ensure_current().await.is_err());
        let current = two.record().await.unwrap().unwrap();
        assert_eq!(
            (current.phase, current.pass),
            (TakeoverPhase::Move, continued.pass)
        );
    }
}
