//! Watches members and reports when objects arrive in them.

use std::collections::HashSet;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Deserialize;

use crate::http_connection::{BenchConnection, ConnectionCloser};
use crate::measured_process::MeasuredProcess;

const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);

/// An object that a member's watch delivered.
pub(crate) struct MemberObservation {
    pub(crate) member: usize,
    pub(crate) at: Instant,
    pub(crate) name: String,
    /// The image of the first container, if there is one.
    pub(crate) image: String,
    /// The index of the watched path.
    path_index: usize,
}

/// The decoded part of an event; decoding all of it would take CPU from the servers.
#[derive(Deserialize)]
struct BenchWatchEventFields {
    object: BenchWatchedObjectFields,
}

#[derive(Deserialize)]
struct BenchWatchedObjectFields {
    metadata: BenchWatchedMetadata,
    #[serde(default)]
    spec: BenchWatchedSpec,
}

#[derive(Deserialize)]
struct BenchWatchedMetadata {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BenchWatchedSpec {
    template: BenchWatchedTemplate,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BenchWatchedTemplate {
    spec: BenchWatchedPodSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BenchWatchedPodSpec {
    containers: Vec<BenchWatchedContainer>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BenchWatchedContainer {
    image: String,
}

/// Watches of members.
pub(crate) struct MemberWatches {
    pub(crate) observed: Receiver<MemberObservation>,
    closers: Vec<ConnectionCloser>,
    threads: Vec<JoinHandle<()>>,
}

impl MemberWatches {
    /// Opens a watch for each path in each member.
    pub(crate) fn open(members: &[MeasuredProcess], paths: &[&str]) -> anyhow::Result<Self> {
        let (sender, observed) = mpsc::channel();
        let (mut handles, mut threads) = (Vec::new(), Vec::new());
        for (member, process) in members.iter().enumerate() {
            let kubeconfig = process.read_kubeconfig()?;
            for (index, path) in paths.iter().enumerate() {
                let mut connection = BenchConnection::open(&kubeconfig)?;
                let list = connection.get(path)?.json()?;
                let revision = list["metadata"]["resourceVersion"]
                    .as_str()
                    .context("no revision")?;
                let path = format!("{path}?watch=true&resourceVersion={revision}");
                handles.push(connection.closer()?);
                let sender = sender.clone();
                threads.push(std::thread::spawn(move || {
                    // The call returns an error when the socket is shut down.
                    let _ = connection.get_lines(&path, |line| {
                        let at = Instant::now();
                        let Ok(BenchWatchEventFields { object }) =
                            machinery::json::from_slice(line)
                        else {
                            return;
                        };
                        let containers = object.spec.template.spec.containers;
                        let image = containers.into_iter().next().unwrap_or_default().image;
                        let _ = sender.send(MemberObservation {
                            member,
                            at,
                            name: object.metadata.name,
                            image,
                            path_index: index,
                        });
                    });
                }));
            }
        }
        Ok(Self {
            observed,
            closers: handles,
            threads,
        })
    }

    /// Waits for `count` objects with a name prefix, over all members and paths; returns the
    /// time of the last one.
    pub(crate) fn wait_for_all(&self, prefix: &str, count: usize) -> anyhow::Result<Instant> {
        let mut there: HashSet<(usize, usize, String)> = HashSet::new();
        let mut last = Instant::now();
        while there.len() < count {
            let observed = self
                .observed
                .recv_timeout(ARRIVAL_TIMEOUT)
                .with_context(|| format!("{} of {count} objects in members", there.len()))?;
            let MemberObservation {
                member,
                path_index: path,
                name,
                ..
            } = observed;
            if name.starts_with(prefix) && there.insert((member, path, name)) {
                last = observed.at;
            }
        }
        Ok(last)
    }
}

impl Drop for MemberWatches {
    fn drop(&mut self) {
        self.closers.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
