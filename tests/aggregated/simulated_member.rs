//! Runs simulated member clusters, which have metrics of their pods, beside members of real
//! components.

use harness::{ApiServerClient, ServerProcess};

use crate::aggregated::real_clusters::{BINARY, path_string};

pub(crate) struct SimulatedMember {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) server: ApiServerClient,
    _process: ServerProcess,
}

impl SimulatedMember {
    pub(crate) async fn start(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let start = move || ServerProcess::start_member(BINARY, &path, 1, &[]);
        let process = tokio::task::spawn_blocking(start).await.unwrap();
        Self {
            server: ApiServerClient::connect(name, &dir.path().join("kubeconfig")),
            _process: process,
            dir,
        }
    }

    pub(crate) fn kubeconfig(&self) -> String {
        path_string(&self.dir.path().join("kubeconfig"))
    }
}
