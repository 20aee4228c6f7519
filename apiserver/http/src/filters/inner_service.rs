//! The service that a filter wraps.

use http::Response;
use hyper::service::Service;

use crate::response_body::ServerResponseBody;

pub(crate) type ServerResponse = Response<ServerResponseBody>;

/// A service that responds to requests of type `R`, or fails with `E`.
pub(crate) trait InnerService<R, E>:
    Service<R, Response = ServerResponse, Error = E>
{
}

impl<R, E, S: Service<R, Response = ServerResponse, Error = E>> InnerService<R, E> for S {}
