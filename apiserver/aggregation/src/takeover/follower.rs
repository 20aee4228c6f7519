//! Reads the record of a takeover for a replica, with the rights of Flotilla's role.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, ListOptions, Patch, ResourcePath, WriteOptions};
use karmada_api::addons::CONFIG_MAPS;
use machinery::FailureLogLimiter;

use super::record::{RECORD_CONFIG_MAP, TakeoverRecord, TakeoverReport};
use crate::host_requests::retry_until_answered;

/// The interval at which an invalid record is read again.
const INVALID_RECORD_INTERVAL: Duration = Duration::from_secs(2);

/// The record in one host and namespace.
#[derive(Clone)]
pub struct TakeoverFollower {
    pub(super) host: Arc<dyn Api>,
    namespace: Arc<str>,
}

impl TakeoverFollower {
    /// Follows the record of the namespace if this server awaits a takeover, or if one has moved
    /// objects; otherwise there is none to follow. Waits while the record is invalid, because it
    /// does not tell which of both it is.
    pub async fn open(
        host: &Arc<dyn Api>,
        namespace: &str,
        is_awaited: bool,
    ) -> client::Result<Option<Self>> {
        let follower = Self {
            host: Arc::clone(host),
            namespace: namespace.into(),
        };
        if is_awaited {
            return Ok(Some(follower));
        }
        let record = follower.wait_until_valid().await?;
        let has_moved = record.is_some_and(|record| record.has_moved);
        Ok(has_moved.then_some(follower))
    }

    async fn wait_until_valid(&self) -> client::Result<Option<TakeoverRecord>> {
        let failures = FailureLogLimiter::new();
        loop {
            let maps = retry_until_answered("record of a takeover", || self.list()).await?;
            let record = maps.first().map(TakeoverRecord::from_config_map);
            let error = match record.transpose() {
                Ok(record) => return Ok(record),
                Err(error) => error,
            };
            if failures.record_failure(RECORD_CONFIG_MAP, &error) {
                tracing::error!(
                    error,
                    "no controller runs and no APIService is written until the record is valid or deleted"
                );
            }
            tokio::time::sleep(INVALID_RECORD_INTERVAL).await;
        }
    }

    /// The record, as a list of one: the role of Flotilla has no right to get ConfigMaps.
    async fn list(&self) -> client::Result<Vec<machinery::Object>> {
        let options = ListOptions {
            field_selector: format!("metadata.name={RECORD_CONFIG_MAP}"),
            ..ListOptions::default()
        };
        let all = ResourcePath::collection(&CONFIG_MAPS, &self.namespace);
        let mut maps = self.host.list(all, &options).await?.items;
        maps.retain(|map| map.name() == RECORD_CONFIG_MAP);
        Ok(maps)
    }

    /// The record; `None` before the command has written one.
    pub async fn read(&self) -> anyhow::Result<Option<TakeoverRecord>> {
        let maps = self.list().await?;
        let record = maps.first().map(TakeoverRecord::from_config_map);
        record.transpose().map_err(anyhow::Error::msg)
    }

    /// Whether APIServices may be written now. Nothing is written while that cannot be read.
    pub(crate) async fn registers(&self) -> bool {
        match self.read().await {
            Ok(record) => record.is_some_and(|record| record.phase.registers()),
            Err(error) => {
                tracing::warn!(%error, "the record of the takeover cannot be read");
                false
            }
        }
    }

    /// Writes the report of the leader.
    pub async fn report(&self, report: &TakeoverReport) -> anyhow::Result<()> {
        let at = ResourcePath::object(&CONFIG_MAPS, &self.namespace, RECORD_CONFIG_MAP);
        let patch = Patch::Merge(report.data()?);
        self.host.patch(at, patch, &WriteOptions::default()).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use client_fake::FakeApi;

    use super::super::record::TakeoverPhase;
    use super::*;

    // proves: TKO-await
    #[tokio::test]
    async fn a_record_is_followed_if_a_takeover_is_awaited_or_has_moved_objects() {
        for (phase, is_awaited, has_moved, is_followed, registers) in [
            (None, false, false, false, false),
            (None, true, false, true, false),
            // A preflight has no effect on a server that does not wait.
            (Some(TakeoverPhase::Check), false, false, false, false),
            (Some(TakeoverPhase::Move), false, true, true, false),
            (Some(TakeoverPhase::Switch), false, true, true, true),
            (Some(TakeoverPhase::Serve), true, true, true, true),
            (Some(TakeoverPhase::GiveBack), true, true, true, false),
            (Some(TakeoverPhase::Returned), false, true, true, false),
        ] {
            let fake = FakeApi::new();
            if let Some(phase) = phase {
                let record = TakeoverRecord {
                    phase,
                    has_moved,
                    ..TakeoverRecord::default()
                };
                let mut map = record.command_data();
                map["metadata"] = serde_json::json!({"name": RECORD_CONFIG_MAP, "namespace": "f"});
                fake.seed(&CONFIG_MAPS, map);
            }
            let host: Arc<dyn Api> = fake.clone();
            let opened = TakeoverFollower::open(&host, "f", is_awaited).await;
            let follower = opened.unwrap();
            assert_eq!(follower.is_some(), is_followed, "{phase:?} {is_awaited}");
            if let Some(follower) = follower {
                assert_eq!(follower.registers().await, registers, "{phase:?}");
            }
            assert_eq!(fake.writes(), []);
        }
    }
    // proves: TKO-invalid
    #[tokio::test(start_paused = true)]
    async fn an_invalid_record_holds_the_start_up_until_it_is_valid_or_gone() {
        for has_moved in [Some(true), Some(false), None] {
            let fake = FakeApi::new();
            let seed = |phase: &str| {
                let mut map = TakeoverRecord {
                    has_moved: has_moved == Some(true),
                    ..TakeoverRecord::default()
                }
                .command_data();
                map["metadata"] = serde_json::json!({"name": RECORD_CONFIG_MAP, "namespace": "f"});
                map["data"]["phase"] = phase.into();
                fake.seed(&CONFIG_MAPS, map);
            };
            seed("Srve");
            let host: Arc<dyn Api> = fake.clone();
            let mut opening = Box::pin(TakeoverFollower::open(&host, "f", false));
            let pause = tokio::time::timeout(Duration::from_secs(60), &mut opening);
            assert!(pause.await.is_err());
            match has_moved {
                Some(_) => seed("Serve"),
                None => fake.remove(&CONFIG_MAPS, "f", RECORD_CONFIG_MAP),
            }
            let follower = opening.await.unwrap();
            assert_eq!(follower.is_some(), has_moved == Some(true), "{has_moved:?}");
        }
    }
}
