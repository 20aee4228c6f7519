//! Takes the user of a request that a proxy passes on to this server itself: it was authenticated
//! as the request to the proxy.

use std::sync::Arc;

use machinery::{Status, UserInfo};
use tokio::time::Instant;

use super::async_check::{AsyncCheck, AsyncCheckLayer};
use super::request::{AuthenticatedRequest, ResolvedRequest};

/// The extension of a request that was authenticated before.
#[derive(Clone)]
pub(crate) struct AssumedUser {
    pub(crate) user: Arc<UserInfo>,
    /// Deadline of the request to the proxy.
    pub(crate) deadline: Option<Instant>,
}

pub(super) type AssumedUserLayer = AsyncCheckLayer<AssumedUserCheck>;

pub(super) struct AssumedUserCheck;

impl<B: Send> AsyncCheck<ResolvedRequest<B>> for AssumedUserCheck {
    type Checked = AuthenticatedRequest<B>;

    async fn check(
        &self,
        mut request: ResolvedRequest<B>,
    ) -> Result<AuthenticatedRequest<B>, Status> {
        let assumed = request.http.extensions_mut().remove::<AssumedUser>();
        let AssumedUser { user, deadline } =
            assumed.ok_or_else(|| Status::internal("the request has no user"))?;
        Ok(AuthenticatedRequest {
            user,
            deadline,
            body: None,
            request,
        })
    }
}
