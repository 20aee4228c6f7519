//! Logs of hollow containers: one line for each second that a container has run, generated
//! when it is read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::{At, Shutdown};
use flotilla_http::{Body, Connection};
use futures_util::{StreamExt, stream};
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body_util::StreamBody;
use hyper::body::Frame;
use jiff::Timestamp;
use machinery::Status;

use super::{Container, Containers, PODS};

/// Lines of a container's log; older ones count as rotated.
const KEPT: u64 = 1000;

/// The query parameters of a log request (PodLogOptions).
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    follow: bool,
    timestamps: bool,
    since: Option<Timestamp>,
    tail: Option<u64>,
    /// The number of bytes that may still be sent.
    limit: Option<usize>,
}

impl Wanted {
    fn parse(connection: &Connection, now: Timestamp) -> Result<Self, Status> {
        let number = |name: &str| -> Result<Option<u64>, Status> {
            let Some(text) = connection.param(name) else {
                return Ok(None);
            };
            let bad = |_| Status::bad_request(format!("{name}: {text:?} is not a number"));
            text.parse().map(Some).map_err(bad)
        };
        let ago = number("sinceSeconds")?;
        let ago = ago.and_then(|s| now.checked_sub(Duration::from_secs(s)).ok());
        let time = connection.param("sinceTime");
        let time = time.map(|t| {
            t.parse()
                .map_err(|_| Status::bad_request("sinceTime is not a time"))
        });
        Ok(Self {
            follow: connection.flag("follow"),
            timestamps: connection.flag("timestamps"),
            since: ago.or(time.transpose()?),
            tail: number("tailLines")?,
            limit: number("limitBytes")?.map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
        })
    }
}

impl Container {
    /// The number of lines logged until `now`.
    fn said(&self, now: Timestamp) -> u64 {
        let until = self.finished.unwrap_or(now).min(now);
        let seconds = until.as_second() - self.started.as_second();
        u64::try_from(seconds + 1).unwrap_or(0)
    }

    fn said_at(&self, line: u64) -> Timestamp {
        self.started + Duration::from_secs(line)
    }

    fn line(&self, line: u64, timestamps: bool) -> String {
        let time = match timestamps {
            true => format!("{} ", self.said_at(line)),
            false => String::new(),
        };
        let (namespace, pod, name) = (&self.namespace, &self.pod, &self.name);
        format!("{time}hollow container {name} of {namespace}/{pod}: second {line}\n")
    }

    fn first(&self, options: &Wanted, lines: u64) -> u64 {
        let since = options.since.map_or(0, |since| {
            u64::try_from(since.as_second() - self.started.as_second()).unwrap_or(0)
        });
        let tail = lines.saturating_sub(options.tail.unwrap_or(u64::MAX));
        since.max(tail).max(lines.saturating_sub(KEPT))
    }
}

pub(super) fn reply(
    containers: &Arc<Containers>,
    container: Container,
    connection: &Connection,
) -> Result<Response<Body>, Status> {
    if connection.flag("previous") {
        let (name, pod) = (&container.name, &container.pod);
        let text = format!("previous terminated container {name:?} in pod {pod:?} not found");
        return Err(Status::bad_request(text));
    }
    let options = Wanted::parse(connection, containers.clock.now())?;
    let state = State {
        next: container.first(&options, container.said(containers.clock.now())),
        containers: Arc::clone(containers),
        closing: connection.closing.clone(),
        container,
        wanted: options,
    };
    let lines = stream::unfold(state, |mut state| async move {
        let chunk = state.chunk().await?;
        Some((chunk, state))
    });
    let frames = lines.map(|chunk| Ok::<_, std::convert::Infallible>(Frame::data(chunk)));
    let mut response = Response::new(Body::foreign(StreamBody::new(frames)));
    let text = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(CONTENT_TYPE, text);
    Ok(response)
}

struct State {
    containers: Arc<Containers>,
    closing: Shutdown,
    container: Container,
    wanted: Wanted,
    next: u64,
}

impl State {
    /// The next lines; `None` at the end of the log.
    async fn chunk(&mut self) -> Option<Bytes> {
        loop {
            let line_count = self.container.said(self.containers.clock.now());
            if self.wanted.limit == Some(0) {
                return None;
            }
            if self.next < line_count {
                let lines =
                    (self.next..line_count).map(|n| self.container.line(n, self.wanted.timestamps));
                let mut text: String = lines.collect();
                self.next = line_count;
                if let Some(limit) = &mut self.wanted.limit {
                    // The names of pods and containers are ASCII.
                    text.truncate(*limit);
                    *limit -= text.len();
                }
                return Some(text.into());
            }
            if !self.wanted.follow || self.container.finished.is_some() {
                return None;
            }
            let due = self.container.said_at(self.next);
            let pause = Duration::try_from(due - self.containers.clock.now()).unwrap_or_default();
            let waited = tokio::time::sleep(pause);
            self.closing.unless(waited).await?;
            self.look().await?;
        }
    }

    /// Reads the container's state again; `None` when the pod is gone.
    async fn look(&mut self) -> Option<()> {
        let c = &self.container;
        let pod = self
            .containers
            .api
            .get(At::one(&PODS, &c.namespace, &c.pod))
            .await;
        let pod = pod.ok().filter(|p| p.uid() == c.uid)?.value().ok()?;
        self.container = super::choose(&pod, &c.namespace, &c.pod, Some(&c.name)).ok()?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_logs_a_line_each_second_and_old_ones_are_rotated() {
        let at = |seconds: i64| Timestamp::from_second(1_767_225_600 + seconds).unwrap();
        let container = Container {
            namespace: "n".into(),
            pod: "p".into(),
            uid: "u".into(),
            name: "c".into(),
            started: at(0),
            finished: None,
        };
        let ended = Container {
            finished: Some(at(4)),
            ..container.clone()
        };
        assert_eq!(
            [
                container.said(at(-1)),
                container.said(at(0)),
                container.said(at(9))
            ],
            [0, 1, 10]
        );
        assert_eq!(ended.said(at(9)), 5);
        assert_eq!(
            container.line(3, true),
            "2026-01-01T00:00:03Z hollow container c of n/p: second 3\n"
        );
        let options = Wanted::default();
        let tail = Wanted {
            tail: Some(2),
            ..options
        };
        let since = Wanted {
            since: Some(at(7)),
            ..options
        };
        for (options, lines, first) in [
            (options, 10, 0),
            (tail, 10, 8),
            (since, 10, 7),
            (options, 5000, 4000),
        ] {
            assert_eq!(container.first(&options, lines), first);
        }
    }
}
