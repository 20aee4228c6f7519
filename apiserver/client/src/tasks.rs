//! Structured tasks: [`ShutdownToken`] asks tasks to stop, [`TaskGroup`] owns and joins
//! them.
//!
//! Tasks are spawned only here, so the owner of a [`TaskGroup`] can wait until all of
//! them have ended.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Asks tasks to stop. Clones share one token.
#[derive(Clone, Debug, Default)]
pub struct ShutdownToken(CancellationToken);

impl ShutdownToken {
    pub fn new() -> Self {
        Self::default()
    }

    /// Triggers this token and all of its children.
    pub fn trigger(&self) {
        self.0.cancel();
    }

    pub fn is_triggered(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Completes when the token is triggered.
    pub async fn wait(&self) {
        self.0.cancelled().await;
    }

    /// A token that is triggered with this one, or earlier on its own.
    pub fn child(&self) -> Self {
        Self(self.0.child_token())
    }

    /// The result of `work`, or `None` if the token is triggered first.
    pub async fn run_until_triggered<F: Future>(&self, work: F) -> Option<F::Output> {
        self.0.run_until_cancelled(work).await
    }
}

impl From<CancellationToken> for ShutdownToken {
    fn from(token: CancellationToken) -> Self {
        Self(token)
    }
}

#[derive(Default)]
struct TaskGroupMembers {
    running: JoinSet<()>,
    children: Vec<Weak<TaskGroupInner>>,
}

struct TaskGroupInner {
    shutdown: ShutdownToken,
    /// Aborts tasks that ignore the shutdown token.
    abort_token: CancellationToken,
    spawned: Mutex<TaskGroupMembers>,
}

/// The owner of spawned tasks. Clones share one group; when the last clone is dropped,
/// running tasks are aborted.
#[derive(Clone)]
pub struct TaskGroup(Arc<TaskGroupInner>);

impl TaskGroup {
    /// A group whose tasks stop when `shutdown` is triggered.
    pub fn new(shutdown: ShutdownToken) -> Self {
        Self::with_tokens(shutdown, CancellationToken::new())
    }

    fn with_tokens(shutdown: ShutdownToken, abort_token: CancellationToken) -> Self {
        Self(Arc::new(TaskGroupInner {
            shutdown,
            abort_token,
            spawned: Mutex::default(),
        }))
    }

    pub fn shutdown(&self) -> &ShutdownToken {
        &self.0.shutdown
    }

    /// A child group: it can be stopped on its own, and is stopped and joined with this
    /// one.
    pub fn child(&self) -> Self {
        let child = Self::with_tokens(self.0.shutdown.child(), self.0.abort_token.child_token());
        let mut owned = self.0.spawned.lock();
        owned.children.retain(|c| c.strong_count() > 0);
        owned.children.push(Arc::downgrade(&child.0));
        child
    }

    /// Spawns a task. It should end soon after the shutdown token is triggered.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut owned = self.0.spawned.lock();
        while let Some(ended) = owned.running.try_join_next() {
            log_panic(ended);
        }
        let abort_token = self.0.abort_token.clone();
        owned.running.spawn(async move {
            abort_token.run_until_cancelled(work).await;
        });
    }

    /// Waits until every task of this group and of its children has ended. Dropping this
    /// future aborts the tasks it was waiting for.
    pub async fn join(&self) {
        loop {
            let TaskGroupMembers {
                mut running,
                children,
            } = std::mem::take(&mut *self.0.spawned.lock());
            let children: Vec<Self> = children
                .iter()
                .filter_map(Weak::upgrade)
                .map(Self)
                .collect();
            if running.is_empty() && children.is_empty() {
                return;
            }
            while let Some(ended) = running.join_next().await {
                log_panic(ended);
            }
            for child in children {
                Box::pin(child.join()).await;
            }
        }
    }

    /// Asks the tasks to stop; after `timeout`, aborts those still running at their next
    /// await point. Returns whether all of them ended by themselves.
    pub async fn stop_with_timeout(&self, timeout: Duration) -> bool {
        self.0.shutdown.trigger();
        let mut joined = std::pin::pin!(self.join());
        let in_time = tokio::time::timeout(timeout, joined.as_mut()).await;
        if in_time.is_ok() {
            return true;
        }
        self.0.abort_token.cancel();
        joined.await;
        false
    }

    /// Asks the tasks to stop and waits until they have ended.
    pub async fn stop(&self) {
        self.0.shutdown.trigger();
        self.join().await;
    }
}

fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a task panicked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn stopping_the_parent_joins_the_children() {
        let ended = Arc::new(AtomicUsize::new(0));
        let tasks = TaskGroup::new(ShutdownToken::new());
        let child = tasks.child();
        for owner in [&tasks, &child] {
            let (ended, shutdown) = (Arc::clone(&ended), owner.shutdown().clone());
            owner.spawn(async move {
                shutdown.wait().await;
                ended.fetch_add(1, Ordering::SeqCst);
            });
        }
        let alone = tasks.child();
        alone.stop().await;
        assert!(!tasks.shutdown().is_triggered());
        tasks.stop().await;
        assert_eq!(ended.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_that_ignore_the_token_are_aborted_in_children_too() {
        let tasks = TaskGroup::new(ShutdownToken::new());
        let child = tasks.child().child();
        let resource = Arc::new(());
        for owner in [&tasks, &child] {
            let resource = Arc::clone(&resource);
            owner.spawn(async move {
                std::future::pending::<()>().await;
                drop(resource);
            });
        }
        assert!(!tasks.stop_with_timeout(Duration::from_secs(3)).await);
        assert_eq!(Arc::strong_count(&resource), 1);
        assert!(tasks.stop_with_timeout(Duration::from_secs(3)).await);
    }

    #[tokio::test]
    async fn a_panic_ends_one_task_only() {
        let tasks = TaskGroup::new(ShutdownToken::new());
        tasks.spawn(async { panic!("on purpose") });
        tasks.spawn(async {});
        tasks.stop().await;
    }
}
