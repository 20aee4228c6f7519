//! The API as its users meet it: a served plane in a process of its own, asked by
//! two kubectls that are twelve releases apart, and by bare HTTP where kubectl
//! cannot reach.
//!
//! Commands are tables: a line as one would type it, the exit code, and what must
//! be printed. Tests share one plane and live in namespaces of their own.

#![expect(clippy::unwrap_used, reason = "a test ends where its machine fails it")]

/// A running `flotilla serve`.
mod plane;

/// The two kubectls, and tables of commands.
mod kubectl;

/// HTTP/1.1 by hand over TLS.
mod wire;

/// kubectl: objects come into being, with generators and from files.
mod create;

/// kubectl: objects change, by apply, patch, edit and the short commands.
mod change;

/// kubectl: objects are shown, followed and explained.
mod show;

/// kubectl: objects go, and what belongs to them.
mod remove;

/// kubectl: kinds that users bring, and kinds of the federation.
mod kinds;

/// kubectl at a simulated cluster: workloads that become ready.
mod workloads;

/// HTTP: what users may reach through the rights of the server.
mod access;

/// HTTP: error bodies of every sort.
mod errors;

/// HTTP: admission of Karmada's kinds.
mod admission;

/// HTTP: negotiation, discovery, documents, protobuf.
mod negotiation;

/// HTTP: lists in pages and watches in frames.
mod streams;

/// The process: what it logs.
mod logs;

/// The process: what keeps it from starting, and what it says then.
mod process;
