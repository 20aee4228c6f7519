//! The watches of a replica in a takeover: clients that have read Karmada's servers know revisions
//! that say nothing here, and those that go back to Karmada know Flotilla's.
//!
//! A watch that would go on from such a revision misses events without a sign. It expires, so that
//! its client lists again.

use std::sync::Arc;
use std::time::Duration;

use aggregation::{TakeoverFollower, TakeoverPhase};
use client::TaskGroup;
use machinery::FailureLogLimiter;
use watchcache::WatchCaches;

/// The interval at which the record is read while a command may act.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The same in the phases that last.
const LASTING_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The name of the record in logs.
const RECORD: &str = "watches of a takeover";

/// What a phase means for watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchEffect {
    Nothing,
    /// Clients may still come from Karmada's servers.
    ExpectForeignRevisions,
    /// All clients list again.
    Expire,
}

/// The effect of a phase after the one that was seen before; `None` is the start of the process.
fn effect(before: Option<TakeoverPhase>, now: TakeoverPhase) -> WatchEffect {
    match before {
        None if now.registers() => WatchEffect::ExpectForeignRevisions,
        None => WatchEffect::Nothing,
        Some(before) if before == now => WatchEffect::Nothing,
        // They come, or they go.
        Some(before) if before.registers() != now.registers() => WatchEffect::Expire,
        Some(_) if now == TakeoverPhase::Returned => WatchEffect::Expire,
        Some(_) => WatchEffect::Nothing,
    }
}

/// Follows the record until the tasks stop.
pub(crate) fn follow(follower: TakeoverFollower, caches: Arc<WatchCaches>, tasks: &TaskGroup) {
    let stop = tasks.shutdown().clone();
    tasks.spawn(async move {
        stop.run_until_triggered(Box::pin(follow_phases(&follower, &caches)))
            .await;
    });
}

async fn follow_phases(follower: &TakeoverFollower, caches: &WatchCaches) {
    let failures = FailureLogLimiter::new();
    let mut before = None;
    loop {
        match follow_once(follower, caches, before).await {
            Ok(phase) => {
                failures.record_success(RECORD);
                before = Some(phase);
            }
            Err(error) => {
                let error = format!("{error:#}");
                if failures.record_failure(RECORD, &error) {
                    tracing::warn!(error, "watches cannot follow the takeover");
                }
            }
        }
        let pause = match before {
            Some(TakeoverPhase::Serve | TakeoverPhase::Returned) => LASTING_POLL_INTERVAL,
            _ => POLL_INTERVAL,
        };
        tokio::time::sleep(pause).await;
    }
}

async fn follow_once(
    follower: &TakeoverFollower,
    caches: &WatchCaches,
    before: Option<TakeoverPhase>,
) -> anyhow::Result<TakeoverPhase> {
    let phase = follower.read().await?.unwrap_or_default().phase;
    match effect(before, phase) {
        WatchEffect::Nothing => {}
        WatchEffect::ExpectForeignRevisions => caches.expect_foreign_revisions(),
        WatchEffect::Expire => caches.expire_watches().await?,
    }
    Ok(phase)
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: TKO-versions
    #[test]
    fn watches_expire_when_clients_come_or_go() {
        use TakeoverPhase::{Check, GiveBack, Move, Returned, Serve, Switch};
        for (before, now, expected) in [
            (None, Check, WatchEffect::Nothing),
            (None, Serve, WatchEffect::ExpectForeignRevisions),
            (Some(Check), Move, WatchEffect::Nothing),
            (Some(Move), Switch, WatchEffect::Expire),
            (Some(Switch), Serve, WatchEffect::Nothing),
            (Some(Serve), Serve, WatchEffect::Nothing),
            (Some(Serve), GiveBack, WatchEffect::Expire),
            (Some(GiveBack), Returned, WatchEffect::Expire),
            (Some(Returned), Move, WatchEffect::Nothing),
            (Some(Switch), Move, WatchEffect::Expire),
        ] {
            assert_eq!(effect(before, now), expected, "{before:?} {now}");
        }
    }
}
