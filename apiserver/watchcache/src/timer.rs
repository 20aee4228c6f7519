//! The timer of a watcher, for bookmarks and the deadline.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// The time between the last bookmark and the deadline, so that the client resumes from a
/// recent revision.
const BOOKMARK_BEFORE_DEADLINE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheWatcherTimerDue {
    Nothing,
    Bookmark,
    Deadline,
}

pub(crate) struct CacheWatcherTimer {
    sleep: Pin<Box<Sleep>>,
    bookmark: Option<Instant>,
    deadline: Option<Instant>,
    interval: Duration,
}

impl CacheWatcherTimer {
    /// `None` without bookmarks and deadline.
    pub(crate) fn new(
        bookmarks: bool,
        interval: Duration,
        deadline: Option<Instant>,
    ) -> Option<Self> {
        if !bookmarks && deadline.is_none() {
            return None;
        }
        let now = Instant::now();
        let mut timer = Self {
            sleep: Box::pin(sleep_until(now)),
            bookmark: bookmarks.then_some(now),
            deadline,
            interval,
        };
        timer.next_bookmark(now);
        Some(timer)
    }

    pub(crate) fn due(&self) -> CacheWatcherTimerDue {
        let now = Instant::now();
        let is_past = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_past(self.deadline) {
            CacheWatcherTimerDue::Deadline
        } else if is_past(self.bookmark) {
            CacheWatcherTimerDue::Bookmark
        } else {
            CacheWatcherTimerDue::Nothing
        }
    }

    /// Schedules the next bookmark after one was sent.
    pub(crate) fn schedule_bookmark(&mut self) {
        self.next_bookmark(Instant::now());
    }

    fn next_bookmark(&mut self, now: Instant) {
        if self.bookmark.is_some() {
            // Jitter, so that watchers that started together do not stay in step.
            let regular = now + self.interval.mul_f64(rand::random_range(0.75..1.0));
            let farewell = self
                .deadline
                .and_then(|d| d.checked_sub(BOOKMARK_BEFORE_DEADLINE));
            self.bookmark = match farewell {
                Some(last) if last <= now => None,
                Some(last) => Some(regular.min(last)),
                None => Some(regular),
            };
        }
        if let Some(next) = self.bookmark.into_iter().chain(self.deadline).min() {
            self.sleep.as_mut().reset(next);
        }
    }

    /// Completes when something is due. Cancel-safe.
    pub(crate) async fn wait_until_due(timer: &mut Option<Self>) {
        match timer {
            Some(timer) if timer.bookmark.is_some() || timer.deadline.is_some() => {
                timer.sleep.as_mut().await;
            }
            _ => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check(
        bookmarks: bool,
        deadline: Option<u64>,
        seconds: u64,
    ) -> Vec<(u64, CacheWatcherTimerDue)> {
        let start = Instant::now();
        let test_end = start + Duration::from_secs(seconds);
        let deadline = deadline.map(|s| start + Duration::from_secs(s));
        let mut timer = CacheWatcherTimer::new(bookmarks, Duration::from_secs(60), deadline);
        let mut items = Vec::new();
        while tokio::time::timeout_at(test_end, CacheWatcherTimer::wait_until_due(&mut timer))
            .await
            .is_ok()
        {
            let due = timer.as_ref().unwrap().due();
            items.push((start.elapsed().as_secs(), due));
            match due {
                CacheWatcherTimerDue::Bookmark => timer.as_mut().unwrap().schedule_bookmark(),
                CacheWatcherTimerDue::Deadline => break,
                CacheWatcherTimerDue::Nothing => panic!("nothing is due"),
            }
        }
        items
    }

    #[tokio::test(start_paused = true)]
    async fn bookmarks_come_each_minute_and_before_the_deadline() {
        assert_eq!(check(false, None, 500).await, []);
        assert_eq!(
            check(false, Some(10), 500).await,
            [(10, CacheWatcherTimerDue::Deadline)]
        );
        assert_eq!(
            check(true, Some(1), 500).await,
            [(1, CacheWatcherTimerDue::Deadline)]
        );
        assert_eq!(
            check(true, Some(30), 500).await,
            [
                (28, CacheWatcherTimerDue::Bookmark),
                (30, CacheWatcherTimerDue::Deadline)
            ]
        );
        let regular = check(true, None, 300).await;
        assert!((5..=6).contains(&regular.len()), "{regular:?}");
        let long_watch = check(true, Some(100), 500).await;
        assert!(long_watch.len() >= 3, "{long_watch:?}");
        assert_eq!(
            long_watch[long_watch.len() - 2..],
            [
                (98, CacheWatcherTimerDue::Bookmark),
                (100, CacheWatcherTimerDue::Deadline)
            ]
        );
    }
}
