//! Follows the log of a container: sends its lines as server-sent events, bounded in speed and in all.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::sync::OwnedSemaphorePermit;

use crate::clipped_text::clipped;
use crate::console::{Console, ResponseStream};
use crate::member_pods::PodLog;

/// Lines within this time are one event.
const MIN_INTERVAL: Duration = Duration::from_millis(200);
/// The bytes of an event, and with that the bytes in the interval.
const MAX_EVENT_BYTES: usize = 64 << 10;
/// The bytes of a stream, after which the page has to be loaded again.
const MAX_LOG_BYTES: usize = 16 << 20;
const RESET: &[u8] = b"event: reset\ndata: open\n\n";
const KEEP_ALIVE: &[u8] = b": still here\n\n";

struct LiveLog {
    stream: ResponseStream,
    /// Bytes that have come and are not sent: whole lines, and the beginning of one.
    pending: Vec<u8>,
    sent_bytes: usize,
    /// Why nothing more comes.
    ending: Option<String>,
    has_ended: bool,
    _permit: OwnedSemaphorePermit,
}

/// The events of a log: `reset` once it is open, `log` with lines, and `end` with the reason. They are
/// made when they are read: a slow reader slows the log down, and one that is gone closes it.
pub(crate) fn follow(
    console: Arc<Console>,
    log: PodLog,
    permit: OwnedSemaphorePermit,
) -> BoxStream<'static, Bytes> {
    let events = stream::once(async move {
        let (first, stream, ending) = match open(&console, &log).await {
            Ok(stream) => (RESET, stream, None),
            Err(error) => {
                let nothing = stream::empty().boxed();
                (KEEP_ALIVE, nothing, Some(format!("{error:#}")))
            }
        };
        let live = LiveLog {
            stream,
            pending: Vec::new(),
            sent_bytes: 0,
            ending,
            has_ended: false,
            _permit: permit,
        };
        let events = stream::unfold(live, |mut live| async move {
            let event = live.next_event().await?;
            Some((event, live))
        });
        stream::iter([Bytes::from_static(first)]).chain(events)
    });
    events.flatten().boxed()
}

async fn open(console: &Console, log: &PodLog) -> anyhow::Result<ResponseStream> {
    Ok(console.streams.open(&log.path(true)?).await?)
}

impl LiveLog {
    /// `None` after the event that ends the log.
    async fn next_event(&mut self) -> Option<Bytes> {
        if self.has_ended {
            return None;
        }
        if self.sent_bytes > 0 {
            tokio::time::sleep(MIN_INTERVAL).await;
        }
        loop {
            self.read_ready();
            if let Some(lines) = self.take_lines() {
                return Some(self.log_event(&lines));
            }
            if let Some(ending) = self.ending.take() {
                self.has_ended = true;
                return Some(event("end", &clipped(&ending)));
            }
            let piece = self.stream.next().await;
            if piece
                .as_ref()
                .is_some_and(|piece| matches!(piece, Ok(piece) if piece.is_empty()))
            {
                return Some(Bytes::from_static(KEEP_ALIVE));
            }
            self.receive(piece);
        }
    }

    /// Reads what has come already, up to the size of an event.
    fn read_ready(&mut self) {
        while self.pending.len() < MAX_EVENT_BYTES && self.ending.is_none() {
            match self.stream.next().now_or_never() {
                Some(piece) => self.receive(piece),
                None => return,
            }
        }
    }

    fn receive(&mut self, piece: Option<client::Result<Bytes>>) {
        match piece {
            Some(Ok(piece)) => {
                self.pending.extend_from_slice(&piece);
                if self.sent_bytes + self.pending.len() > MAX_LOG_BYTES {
                    self.ending = Some("Much is shown; load the page again to go on".to_owned());
                }
            }
            Some(Err(error)) => self.ending = Some(error.to_string()),
            None => self.ending = Some("The log has ended".to_owned()),
        }
    }

    /// Takes whole lines, or the beginning of one that is too long, or what is left at the end.
    fn take_lines(&mut self) -> Option<Vec<u8>> {
        let length = self.pending.len().min(MAX_EVENT_BYTES);
        let last = self.pending[..length]
            .iter()
            .rposition(|byte| *byte == b'\n');
        let end = match last {
            Some(last) => last + 1,
            None if length == MAX_EVENT_BYTES || self.ending.is_some() => length,
            None => 0,
        };
        (end > 0).then(|| self.pending.drain(..end).collect())
    }

    fn log_event(&mut self, lines: &[u8]) -> Bytes {
        self.sent_bytes += lines.len();
        let text = String::from_utf8_lossy(lines);
        event("log", text.strip_suffix('\n').unwrap_or(&text))
    }
}

/// An event of several lines. A carriage return would end a line of it.
fn event(name: &str, text: &str) -> Bytes {
    let mut event = format!("event: {name}\n");
    for line in text.split('\n') {
        event.push_str(&format!("data: {}\n", line.replace('\r', " ")));
    }
    event.push('\n');
    event.into()
}
