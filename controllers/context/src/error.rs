//! Defines why the reconciliation of a template, a policy or a binding fails.

use std::collections::HashSet;

use flotilla_runtime::ReconcileError;

/// The text appears unchanged in events and logs; the failed key is retried.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An API call failed.
    #[error(transparent)]
    Api(#[from] client::Error),
    /// A precondition does not hold; another controller or a user has to fix it.
    #[error("{0}")]
    Blocked(String),
    /// A member did not answer; the text says what for.
    #[error("{0}")]
    Unanswered(String),
    /// Another writer changed a Work right after it was written.
    #[error("work {0} was changed by another writer right after it was written")]
    ConcurrentUpdate(String),
    /// A Work of this name belongs to another binding, or was not made for a binding.
    #[error(
        "work {0} exists and does not carry the permanent id of this binding, so it is left alone"
    )]
    ForeignWork(String),
    /// Several operations failed.
    #[error("[{}]", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Aggregate(Vec<Error>),
}

impl Error {
    pub fn blocked(why: impl ToString) -> Self {
        Self::Blocked(why.to_string())
    }

    /// Merges several errors into one and drops errors with the same text.
    pub fn aggregate(mut failed: Vec<Self>) -> Result<(), Self> {
        let mut texts = HashSet::new();
        failed.retain(|error| texts.insert(error.to_string()));
        match failed.len() {
            0 => Ok(()),
            1 => Err(failed.swap_remove(0)),
            _ => Err(Self::Aggregate(failed)),
        }
    }

    /// Whether the object was out of date; its newer version is about to arrive by the watch.
    pub fn is_conflict(&self) -> bool {
        match self {
            Self::Api(error) => error.is_conflict() || error.is_already_exists(),
            Self::Blocked(_) | Self::Unanswered(_) | Self::ForeignWork(_) => false,
            Self::ConcurrentUpdate(_) => true,
            Self::Aggregate(all) => all.iter().all(Self::is_conflict),
        }
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Api(error) if error.is_not_found())
    }

    pub fn is_namespace_terminating(&self) -> bool {
        matches!(self, Self::Api(error) if error.is_namespace_terminating())
    }
}

impl ReconcileError for Error {
    fn is_unanswered(&self) -> bool {
        match self {
            Self::Api(error) => error.is_unanswered(),
            Self::Unanswered(_) => true,
            Self::Blocked(_) | Self::ConcurrentUpdate(_) | Self::ForeignWork(_) => false,
            Self::Aggregate(all) => all.iter().any(Self::is_unanswered),
        }
    }
}

impl From<machinery::object::MalformedObject> for Error {
    fn from(error: machinery::object::MalformedObject) -> Self {
        Self::Api(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_member_without_an_answer_is_asked_again_soon() {
        let silent = || Error::Unanswered("connection reset".to_owned());
        let rejection = || Error::blocked("refused");
        for (failed, expected) in [
            (vec![silent()], true),
            (vec![rejection()], false),
            (vec![rejection(), silent()], true),
        ] {
            let error = Error::aggregate(failed).unwrap_err();
            assert_eq!(error.is_unanswered(), expected, "{error}");
        }
    }

    // proves: BND-errors-together
    #[test]
    fn aggregated_errors_are_deduplicated() {
        for (texts, expected) in [
            (&[][..], None),
            (&["a"], Some("a")),
            (&["a", "a"], Some("a")),
            (&["a", "b", "a"], Some("[a, b]")),
        ] {
            let failed = texts.iter().map(Error::blocked).collect();
            let text = Error::aggregate(failed)
                .err()
                .map(|error| error.to_string());
            assert_eq!(text.as_deref(), expected, "{texts:?}");
        }
    }
}
