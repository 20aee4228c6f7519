//! Generates the audit events of a request from its authentication to the end of its
//! response (kube-apiserver's `WithAudit`).

use std::sync::Arc;

use machinery::Status;

use super::inner_service::ServerResponse;
use super::map_result::{MakeMapResult, MapResult};
use super::request::AuthenticatedRequest;
use crate::audit::RequestAudit;

#[derive(Clone)]
pub(super) struct MakeAuditResponse;

impl<B> MakeMapResult<AuthenticatedRequest<B>> for MakeAuditResponse {
    type MapResult = AuditResponse;

    fn make_map_result(&self, request: &AuthenticatedRequest<B>) -> AuditResponse {
        let AuthenticatedRequest { user, request, .. } = request;
        let completion = request.audit.as_ref().map(|audit| {
            audit.start(user, &request.info);
            AuditCompletionGuard(Arc::clone(audit))
        });
        AuditResponse {
            completion,
            long_running: request.long_running,
        }
    }
}

/// Completes the events of a request when its response, or the request itself, ends.
struct AuditCompletionGuard(Arc<RequestAudit>);

impl Drop for AuditCompletionGuard {
    fn drop(&mut self) {
        self.0.complete();
    }
}

pub(super) struct AuditResponse {
    completion: Option<AuditCompletionGuard>,
    long_running: bool,
}

impl MapResult<Result<ServerResponse, Status>> for AuditResponse {
    type Error = Status;

    fn map_result(self, result: Result<ServerResponse, Status>) -> Result<ServerResponse, Status> {
        let Some(completion) = self.completion else {
            return result;
        };
        let audit = &completion.0;
        match result {
            Ok(mut response) => {
                audit.respond(response.status().as_u16(), self.long_running);
                if !response.body().is_full() {
                    response.body_mut().attach_guard(completion);
                }
                Ok(response)
            }
            Err(status) => {
                audit.log_response_status(&status);
                audit.respond(status.code, self.long_running);
                Err(status)
            }
        }
    }
}
