//! `flotilla serve`: the production form.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::engine::Choice;
use crate::plane::{Plane, Setup};
use crate::signals::Signals;
use crate::{control, member, output};

/// Run the API server and its controllers.
#[derive(Args)]
#[command(
    after_help = "Example:\n  flotilla serve --data-dir /var/lib/flotilla --listen 0.0.0.0:6443"
)]
pub(crate) struct Arguments {
    /// Where the store, keys and certificates are kept; a kubeconfig is written there.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Where to serve.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6443")]
    listen: SocketAddr,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let Some(plane) = signals.unless(start(&arguments)).await? else {
        return Ok(());
    };
    output::line(member::ready(&plane));
    let ended = tokio::select! {
        () = signals.wait() => Ok(()),
        error = plane.failed() => Err(error),
    };
    plane.stop().await;
    ended
}

async fn start(arguments: &Arguments) -> anyhow::Result<Plane> {
    let setup = Setup {
        dir: &arguments.data_dir,
        listen: arguments.listen,
        engine: Choice::Embedded { sync: true },
        keep_port: false,
        federation: true,
    };
    let plane = Plane::start(setup).await?;
    control::housekeeping(&plane).await?;
    control::federation(&plane).await?;
    plane.informers.wait_synced().await;
    Ok(plane)
}
