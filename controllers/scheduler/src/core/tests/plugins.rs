//! Tests of the plugins: every one runs, and is reported, where its name declares it.

use super::super::*;
use super::decision_table::parse_cases;

/// The plugins that a decision reports, in order, with their extension points.
fn reported_plugins(row: &str) -> Vec<(SchedulerPluginName, ExtensionPoint)> {
    let case = parse_cases(row).remove(0);
    let request = ScheduleRequest {
        spec: &case.binding_case.binding.spec,
        placement: &case.placement,
        term: None,
        fresh: case.binding_case.fresh,
    };
    let mut reported = Vec::new();
    make_decision(
        &request,
        &SchedulingContext::from_snapshot(&case.snapshot),
        &mut |completion| {
            if let StepOrPluginCompletion::Plugin(plugin, point, _) = completion {
                reported.push((plugin, point));
            }
        },
    );
    reported
}

// proves: MET-schedule-plugins
#[test]
fn each_plugin_is_reported_at_its_extension_points() {
    // The group of the binding enables the plugins of a feature gate.
    let reported = reported_plugins("a=10 b=10 | | n:1 together:a | a:1");
    for plugin in SchedulerPluginName::ALL {
        let of_plugin = reported.iter().filter(|(name, _)| *name == plugin);
        let points: Vec<ExtensionPoint> = of_plugin.map(|(_, point)| *point).collect();
        assert_eq!(points, plugin.extension_points(), "{}", plugin.name());
    }
}

// proves: SCH-plugins
#[test]
fn a_disabled_plugin_is_not_reported() {
    for plugin in SchedulerPluginName::ALL {
        let name = plugin.name();
        let row = format!("a=10 b=10 | | n:1 together:a off:{name} | a:1");
        let mut reported = reported_plugins(&row).into_iter();
        assert!(reported.all(|(other, _)| other != plugin), "{name}");
    }
}
