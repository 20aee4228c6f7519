//! Copies bytes between client and member after 101 Switching Protocols.

use std::io;

use flotilla_metrics::Counter;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::request_guard::ProxyRequestGuard;

/// The usual size of SPDY frames in exec and port-forward.
const TUNNEL_CHUNK_BYTES: usize = 32 << 10;

/// The upgraded connections of client and member.
pub(super) struct TunnelUpgrades {
    pub(super) client: OnUpgrade,
    pub(super) member: OnUpgrade,
}

/// Copies bytes both ways until both sides end or one fails. A side that ends closes
/// only its own direction: data still sent to it arrives.
pub(super) async fn run_tunnel(ends: TunnelUpgrades, guard: ProxyRequestGuard) {
    let (client, member) = match tokio::try_join!(ends.client, ends.member) {
        Ok(result) => result,
        Err(error) => {
            tracing::debug!(%error, "upgrade failed");
            return;
        }
    };
    let (from_client, to_client) = tokio::io::split(TokioIo::new(client));
    let (from_member, to_member) = tokio::io::split(TokioIo::new(member));
    let result = tokio::try_join!(
        copy_and_count(from_client, to_member, &guard.metrics.sent_bytes),
        copy_and_count(from_member, to_client, &guard.metrics.received_bytes),
    );
    if let Err(error) = result {
        tracing::debug!(cluster = guard.permit.cluster(), %error, "tunnel failed");
    }
}

async fn copy_and_count(
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
    counter: &Counter,
) -> io::Result<()> {
    let mut chunk = vec![0; TUNNEL_CHUNK_BYTES];
    loop {
        let length = reader.read(&mut chunk).await?;
        if length == 0 {
            return writer.shutdown().await;
        }
        writer.write_all(&chunk[..length]).await?;
        writer.flush().await?;
        counter.inc_by(length as u64);
    }
}
