//! What integration tests stand on: processes of the binary under test, and the
//! real components beside it.
//!
//! [`tools`] (where programs are) ──► [`Daemon`] ──► [`Etcd`] ──► [`Cluster`]
//!                                                └── [`Relay`] between any two
//!
//! Only tests depend on this crate. Nothing here is installed, everything listens
//! on loopback, and nothing outlives the test that started it. What goes wrong here
//! panics with what was seen, as an assertion would.
//!
//! Entry points: [`tools::tools`], [`Process`], [`Etcd`], [`Cluster`], [`Relay`],
//! [`Peer`], [`Disk`], and to ask whatever was started: [`Server`], [`kubectl::with_each`],
//! [`wire::Ask`], and [`Target`] for what is streamed.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its machine fails it"
)]

pub mod cluster;
pub mod daemon;
pub mod disk;
pub mod etcd;
pub mod etcdctl;
pub mod karmada_definitions;
pub mod kubectl;
pub mod objects;
pub mod peer;
pub mod port;
pub mod process;
pub mod relay;
pub mod server;
pub mod target;
pub mod tools;
pub mod up;
pub mod wire;

pub use cluster::Cluster;
pub use daemon::Daemon;
pub use disk::{Disk, Fsync};
pub use etcd::Etcd;
pub use harness_macros::slow;
pub use peer::Peer;
pub use process::Process;
pub use relay::Relay;
pub use server::Server;
pub use target::Target;
pub use tools::tools;
pub use up::Up;

/// Between two looks at something, on threads that wait for nothing else.
#[expect(
    clippy::disallowed_methods,
    reason = "there is no runtime whose worker could be blocked"
)]
fn pause(time: std::time::Duration) {
    std::thread::sleep(time);
}
