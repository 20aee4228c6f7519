//! Measures a control plane with a large fleet; `fleet-benchmark` says what is measured.

use std::io::Write as _;
use std::process::ExitCode;

use fleet_benchmark::{FleetArguments, run};
use mimalloc::MiMalloc;

/// The allocator of the binary, so that load and members cost as little as they can.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let server = env!("CARGO_BIN_EXE_flotilla");
    let arguments = match FleetArguments::parse(std::env::args().skip(1), server) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            let _ = write!(std::io::stdout(), "{}", FleetArguments::help());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            let _ = write!(std::io::stderr(), "{error}\n\n{}", FleetArguments::help());
            return ExitCode::from(2);
        }
    };
    let violations = match run(&arguments) {
        Ok(report) => report.violations,
        Err(error) => vec![format!("{error:#}")],
    };
    for violation in &violations {
        let _ = writeln!(std::io::stderr(), "{violation}");
    }
    ExitCode::from(u8::from(!violations.is_empty()))
}
