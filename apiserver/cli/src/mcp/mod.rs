//! The command `flotilla mcp`, which answers the questions of an assistant by the Model Context Protocol
//! over standard input and output.
//!
//! message ──rmcp──► [`server`] ──[`inputs`]──► [`read_tools`], [`write_tools`] ──► functions of the commands ──[`result_text`]──► message
//!
//! Invariants: only protocol messages are written to standard output; a tool has the rights of the
//! kubeconfig's user; a change is made only if this process has shown what it will do
//! ([`shown_plans`]); what clusters say is marked as data, bounded, and without Secrets' content
//! ([`redaction`]).

mod arguments;
mod inputs;
mod read_tools;
mod redaction;
mod result_text;
mod server;
mod shown_plans;
mod tools;
mod write_tools;

use std::fs::File;
use std::os::fd::AsFd;

use anyhow::Context;
use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use rmcp::transport::async_rw::AsyncRwTransport;

pub use arguments::McpArgs;
use server::FleetServer;

/// The longest message of the client.
const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// Serves one client until standard input ends.
pub async fn run(arguments: McpArgs) -> anyhow::Result<()> {
    let server = FleetServer::new(arguments)?;
    // A read of a pipe that waits cannot be canceled; these files read and write in threads that
    // the end of the process does not wait for.
    let input = duplicate(std::io::stdin())?;
    let output = duplicate(std::io::stdout())?;
    let transport =
        AsyncRwTransport::new_server(input, output).with_max_line_length(MAX_MESSAGE_BYTES);
    match server.serve(transport).await {
        Ok(service) => service.waiting().await.map(drop).context("serving"),
        // The client went away before it began.
        Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => Err(error).context("the client did not begin as the protocol says"),
    }
}

fn duplicate(stream: impl AsFd) -> anyhow::Result<tokio::fs::File> {
    let descriptor = stream.as_fd().try_clone_to_owned();
    let descriptor = descriptor.context("the standard streams")?;
    Ok(tokio::fs::File::from_std(File::from(descriptor)))
}
