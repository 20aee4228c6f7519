//! Maps errors of the etcd client to errors of the store, and says whether the request
//! can be retried. Pure.

use std::error::Error as _;

use crate::store::Error;

/// Whether a failed request can be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetrySafety {
    /// The server answered: a retry gives the same response.
    NotRetryable,
    /// The request certainly was not applied.
    NotApplied,
    /// The request may have been applied.
    MaybeApplied,
}

/// An error of the etcd client.
#[derive(Clone, Debug)]
pub(super) struct EtcdError {
    pub(super) error: Error,
    pub(super) retry_safety: RetrySafety,
    /// The lease of a put has expired.
    pub(super) lease_not_found: bool,
    /// Waiting does not help: certificates do not match, or the server speaks another
    /// protocol.
    pub(super) permanent: bool,
}

impl EtcdError {
    pub(super) fn unavailable(message: impl Into<String>, retry_safety: RetrySafety) -> Self {
        Self {
            error: Error::Unavailable(message.into()),
            retry_safety,
            lease_not_found: false,
            permanent: false,
        }
    }

    /// The request was answered, and what follows failed.
    pub(super) fn not_retryable(error: Error) -> Self {
        Self {
            error,
            retry_safety: RetrySafety::NotRetryable,
            lease_not_found: false,
            permanent: false,
        }
    }

    /// `revision` is the requested revision, 0 where there is none. etcd does not name the compaction
    /// revision; the error has the lowest that it can be.
    pub(super) fn new(error: &etcd_client::Error, revision: u64) -> Self {
        let etcd_client::Error::GRpcStatus(status) = error else {
            return Self::unavailable(error.to_string(), RetrySafety::MaybeApplied);
        };
        let message = status.message();
        // Texts: etcd api/v3rpc/rpctypes/error.go.
        match () {
            () if message.contains("required revision has been compacted") => {
                Self::not_retryable(Error::Compacted { at: revision + 1 })
            }
            () if message.contains("required revision is a future revision") => {
                Self::not_retryable(Error::Future {
                    requested: revision,
                    current: 0,
                })
            }
            // The second text comes from its gRPC library, for a request far beyond the limit.
            () if message.contains("request is too large")
                || message.contains("received message larger than max") =>
            {
                Self::not_retryable(Error::TooLarge)
            }
            () if message.contains("database space exceeded") => {
                Self::not_retryable(Error::NoSpace("etcd: database space exceeded".into()))
            }
            () if message.contains("requested lease not found") => Self {
                lease_not_found: true,
                ..Self::unavailable("etcd: requested lease not found", RetrySafety::NotApplied)
            },
            // The server returns these before it proposes the request to raft.
            () if message == "etcdserver: no leader"
                || message == "etcdserver: too many requests"
                || message == "etcdserver: not capable" =>
            {
                Self::unavailable(message, RetrySafety::NotApplied)
            }
            () => Self::from_transport(status),
        }
    }

    fn from_transport(status: &tonic::Status) -> Self {
        let mut message = status.message().to_owned();
        let mut retry_safety = RetrySafety::MaybeApplied;
        let mut source = status.source();
        while let Some(error) = source {
            if error.is::<tonic::ConnectError>() {
                retry_safety = RetrySafety::NotApplied;
            }
            let text = error.to_string();
            // Most layers repeat the text of the layer below, or have none.
            if !text.is_empty() && text != "transport error" && !message.contains(&text) {
                message = if message.is_empty() || message == "transport error" {
                    text
                } else {
                    format!("{message}: {text}")
                };
            }
            source = error.source();
        }
        let permanent = ["certificate", "InvalidContentType", "received fatal alert"]
            .iter()
            .any(|sign| message.contains(sign));
        Self {
            permanent,
            ..Self::unavailable(message, retry_safety)
        }
    }
}

/// The error of a read of the newest revision. The base of the value went, and the revision was
/// compacted, while it was read; the next read gets a newer one.
pub(super) fn newest_read_error(error: Error) -> Error {
    match error {
        Error::Compacted { .. } => {
            Error::Unavailable("the value was replaced while it was read".into())
        }
        other => other,
    }
}
