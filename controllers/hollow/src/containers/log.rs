//! Logs of hollow containers: one line for each second that a container has run, generated
//! when it is read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::{Api, ResourcePath, ShutdownToken};
use futures_util::{Stream, stream};
use jiff::Timestamp;
use machinery::Status;
use machinery::time::Clock;

use super::container::{StartedContainer, select_container};
use crate::controller::PODS;

/// Lines of a container's log; older ones count as rotated.
const MAX_LINES: u64 = 1000;

/// The query parameters of a log request (PodLogOptions).
#[derive(Clone, Copy, Debug, Default)]
pub struct PodLogOptions {
    previous: bool,
    follow: bool,
    timestamps: bool,
    since: Option<Timestamp>,
    tail_lines: Option<u64>,
    /// The number of bytes that may still be sent.
    limit_bytes: Option<usize>,
}

impl PodLogOptions {
    /// The options of a request from its query parameters.
    pub fn parse(
        param: impl Fn(&str) -> Option<String>,
        flag: impl Fn(&str) -> bool,
        now: Timestamp,
    ) -> Result<Self, Status> {
        let number = |name: &str| -> Result<Option<u64>, Status> {
            let Some(text) = param(name) else {
                return Ok(None);
            };
            let bad = |_| Status::bad_request(format!("{name}: {text:?} is not a number"));
            text.parse().map(Some).map_err(bad)
        };
        let ago = number("sinceSeconds")?;
        let ago = ago.and_then(|s| now.checked_sub(Duration::from_secs(s)).ok());
        let time = param("sinceTime");
        let time = time.map(|t| {
            t.parse()
                .map_err(|_| Status::bad_request("sinceTime is not a time"))
        });
        Ok(Self {
            previous: flag("previous"),
            follow: flag("follow"),
            timestamps: flag("timestamps"),
            since: ago.or(time.transpose()?),
            tail_lines: number("tailLines")?,
            limit_bytes: number("limitBytes")?.map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
        })
    }
}

impl StartedContainer {
    /// The number of lines logged until `now`.
    fn line_count(&self, now: Timestamp) -> u64 {
        let until = self.finished.unwrap_or(now).min(now);
        let seconds = until.as_second() - self.started.as_second();
        u64::try_from(seconds + 1).unwrap_or(0)
    }

    fn line_time(&self, line: u64) -> Timestamp {
        self.started + Duration::from_secs(line)
    }

    fn line(&self, line: u64, timestamps: bool) -> String {
        let time = match timestamps {
            true => format!("{} ", self.line_time(line)),
            false => String::new(),
        };
        let (namespace, pod, name) = (&self.namespace, &self.pod, &self.name);
        format!("{time}hollow container {name} of {namespace}/{pod}: second {line}\n")
    }

    fn first_line(&self, options: &PodLogOptions, lines: u64) -> u64 {
        let since = options.since.map_or(0, |since| {
            u64::try_from(since.as_second() - self.started.as_second()).unwrap_or(0)
        });
        let tail = lines.saturating_sub(options.tail_lines.unwrap_or(u64::MAX));
        since.max(tail).max(lines.saturating_sub(MAX_LINES))
    }
}

/// The log of a container while it is read.
pub struct PodLogStream {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    shutdown: ShutdownToken,
    container: StartedContainer,
    options: PodLogOptions,
    next_line: u64,
}

impl PodLogStream {
    /// Opens the log of a container. A log that is followed ends with the container or
    /// `shutdown`.
    pub fn open(
        api: Arc<dyn Api>,
        clock: Arc<dyn Clock>,
        shutdown: ShutdownToken,
        container: StartedContainer,
        options: PodLogOptions,
    ) -> Result<Self, Status> {
        if options.previous {
            let (name, pod) = (&container.name, &container.pod);
            let text = format!("previous terminated container {name:?} in pod {pod:?} not found");
            return Err(Status::bad_request(text));
        }
        Ok(Self {
            next_line: container.first_line(&options, container.line_count(clock.now())),
            api,
            clock,
            shutdown,
            container,
            options,
        })
    }

    /// The log in chunks of whole lines.
    pub fn into_chunks(self) -> impl Stream<Item = Bytes> {
        stream::unfold(self, |mut log| async move {
            let chunk = log.next_chunk().await?;
            Some((chunk, log))
        })
    }

    /// The next lines; `None` at the end of the log.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            let line_count = self.container.line_count(self.clock.now());
            if self.options.limit_bytes == Some(0) {
                return None;
            }
            if self.next_line < line_count {
                let lines = (self.next_line..line_count)
                    .map(|n| self.container.line(n, self.options.timestamps));
                let mut text: String = lines.collect();
                self.next_line = line_count;
                if let Some(limit) = &mut self.options.limit_bytes {
                    // The names of pods and containers are ASCII.
                    text.truncate(*limit);
                    *limit -= text.len();
                }
                return Some(text.into());
            }
            if !self.options.follow || self.container.finished.is_some() {
                return None;
            }
            let due = self.container.line_time(self.next_line);
            let pause = Duration::try_from(due - self.clock.now()).unwrap_or_default();
            let waited = tokio::time::sleep(pause);
            self.shutdown.run_until_triggered(waited).await?;
            self.refresh_container().await?;
        }
    }

    /// Reads the container's state again; `None` when the pod is gone.
    async fn refresh_container(&mut self) -> Option<()> {
        let c = &self.container;
        let at = ResourcePath::object(&PODS, &c.namespace, &c.pod);
        let pod = self.api.get(at).await;
        let pod = pod.ok().filter(|p| p.uid() == c.uid)?.value().ok()?;
        self.container = select_container(&pod, &c.namespace, &c.pod, Some(&c.name)).ok()?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_logs_a_line_each_second_and_old_ones_are_rotated() {
        let at = |seconds: i64| Timestamp::from_second(1_767_225_600 + seconds).unwrap();
        let container = StartedContainer {
            namespace: "n".into(),
            pod: "p".into(),
            uid: "u".into(),
            name: "c".into(),
            started: at(0),
            finished: None,
        };
        let ended = StartedContainer {
            finished: Some(at(4)),
            ..container.clone()
        };
        assert_eq!(
            [
                container.line_count(at(-1)),
                container.line_count(at(0)),
                container.line_count(at(9))
            ],
            [0, 1, 10]
        );
        assert_eq!(ended.line_count(at(9)), 5);
        assert_eq!(
            container.line(3, true),
            "2026-01-01T00:00:03Z hollow container c of n/p: second 3\n"
        );
        let options = PodLogOptions::default();
        let tail = PodLogOptions {
            tail_lines: Some(2),
            ..options
        };
        let since = PodLogOptions {
            since: Some(at(7)),
            ..options
        };
        for (options, lines, first) in [
            (options, 10, 0),
            (tail, 10, 8),
            (since, 10, 7),
            (options, 5000, 4000),
        ] {
            assert_eq!(container.first_line(&options, lines), first);
        }
    }
}
