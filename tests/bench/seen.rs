//! Watches members and reports when objects arrive in them.

use std::collections::HashSet;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Deserialize;

use crate::process::Process;
use crate::wire::{Connection, Handle};

const PATIENCE: Duration = Duration::from_secs(60);

/// An object that a member's watch delivered.
pub(crate) struct Seen {
    pub(crate) member: usize,
    pub(crate) at: Instant,
    pub(crate) name: String,
    /// The image of the first container, if there is one.
    pub(crate) image: String,
    /// The index of the watched path.
    path: usize,
}

/// The decoded part of an event; decoding all of it would take CPU from the servers.
#[derive(Deserialize)]
struct Event {
    object: Object,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    template: Template,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Template {
    spec: Pod,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pod {
    containers: Vec<Container>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Container {
    image: String,
}

/// Watches of members.
pub(crate) struct Watches {
    pub(crate) seen: Receiver<Seen>,
    handles: Vec<Handle>,
    threads: Vec<JoinHandle<()>>,
}

impl Watches {
    /// Opens a watch for each path in each member.
    pub(crate) fn open(members: &[Process], paths: &[&str]) -> anyhow::Result<Self> {
        let (sender, seen) = mpsc::channel();
        let (mut handles, mut threads) = (Vec::new(), Vec::new());
        for (member, process) in members.iter().enumerate() {
            let to = process.access()?;
            for (index, path) in paths.iter().enumerate() {
                let mut connection = Connection::open(&to)?;
                let list = connection.get(path)?.json()?;
                let revision = list["metadata"]["resourceVersion"]
                    .as_str()
                    .context("no revision")?;
                let path = format!("{path}?watch=true&resourceVersion={revision}");
                handles.push(connection.handle()?);
                let sender = sender.clone();
                threads.push(std::thread::spawn(move || {
                    // The call returns an error when the socket is shut down.
                    let _ = connection.lines(&path, |line| {
                        let at = Instant::now();
                        let Ok(Event { object }) = serde_json::from_slice(line) else {
                            return;
                        };
                        let containers = object.spec.template.spec.containers;
                        let image = containers.into_iter().next().unwrap_or_default().image;
                        let _ = sender.send(Seen {
                            member,
                            at,
                            name: object.metadata.name,
                            image,
                            path: index,
                        });
                    });
                }));
            }
        }
        Ok(Self {
            seen,
            handles,
            threads,
        })
    }

    /// Waits for `count` objects with a name prefix, over all members and paths; returns the
    /// time of the last one.
    pub(crate) fn all(&self, prefix: &str, count: usize) -> anyhow::Result<Instant> {
        let mut there: HashSet<(usize, usize, String)> = HashSet::new();
        let mut last = Instant::now();
        while there.len() < count {
            let seen = self
                .seen
                .recv_timeout(PATIENCE)
                .with_context(|| format!("{} of {count} objects in members", there.len()))?;
            let Seen {
                member, path, name, ..
            } = seen;
            if name.starts_with(prefix) && there.insert((member, path, name)) {
                last = seen.at;
            }
        }
        Ok(last)
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.handles.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
