//! Decides a change of an object anew when somebody else has written the object meanwhile.

/// How often a change is decided before its conflict is the outcome.
const MAX_ATTEMPTS: usize = 10;

/// Repeats an attempt, which reads an object and writes it over the version that it read, until
/// nobody else has written it in between.
pub async fn retry_on_conflict<T, F>(attempt: impl Fn() -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    for _ in 1..MAX_ATTEMPTS {
        match attempt().await {
            Err(error) if is_conflict(&error) => {}
            outcome => return outcome,
        }
    }
    attempt().await
}

fn is_conflict(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<client::Error>()
        .is_some_and(client::Error::is_conflict)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use anyhow::{Context, anyhow};
    use machinery::Gvr;
    use machinery::status::Status;

    fn conflict() -> anyhow::Error {
        let deployments = Gvr::from_static("apps", "v1", "deployments");
        client::Error::from(Status::conflict(&deployments, "web", "it changed")).into()
    }

    // proves: CLI-conflicts
    #[tokio::test]
    async fn only_a_conflict_is_decided_anew() {
        for (conflicts, expected_attempts) in [(0, 1), (1, 2), (9, 10), (10, 10)] {
            let attempts = Cell::new(0);
            let outcome = retry_on_conflict(|| async {
                attempts.set(attempts.get() + 1);
                match attempts.get() <= conflicts {
                    true => Err(conflict()).context("the write"),
                    false => Ok(()),
                }
            });
            let outcome = outcome.await;
            assert_eq!(outcome.is_ok(), conflicts < MAX_ATTEMPTS, "{outcome:?}");
            assert_eq!(attempts.get(), expected_attempts);
        }
        let attempts = Cell::new(0);
        let outcome: anyhow::Result<()> = retry_on_conflict(|| async {
            attempts.set(attempts.get() + 1);
            Err(anyhow!("no connection"))
        })
        .await;
        assert_eq!((outcome.is_err(), attempts.get()), (true, 1));
    }
}
