//! Defaults of FlowSchemas and PriorityLevelConfigurations (Kubernetes
//! `pkg/apis/flowcontrol/v1/defaults.go`).

use super::{JsonObjectMap, set_default, set_default_number, with_object, with_object_or_create};

pub(super) fn set_defaults_flow_schema(schema: &mut JsonObjectMap) {
    with_object_or_create(schema, "spec", |spec| {
        set_default_number(spec, "matchingPrecedence", 1000);
    });
}

pub(super) fn set_defaults_priority_level_configuration(level: &mut JsonObjectMap) {
    with_object(level, "spec", |spec| {
        with_object(spec, "exempt", |exempt| {
            set_default(exempt, "nominalConcurrencyShares", 0);
            set_default(exempt, "lendablePercent", 0);
        });
        with_object(spec, "limited", |limited| {
            // Zero is a choice here: the level gets no seats of its own.
            set_default(limited, "nominalConcurrencyShares", 30);
            set_default(limited, "lendablePercent", 0);
            with_object(limited, "limitResponse", |response| {
                with_object(response, "queuing", |queuing| {
                    set_default_number(queuing, "queues", 64);
                    set_default_number(queuing, "handSize", 8);
                    set_default_number(queuing, "queueLengthLimit", 50);
                });
            });
        });
    });
}
