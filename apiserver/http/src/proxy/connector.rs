//! Serves the requests of the subresource: those of one cluster and those of all.

use async_trait::async_trait;
use http::Response;
use machinery::Status;

use super::{ClusterProxy, aggregate};
use crate::response_body::ServerResponseBody;
use crate::subresources::{SubresourceConnectRequest, SubresourceConnector};

#[async_trait]
impl SubresourceConnector for ClusterProxy {
    async fn connect(
        &self,
        connection: SubresourceConnectRequest,
    ) -> Result<Response<ServerResponseBody>, Status> {
        if connection.name == aggregate::ALL_CLUSTERS {
            return Box::pin(self.forward_to_all(connection)).await;
        }
        Box::pin(self.forward(connection)).await
    }
}
