//! Writes the errors of the inner filters and of the handlers as `Status` responses,
//! 404 as 503 while the server does not know every resource.

use std::convert::Infallible;

use machinery::Status;

use super::inner_service::ServerResponse;
use super::map_result::{MakeMapResult, MapResult, MapResultLayer};
use super::request::ResolvedRequest;
use crate::health::HealthProbe;
use crate::negotiation::ResponseFormat;
use crate::response_writers;

pub(super) type ErrorResponsesLayer = MapResultLayer<MakeErrorToResponseMapper>;

#[derive(Clone)]
pub(super) struct MakeErrorToResponseMapper {
    /// Fails while the server does not know every resource; `None`: it always does.
    resources_installed: Option<HealthProbe>,
}

impl ErrorResponsesLayer {
    pub(super) fn new(resources_installed: &Option<HealthProbe>) -> Self {
        Self(MakeErrorToResponseMapper {
            resources_installed: resources_installed.clone(),
        })
    }
}

impl<B> MakeMapResult<ResolvedRequest<B>> for MakeErrorToResponseMapper {
    type MapResult = ErrorToResponseMapper;

    fn make_map_result(&self, request: &ResolvedRequest<B>) -> ErrorToResponseMapper {
        ErrorToResponseMapper {
            format: request.format,
            resources_installed: self.resources_installed.clone(),
        }
    }
}

pub(super) struct ErrorToResponseMapper {
    format: ResponseFormat,
    resources_installed: Option<HealthProbe>,
}

impl MapResult<Result<ServerResponse, Status>> for ErrorToResponseMapper {
    type Error = Infallible;

    fn map_result(
        self,
        result: Result<ServerResponse, Status>,
    ) -> Result<ServerResponse, Infallible> {
        Ok(result.unwrap_or_else(|status| {
            response_writers::write_status(&self.mask_not_found(status), self.format)
        }))
    }
}

impl ErrorToResponseMapper {
    /// Turns 404 into 503 while the server is not fully synced: the object may exist,
    /// and a garbage collector that gets 404 for an owner deletes its dependents
    /// (contract D5.4).
    fn mask_not_found(&self, status: Status) -> Status {
        if status.code != 404 {
            return status;
        }
        match self.resources_installed.as_ref().map(|check| check()) {
            Some(Err(e)) => {
                tracing::debug!(why = %e, "returning 503 instead of 404");
                Status::unavailable("the request has been made before all resources have been installed, please try again").with_retry_after(1)
            }
            _ => status,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::testing::{fail, resolved_request};
    use hyper::service::Service;
    use std::sync::Arc;
    use tower::Layer;

    #[tokio::test]
    async fn not_found_is_503_until_all_resources_are_installed() {
        let installed: HealthProbe = Arc::new(|| Ok(()));
        let not_installed: HealthProbe = Arc::new(|| Err("2 left".into()));
        for (resources_installed, error, code) in [
            (None, Status::path_not_found(), 404),
            (Some(installed), Status::path_not_found(), 404),
            (
                Some(Arc::clone(&not_installed)),
                Status::path_not_found(),
                503,
            ),
            (Some(not_installed), Status::unauthorized(), 401),
        ] {
            let layer = ErrorResponsesLayer::new(&resources_installed);
            let service = layer.layer(fail(error));
            let Ok(response) = service.call(resolved_request("GET", "/x")).await;
            assert_eq!(response.status(), code);
            assert_eq!(response.headers().contains_key("retry-after"), code == 503);
        }
    }
}
