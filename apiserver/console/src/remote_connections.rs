//! The connections of users to a control plane: of the user of the command, or of the users of tokens.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use async_trait::async_trait;
use bytes::Bytes;
use client::TaskGroup;
use client::remote::{Http2FlowControl, RemoteApi, RestConfig};
use flotilla_cli::doctor::{self, report::DoctorReport};
use futures_util::stream::{self, StreamExt};
use http::uri::Scheme;

use crate::console::{ControlPlaneExaminer, ResponseStream, StreamOpener, UserConnections};
use crate::users::{BearerToken, UserConnector};

/// How long the server and each member may take to answer a question of the page Health.
const EXAMINATION_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a response may send nothing until that is passed on.
const QUIET_INTERVAL: Duration = Duration::from_secs(15);

struct RemoteExaminer(Arc<RemoteApi>);

#[async_trait]
impl ControlPlaneExaminer for RemoteExaminer {
    async fn examine(&self) -> DoctorReport {
        doctor::examine(&self.0, EXAMINATION_TIMEOUT).await
    }
}

struct RemoteStreams(RemoteApi);

#[async_trait]
impl StreamOpener for RemoteStreams {
    async fn open(&self, path: &str) -> client::Result<ResponseStream> {
        let response = self.0.get_raw_stream(path).await?;
        let pieces = stream::unfold(response, |mut response| async move {
            let piece = tokio::time::timeout(QUIET_INTERVAL, response.next()).await;
            let piece = piece.unwrap_or(Ok(Some(Bytes::new())));
            Some((piece.transpose()?, response))
        });
        Ok(pieces.boxed())
    }
}

/// Connects with the credentials of a configuration.
pub(crate) fn connect(config: RestConfig, tasks: &TaskGroup) -> anyhow::Result<UserConnections> {
    // A browser that does not read its log holds up nothing else.
    let for_streams = RestConfig {
        flow_control: Http2FlowControl::INDEPENDENT_READERS,
        ..config.clone()
    };
    let streams = RemoteStreams(RemoteApi::new(for_streams, tasks)?);
    let api = Arc::new(RemoteApi::new(config, tasks)?);
    Ok(UserConnections {
        api: Arc::clone(&api) as Arc<dyn client::Api>,
        streams: Arc::new(streams),
        examiner: Arc::new(RemoteExaminer(api)),
    })
}

/// The control plane to which users bring their tokens.
pub(crate) struct TokenConnector {
    pub(crate) server: RestConfig,
    /// Read at each login, since authorities are rotated; `None`: the system's.
    certificate_authority: Option<PathBuf>,
}

impl TokenConnector {
    /// Fails if a token would be sent without TLS, or the authority cannot be read.
    pub(crate) async fn new(
        server: &str,
        certificate_authority: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let server = RestConfig::new(server)?;
        ensure!(
            server.server.scheme() == Some(&Scheme::HTTPS),
            "--server must be https://, for the tokens of users are sent there"
        );
        let connector = Self {
            server,
            certificate_authority,
        };
        connector.config().await?;
        Ok(connector)
    }

    async fn config(&self) -> anyhow::Result<RestConfig> {
        let mut config = self.server.clone();
        if let Some(file) = &self.certificate_authority {
            let authority = tokio::fs::read(file).await;
            let context = || format!("cannot read --certificate-authority {}", file.display());
            config.ca = Some(authority.with_context(context)?);
        }
        Ok(config)
    }
}

#[async_trait]
impl UserConnector for TokenConnector {
    async fn connect(
        &self,
        token: &BearerToken,
        tasks: &TaskGroup,
    ) -> anyhow::Result<UserConnections> {
        let mut config = self.config().await?;
        config.auth.token = Some(token.secret().clone());
        connect(config, tasks)
    }
}
