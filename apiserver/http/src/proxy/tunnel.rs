//! Copies bytes between client and member after 101 Switching Protocols.

use std::io;

use hyper_util::rt::TokioIo;
use flotilla_metrics::Counter;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{Ends, Held};

/// The usual size of SPDY frames in exec and port-forward.
const CHUNK: usize = 32 << 10;

/// Copies bytes both ways until both sides end or one fails. A side that ends closes
/// only its own direction: data still sent to it arrives.
pub(super) async fn run(ends: Ends, guard: Held) {
    let (client, member) = match tokio::try_join!(ends.client, ends.member) {
        Ok(both) => both,
        Err(error) => {
            tracing::debug!(%error, "upgrade failed");
            return;
        }
    };
    let (from_client, to_client) = tokio::io::split(TokioIo::new(client));
    let (from_member, to_member) = tokio::io::split(TokioIo::new(member));
    let both = tokio::try_join!(
        carry(from_client, to_member, &guard.figures.sent),
        carry(from_member, to_client, &guard.figures.received),
    );
    if let Err(error) = both {
        tracing::debug!(cluster = guard.place.cluster(), %error, "tunnel failed");
    }
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    counter: &Counter,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let length = from.read(&mut chunk).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&chunk[..length]).await?;
        to.flush().await?;
        counter.inc_by(length as u64);
    }
}
