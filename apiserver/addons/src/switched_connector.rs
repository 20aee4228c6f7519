//! A connector whose requests are refused while its addon is disabled.

use std::sync::Arc;

use async_trait::async_trait;
use flotilla_http::{ServerResponseBody, SubresourceConnectRequest, SubresourceConnector};
use http::Response;
use karmada_api::addons::Addon;
use machinery::Status;
use serde_json::Value;

use super::switches::AddonSwitches;

pub struct SwitchedConnector {
    pub addon: Addon,
    pub switches: AddonSwitches,
    pub connector: Arc<dyn SubresourceConnector>,
}

#[async_trait]
impl SubresourceConnector for SwitchedConnector {
    fn connect_options(&self, connection: &SubresourceConnectRequest) -> Option<Value> {
        self.connector.connect_options(connection)
    }

    fn is_long_running(&self) -> bool {
        self.connector.is_long_running()
    }

    async fn connect(
        &self,
        connection: SubresourceConnectRequest,
    ) -> Result<Response<ServerResponseBody>, Status> {
        self.switches.check_enabled(self.addon)?;
        self.connector.connect(connection).await
    }
}
