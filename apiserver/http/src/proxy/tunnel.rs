//! What remains of a request after 101: two streams of bytes, joined.

use std::io;

use hyper_util::rt::TokioIo;
use metrics::Counter;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{Ends, Held};

/// As the frames of SPDY in exec and port-forward have it.
const CHUNK: usize = 32 << 10;

/// Carries bytes both ways until both sides have ended, or one has broken. A side
/// that ends closes the other's way only: what is still said to it arrives.
pub(super) async fn run(ends: Ends, held: Held) {
    let (client, member) = match tokio::try_join!(ends.client, ends.member) {
        Ok(both) => both,
        Err(error) => {
            tracing::debug!(%error, "an upgrade broke off");
            return;
        }
    };
    let (from_client, to_client) = tokio::io::split(TokioIo::new(client));
    let (from_member, to_member) = tokio::io::split(TokioIo::new(member));
    let both = tokio::try_join!(
        carry(from_client, to_member, &held.figures.sent),
        carry(from_member, to_client, &held.figures.received),
    );
    if let Err(error) = both {
        tracing::debug!(cluster = held.place.cluster(), %error, "a tunnel broke");
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
