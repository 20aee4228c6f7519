//! Keeps a page up to date: the changing part of it is rendered again when the inventory changes, and
//! sent if it differs, as a server-sent event.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::console::Console;
use crate::pages::{self, Page, PageVersion};

/// Changes within this time are one event.
const MIN_INTERVAL: Duration = Duration::from_millis(500);
/// A comment at least as often, by which both sides notice a broken connection.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEP_ALIVE: &[u8] = b": still here\n\n";

struct LivePage {
    console: Arc<Console>,
    page: Page,
    changes: watch::Receiver<u64>,
    version: Option<PageVersion>,
    digest: String,
    _permit: OwnedSemaphorePermit,
}

/// The events of a page. They are made when they are read, so that a slow reader has none waiting.
pub(crate) fn follow(
    console: Arc<Console>,
    page: Page,
    permit: OwnedSemaphorePermit,
) -> BoxStream<'static, Bytes> {
    let live = LivePage {
        changes: console.inventory.changes(),
        console,
        page,
        version: None,
        digest: String::new(),
        _permit: permit,
    };
    let events = stream::unfold(live, |mut live| async move {
        let event = live.next_event().await?;
        Some((event, live))
    });
    events.boxed()
}

impl LivePage {
    /// `None` when the console ends.
    async fn next_event(&mut self) -> Option<Bytes> {
        loop {
            if self.version.is_some() {
                tokio::select! {
                    changed = self.changes.changed() => changed.ok()?,
                    () = tokio::time::sleep(KEEP_ALIVE_INTERVAL) => {
                        return Some(Bytes::from_static(KEEP_ALIVE));
                    }
                }
                tokio::time::sleep(MIN_INTERVAL).await;
                self.changes.mark_unchanged();
            }
            let version = self.page.version(&self.console);
            if self.version.as_ref() == Some(&version) {
                continue;
            }
            self.version = Some(version);
            let fragment = pages::render_fragment(&self.page, &self.console).await;
            if fragment.digest != self.digest {
                self.digest.clone_from(&fragment.digest);
                return Some(event(&fragment.markup.into_string()));
            }
        }
    }
}

/// An event of one line: a carriage return or a line feed of a text would end it.
fn event(data: &str) -> Bytes {
    let line = data.replace(['\r', '\n'], " ");
    format!("event: fragment\ndata: {line}\n\n").into()
}
