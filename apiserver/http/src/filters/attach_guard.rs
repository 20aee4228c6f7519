//! Holds a permit or a counter of a request until the body of its response ends.

use machinery::Status;

use super::inner_service::ServerResponse;
use super::map_result::MapResult;

/// Attaches a guard to the response's body; drops it at once when the whole body is in
/// memory.
pub(super) struct BodyGuardAttacher<G>(pub(super) Option<G>);

impl<G: Send + 'static> MapResult<Result<ServerResponse, Status>> for BodyGuardAttacher<G> {
    type Error = Status;

    fn map_result(self, result: Result<ServerResponse, Status>) -> Result<ServerResponse, Status> {
        let mut response = result?;
        if let Some(guard) = self.0
            && !response.body().is_full()
        {
            response.body_mut().attach_guard(guard);
        }
        Ok(response)
    }
}
