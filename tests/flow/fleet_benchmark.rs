//! The benchmark of a large fleet, in its smallest size: it works, and loses nothing when the server is
//! killed.

use fleet_benchmark::{FleetArguments, FleetSize, run};

use crate::flow::fleet::BINARY;

#[test]
fn the_fleet_benchmark_runs() {
    let arguments = FleetArguments {
        size: FleetSize::find("smoke").unwrap(),
        server: BINARY.into(),
        kill: true,
    };
    let report = run(&arguments).unwrap();
    assert_eq!(report.violations, Vec::<String>::new());
}
