//! Serves the requests of the `proxy` subresource, to one cluster or to all clusters.

use async_trait::async_trait;
use http::Response;
use machinery::Status;
use serde_json::{Value, json};

use super::{ClusterProxy, aggregate};
use crate::response_body::ServerResponseBody;
use crate::subresources::{SubresourceConnectRequest, SubresourceConnector};

#[async_trait]
impl SubresourceConnector for ClusterProxy {
    fn connect_options(&self, connection: &SubresourceConnectRequest) -> Option<Value> {
        Some(
            json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "ClusterProxyOptions",
                    "path": connection.subpath}),
        )
    }

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
