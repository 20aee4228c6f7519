//! A call of a mutating webhook, and where it stands among the others.

use super::configuration::AdmissionWebhook;

/// One call of a mutating webhook.
pub(super) struct MutatingCall<'a> {
    pub(super) webhook: &'a AdmissionWebhook,
    /// The index of the version that it gets.
    pub(super) version: usize,
    /// 0, or 1 when it is called again.
    pub(super) round: usize,
    /// Its index among all mutating webhooks.
    pub(super) index: usize,
}
