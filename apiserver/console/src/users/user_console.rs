//! The console of one user, and who uses it at the moment.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::{ShutdownToken, TaskGroup};
use futures_util::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::console::Console;
use crate::session::{Session, Sessions, TokenDigest};

/// Requests of a user that are answered at once, and pages that are kept up to date.
const MAX_USES: usize = 64;
/// Has the browser load the page again, which says that the session has ended.
const SESSION_END: &[u8] = b"event: session-end\ndata: ended\n\n";

struct UsageState {
    uses: usize,
    last_use: Instant,
}

pub(super) struct UserConsole {
    pub(super) token: TokenDigest,
    pub(super) console: Arc<Console>,
    /// The sessions of browsers.
    pub(super) sessions: Sessions,
    /// The session of requests that have the token in their header.
    header_session: Session,
    usage: Mutex<UsageState>,
    pub(super) tasks: TaskGroup,
}

impl UserConsole {
    pub(super) fn new(token: TokenDigest, console: Arc<Console>, tasks: TaskGroup) -> Self {
        Self {
            token,
            console,
            sessions: Sessions::default(),
            header_session: Session::new(false),
            usage: Mutex::new(UsageState {
                uses: 0,
                last_use: Instant::now(),
            }),
            tasks,
        }
    }

    pub(super) fn shutdown(&self) -> &ShutdownToken {
        self.tasks.shutdown()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.shutdown().is_triggered()
    }

    /// When it was used last, if nobody uses it.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let usage = self.usage.lock();
        (usage.uses == 0).then_some(usage.last_use)
    }

    pub(super) fn is_idle_for(&self, time: Duration) -> bool {
        self.idle_since().is_some_and(|last| last.elapsed() >= time)
    }
}

/// A request or an open page of a user, while which the console is not dropped.
pub(crate) struct ConsoleUse(Arc<UserConsole>);

impl ConsoleUse {
    /// `None` if the user has too many.
    pub(super) fn begin(user: &Arc<UserConsole>) -> Option<Self> {
        let mut usage = user.usage.lock();
        if usage.uses >= MAX_USES {
            return None;
        }
        usage.uses += 1;
        drop(usage);
        Some(Self(Arc::clone(user)))
    }

    pub(crate) fn console(&self) -> &Arc<Console> {
        &self.0.console
    }

    pub(super) fn user(&self) -> &UserConsole {
        &self.0
    }

    /// The session of a request that has the token in its header.
    pub(crate) fn header_session(&self) -> Session {
        self.0.header_session.clone()
    }

    /// Whether the user has logged out, or the token is worth nothing anymore.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.has_ended()
    }

    /// Ends all sessions of the token, and forgets what was read with it.
    pub(crate) fn end(&self) {
        self.0.shutdown().trigger();
    }

    /// The events of a page, until they or the session end.
    pub(crate) fn until_end(self, events: BoxStream<'static, Bytes>) -> BoxStream<'static, Bytes> {
        let shutdown = self.0.shutdown().clone();
        let ended = async move { shutdown.wait().await };
        let last = stream::iter([self]).filter_map(|usage| {
            let event = usage.has_ended().then(|| Bytes::from_static(SESSION_END));
            std::future::ready(event)
        });
        events.take_until(ended).chain(last).boxed()
    }
}

impl Drop for ConsoleUse {
    fn drop(&mut self) {
        let mut usage = self.0.usage.lock();
        usage.uses -= 1;
        usage.last_use = Instant::now();
    }
}
