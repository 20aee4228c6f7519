//! Sends audit events to a server in batches, as an `EventList` of audit.k8s.io/v1
//! (`--audit-webhook-mode=batch`).

use std::time::Duration;

use bytes::Bytes;
use client::remote::{RestConfig, RestConfigError};
use client::{RemoteApi, ShutdownToken, TaskGroup};
use machinery::backoff::exponential_delay;

use super::event_queue::{
    AuditErrorCounters, AuditEventQueue, AuditEventReceiver, AuditQueueLimits,
};

/// Attempts to send one batch, the first included (kube-apiserver's webhook backoff).
const MAX_ATTEMPTS: u32 = 5;
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// Bound on the time of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
/// Bound on the body of a response, whose content is not used.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// How events are gathered into batches.
#[derive(Clone, Copy, Debug)]
pub struct AuditWebhookBatching {
    pub buffer_events: usize,
    pub max_batch_events: usize,
    pub max_wait: Duration,
    pub initial_backoff: Duration,
}

/// The backend `webhook`.
pub struct AuditWebhook {
    server: RemoteApi,
    connections: TaskGroup,
    batching: AuditWebhookBatching,
}

impl AuditWebhook {
    /// `config` is the server of the kubeconfig, with the whole path of the webhook.
    pub fn new(
        config: RestConfig,
        batching: AuditWebhookBatching,
    ) -> Result<Self, RestConfigError> {
        let connections = TaskGroup::new(ShutdownToken::new());
        Ok(Self {
            server: RemoteApi::new(config, &connections)?,
            connections,
            batching,
        })
    }

    /// Sends the events of the returned queue until the group's shutdown, then once the events that
    /// remain in the queue.
    pub fn start(self, errors: &AuditErrorCounters, tasks: &TaskGroup) -> AuditEventQueue {
        let limits = AuditQueueLimits {
            events: self.batching.buffer_events,
            ..AuditQueueLimits::default()
        };
        let (queue, receiver) = AuditEventQueue::new(limits, errors, "webhook");
        let stop = tasks.shutdown().clone();
        tasks.spawn(async move { self.send_events(receiver, stop).await });
        queue
    }

    async fn send_events(self, mut receiver: AuditEventReceiver, stop: ShutdownToken) {
        loop {
            let AuditWebhookBatching {
                max_batch_events: max,
                max_wait,
                ..
            } = self.batching;
            let next = receiver.next_batch(max, max_wait);
            let batch = match stop.run_until_triggered(next).await {
                Some(batch) => batch,
                None => {
                    receiver.close();
                    receiver.next_batch(max, Duration::ZERO).await
                }
            };
            if batch.is_empty() {
                return self.connections.stop().await;
            }
            if let Err(e) = self.send_batch(&batch, &stop).await {
                receiver.errors.inc_by(batch.len() as u64);
                tracing::warn!(why = %e, events = batch.len(), "cannot send audit events");
            }
        }
    }

    /// Sends a batch, repeatedly if it fails and the server does not shut down.
    async fn send_batch(&self, batch: &[Bytes], stop: &ShutdownToken) -> Result<(), String> {
        let body = event_list(batch);
        let mut attempt = 1;
        loop {
            let response = self.server.post("", body.clone(), MAX_RESPONSE_BYTES);
            let message = match tokio::time::timeout(ATTEMPT_TIMEOUT, response).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(e)) => e.to_string(),
                Err(_) => "the request timed out".to_owned(),
            };
            if attempt == MAX_ATTEMPTS || stop.is_triggered() {
                return Err(message);
            }
            let initial = self.batching.initial_backoff;
            let delay = exponential_delay(initial, MAX_BACKOFF, attempt - 1);
            let _ = stop.run_until_triggered(tokio::time::sleep(delay)).await;
            attempt += 1;
        }
    }
}

fn event_list(batch: &[Bytes]) -> Bytes {
    let size: usize = batch.iter().map(|event| event.len() + 1).sum();
    let mut list = Vec::with_capacity(size + 96);
    list.extend_from_slice(
        br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#,
    );
    for (n, event) in batch.iter().enumerate() {
        if n > 0 {
            list.push(b',');
        }
        list.extend_from_slice(event);
    }
    list.extend_from_slice(b"]}");
    list.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_event_lists() {
        for count in 0..3 {
            let batch = vec![Bytes::from_static(br#"{"auditID":"a"}"#); count];
            let list: serde_json::Value = machinery::json::from_slice(&event_list(&batch)).unwrap();
            assert_eq!(list["items"].as_array().unwrap().len(), count);
            assert_eq!(list["kind"], "EventList");
        }
    }
}
