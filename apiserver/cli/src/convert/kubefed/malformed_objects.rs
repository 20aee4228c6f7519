//! Collects the errors of malformed objects, so that all are reported at once.

use anyhow::bail;

#[derive(Default)]
pub(super) struct MalformedObjects(Vec<anyhow::Error>);

impl MalformedObjects {
    /// The value of a result; an error is kept.
    pub(super) fn check<T>(&mut self, result: anyhow::Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.0.push(error);
                None
            }
        }
    }

    /// Fails with all errors that were kept.
    pub(super) fn into_result(mut self) -> anyhow::Result<()> {
        match self.0.len() {
            0 => Ok(()),
            1 => Err(self.0.swap_remove(0)),
            count => {
                let lines: Vec<String> = self.0.iter().map(|e| format!("  {e:#}")).collect();
                bail!("{count} objects are malformed:\n{}", lines.join("\n"))
            }
        }
    }
}
