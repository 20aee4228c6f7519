//! Errors of reads and watches. They differ in what the client does next.

use machinery::Status;

/// Each variant has one `Status`; see [`Error::status`].
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The requested revision is compacted: the client lists again. `next` is a continue
    /// token at the newest state, for paged lists.
    #[error("too old resource version: {requested} ({oldest})")]
    Expired {
        requested: u64,
        /// The oldest readable revision; 0 when unknown.
        oldest: u64,
        next: Option<String>,
    },
    /// The requested revision was not reached in time.
    #[error("Too large resource version: {requested}, current: {current}")]
    TooLargeResourceVersion { requested: u64, current: u64 },
    /// The cache is being filled.
    #[error("storage is (re)initializing")]
    NotReady,
    /// The continue token is malformed or belongs to another collection.
    #[error("invalid continue token: continue key is not valid{0}")]
    InvalidContinueToken(String),
    /// A stored value cannot be decoded.
    #[error("unable to read the object stored at {key:?}: {reason}")]
    Corrupt { key: String, reason: String },
    /// The store failed.
    #[error(transparent)]
    Storage(storage::Error),
}

impl Error {
    /// Converts the store's error of a read at (or a watch after) a revision.
    pub(crate) fn from_read(error: storage::Error, revision: u64) -> Self {
        match error {
            storage::Error::Compacted { at } => Self::Expired {
                requested: revision,
                oldest: at,
                next: None,
            },
            storage::Error::Future { requested, current } => {
                Self::TooLargeResourceVersion { requested, current }
            }
            other => Self::Storage(other),
        }
    }

    /// The `Status` of the response (`storage/errors`, `storage/etcd3/errors.go`).
    pub fn status(&self) -> Status {
        match self {
            Self::Expired { next: None, .. } => Status::expired(self.to_string()),
            Self::Expired { next, .. } => {
                let mut status = Status::expired(
                    "The provided continue parameter is too old to display a consistent list \
                     result. You can start a new list without the continue parameter, or use the \
                     continue token in this response to retrieve the remainder of the results. \
                     Continuing with the provided token results in an inconsistent list - objects \
                     that were created, modified, or deleted between the time the first chunk was \
                     returned and now may show up in the list.",
                );
                status.continue_token = next.as_deref().map(Into::into);
                status
            }
            Self::TooLargeResourceVersion { requested, current } => {
                Status::resource_version_too_large(*requested, *current)
            }
            Self::NotReady => Status::too_many_requests(self.to_string(), 1),
            Self::InvalidContinueToken(_) => Status::bad_request(self.to_string()),
            Self::Corrupt { .. } => Status::failure(500, "StoreReadError", self.to_string()),
            Self::Storage(storage::Error::Conversion(message)) => Status::failure(500, "", message),
            Self::Storage(storage::Error::Unavailable(message)) => {
                Status::unavailable(message.as_str())
            }
            Self::Storage(other) => Status::internal(other),
        }
    }
}
