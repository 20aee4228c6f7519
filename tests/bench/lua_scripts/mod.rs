//! Measures Lua scripts of customizations: the time of a call, and the effect of hostile
//! scripts on other calls.
//!
//! calls from as many tasks as keep every thread busy ──► interpreter ──► its threads
//!
//! Everything is measured in this process: on one of its processors, then on all.

mod calls;
mod fixtures;
mod isolation;
mod own_status;

use std::sync::Arc;
use std::thread;

use machinery::Object;

use self::calls::{
    AGGREGATION_SCRIPT, MEMBERS, measure_aggregation, measure_core_scaling, measure_parsed_calls,
    measure_replica_calls,
};
use self::fixtures::widget_object;
use self::isolation::{
    GROWTH_CALLS, HOSTILE_SCRIPT_DEADLINE, HOSTILE_SCRIPTS, LOOPING_OBJECTS, UNSCRIPTED_OBJECTS,
    measure_delay_beside_looping, measure_hostile_scripts, measure_memory_growth,
};
use self::own_status::{pin_to_processors, read_own_status};
use crate::measurement::{MeasurementLimit, MeasurementRecorder};

pub(crate) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let tree = Arc::new(widget_object());
    let object = Object::from_value(&tree)?;
    let allowed = read_own_status("Cpus_allowed_list:")?;
    let one = allowed.split([',', '-']).next().unwrap_or(&allowed);
    let cores = thread::available_parallelism()?.get();
    let size = format!("an object of {} bytes", object.encoded_len());

    // Alternating rounds, so that the machine's speed affects both alike.
    let (mut alone, mut together) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..3 {
        pin_to_processors(one)?;
        alone = alone.min(measure_replica_calls(&object)?);
        pin_to_processors(&allowed)?;
        together = together.min(measure_replica_calls(&object)?);
    }
    pin_to_processors(one)?;
    let of_tree = measure_parsed_calls(&tree)?;
    let summed = measure_aggregation(&[])?;
    let by_script = measure_aggregation(&[("statusAggregation", AGGREGATION_SCRIPT)])?;
    pin_to_processors(&allowed)?;
    let setup = format!("GetReplicas of {size}, from bytes, on one core");
    report.record(
        "scripts-call",
        alone,
        "us",
        MeasurementLimit::Below(30.0),
        &setup,
    );
    let setup = format!("ReviseReplica of {size}, from a tree, on one core");
    report.record(
        "scripts-call-parsed",
        of_tree,
        "us",
        MeasurementLimit::Below(15.0),
        &setup,
    );
    let setup = format!("a Deployment in {MEMBERS} members, native rule, on one core");
    report.record(
        "scripts-aggregate-native",
        summed,
        "us",
        MeasurementLimit::Below(200.0),
        &setup,
    );
    let setup = format!("a Deployment in {MEMBERS} members, script, on one core");
    report.record(
        "scripts-aggregate",
        by_script,
        "us",
        MeasurementLimit::None,
        &setup,
    );

    if cores > 1 {
        let possible = measure_core_scaling(&object, cores)?;
        let setup = format!(
            "GetReplicas of {size}, calls on {cores} cores to those on one; threads that share nothing reach {possible:.2}"
        );
        let limit = MeasurementLimit::AtLeast(0.85 * possible);
        report.record("scripts-scaling", alone / together, "times", limit, &setup);
        report.record(
            "scripts-calls",
            1e6 / together,
            "calls/s",
            MeasurementLimit::None,
            &setup,
        );
    }

    let [over, late, next] =
        measure_hostile_scripts(&object)?.map(|worst| worst.as_secs_f64() * 1e3);
    let setup = format!(
        "{} hostile scripts, each on all of {cores} threads, deadline {HOSTILE_SCRIPT_DEADLINE:?}",
        HOSTILE_SCRIPTS.len()
    );
    report.record(
        "scripts-hostile-over",
        over,
        "ms past the deadline",
        MeasurementLimit::Below(100.0),
        &setup,
    );
    report.record(
        "scripts-hostile-delay",
        late,
        "ms",
        MeasurementLimit::Below(10.0),
        &setup,
    );
    report.record(
        "scripts-hostile-next",
        next,
        "ms",
        MeasurementLimit::Below(100.0),
        &setup,
    );

    let mut beside = measure_delay_beside_looping(&object)?;
    let setup = format!(
        "{UNSCRIPTED_OBJECTS} objects without scripts, one every 5 ms, behind {LOOPING_OBJECTS} objects of one looping script with a deadline of 1 s in the same queue of 8 workers"
    );
    let worst = beside.iter().copied().fold(0.0, f64::max);
    let name = "scripts-looping-delay";
    report.record_percentiles(name, &mut beside, "ms", MeasurementLimit::None, &setup);
    let limit = MeasurementLimit::Below(50.0);
    report.record("scripts-looping-delay-worst", worst, "ms", limit, &setup);

    let setup = format!("{GROWTH_CALLS} calls after {}", GROWTH_CALLS / 10);
    report.record(
        "scripts-growth",
        measure_memory_growth()?,
        "MiB",
        MeasurementLimit::Below(8.0),
        &setup,
    );
    Ok(())
}
