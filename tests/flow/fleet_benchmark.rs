//! The benchmark of a large fleet, in its smallest sizes: it works, and loses nothing when the server is
//! killed.

use fleet_benchmark::{FleetArguments, FleetSize, run};

use crate::flow::fleet::BINARY;

#[test]
fn the_fleet_benchmark_runs() {
    check("smoke", true);
}

#[test]
fn the_benchmark_of_rollouts_runs() {
    check("rollout-smoke", false);
}

fn check(size: &str, kill: bool) {
    let arguments = FleetArguments {
        flags: Vec::new(),
        size: FleetSize::find(size).unwrap(),
        server: BINARY.into(),
        kill,
    };
    let report = run(&arguments).unwrap();
    assert_eq!(report.violations, Vec::<String>::new());
}
