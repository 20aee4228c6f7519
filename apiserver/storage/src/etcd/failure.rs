//! What an error of the client means: for the caller, and for whoever asks again.
//! Pure.

use std::error::Error as _;

use crate::store::Error;

/// Whether a request that failed may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// It was answered: asking again gives the same.
    Never,
    /// It certainly did not happen.
    Unsent,
    /// It may have happened.
    Perhaps,
}

/// An error of the client, understood.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) again: Again,
    /// The lease of a put has ended.
    pub(super) lease_gone: bool,
    /// Waiting does not help: keys and certificates do not fit, or the other side
    /// speaks something else.
    pub(super) hopeless: bool,
}

impl Failure {
    pub(super) fn unavailable(why: impl Into<String>, again: Again) -> Self {
        Self {
            error: Error::Unavailable(why.into()),
            again,
            lease_gone: false,
            hopeless: false,
        }
    }

    /// `at` is the revision that was asked for, where one was.
    pub(super) fn new(error: &etcd_client::Error, at: u64) -> Self {
        let etcd_client::Error::GRpcStatus(status) = error else {
            return Self::unavailable(error.to_string(), Again::Perhaps);
        };
        let told = status.message();
        let known = |error| Self {
            error,
            again: Again::Never,
            lease_gone: false,
            hopeless: false,
        };
        // Texts: etcd api/v3rpc/rpctypes/error.go.
        match () {
            () if told.contains("required revision has been compacted") => {
                known(Error::Compacted { at: 0 })
            }
            () if told.contains("required revision is a future revision") => known(Error::Future {
                asked: at,
                current: 0,
            }),
            () if told.contains("request is too large") => known(Error::TooLarge),
            () if told.contains("database space exceeded") => {
                known(Error::NoSpace("etcd: database space exceeded".into()))
            }
            () if told.contains("requested lease not found") => Self {
                lease_gone: true,
                ..Self::unavailable("etcd: the lease is gone", Again::Unsent)
            },
            // Said before anything is proposed.
            () if told == "etcdserver: no leader"
                || told == "etcdserver: too many requests"
                || told == "etcdserver: not capable" =>
            {
                Self::unavailable(told, Again::Unsent)
            }
            () => Self::of_transport(status),
        }
    }

    fn of_transport(status: &tonic::Status) -> Self {
        let mut why = status.message().to_owned();
        let mut again = Again::Perhaps;
        let mut source = status.source();
        while let Some(error) = source {
            if error.is::<tonic::ConnectError>() {
                again = Again::Unsent;
            }
            let text = error.to_string();
            // Each layer repeats the one below it, or says nothing.
            if !text.is_empty() && text != "transport error" && !why.contains(&text) {
                why = if why.is_empty() || why == "transport error" {
                    text
                } else {
                    format!("{why}: {text}")
                };
            }
            source = error.source();
        }
        let hopeless = ["certificate", "InvalidContentType", "received fatal alert"]
            .iter()
            .any(|sign| why.contains(sign));
        Self {
            hopeless,
            ..Self::unavailable(why, again)
        }
    }
}
