//! Runs `flotilla up`: a control plane with simulated members in one process.
//!
//! Data and kubeconfigs are in a directory that survives a kill of the process.

use std::path::Path;

use tempfile::TempDir;

use crate::{ApiServerClient, ServerProcess};

/// `flotilla up` with members `member1`, `member2` and so on, of three nodes each.
pub struct FlotillaUpProcess {
    process: Option<ServerProcess>,
    /// `host:port` of the control plane.
    address: String,
    dir: TempDir,
    program: String,
    arguments: Vec<String>,
    members: usize,
}

impl FlotillaUpProcess {
    /// Starts `program up` and returns when it is ready; `more` are additional arguments.
    pub fn start(program: &str, members: usize, more: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().display().to_string();
        let count = members.to_string();
        let own = [
            "up",
            "--listen",
            "127.0.0.1:0",
            "--nodes",
            "3",
            "--members",
            &count,
            "--dir",
            &path,
        ];
        let arguments = own.iter().chain(more).map(|a| (*a).to_owned()).collect();
        let mut up = Self {
            process: None,
            address: String::new(),
            program: program.to_owned(),
            arguments,
            dir,
            members,
        };
        up.restart();
        up
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts the process again on the same data.
    pub fn restart(&mut self) {
        self.kill();
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let log = self.dir.path().join("log");
        let (process, address) = ServerProcess::start(&self.program, &arguments, &log);
        self.process = Some(process);
        self.address = address;
    }

    /// `host:port` of the control plane.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The process; panics after [`Self::kill`].
    pub fn process_id(&self) -> u32 {
        self.process.as_ref().unwrap().child.id()
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A client of the control plane. Must be called where tokio runs.
    pub fn control_plane(&self) -> ApiServerClient {
        ApiServerClient::connect("control plane", &self.dir().join("kubeconfig"))
    }

    /// Clients of the members, in their order.
    pub fn members(&self) -> Vec<ApiServerClient> {
        let connect = |n| {
            let name = format!("member{n}");
            ApiServerClient::connect(&name, &self.dir().join(&name).join("kubeconfig"))
        };
        (1..=self.members).map(connect).collect()
    }
}
