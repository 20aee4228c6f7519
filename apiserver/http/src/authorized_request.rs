//! A request on a resource, as the filters pass it to the handlers.

use std::sync::Arc;

use machinery::UserInfo;
use tokio::time::Instant;

use crate::audit::RequestAudit;
use crate::request_body::ChargedRequestBody;
use crate::requestinfo::{QueryParams, RequestedResource};

/// An authorized request on a resource.
pub(crate) struct AuthorizedResourceRequest {
    pub(crate) user: Arc<UserInfo>,
    pub(crate) verb: &'static str,
    pub(crate) resource: RequestedResource,
    pub(crate) query: QueryParams,
    pub(crate) deadline: Option<Instant>,
    pub(crate) audit: Option<Arc<RequestAudit>>,
    /// The body of a write.
    pub(crate) body: Option<ChargedRequestBody>,
}
