//! Defaults of admission webhooks (Kubernetes `pkg/apis/admissionregistration/v1/defaults.go`).

use super::{JsonObjectMap, for_each_object, set_default, with_object};

const TIMEOUT_SECONDS: i64 = 10;
const HTTPS_PORT: i64 = 443;

pub(super) fn set_defaults_webhook_configuration(kind: &str, configuration: &mut JsonObjectMap) {
    for_each_object(configuration, "webhooks", |webhook| {
        set_default(webhook, "failurePolicy", "Fail");
        set_default(webhook, "matchPolicy", "Equivalent");
        set_default(webhook, "namespaceSelector", JsonObjectMap::new());
        set_default(webhook, "objectSelector", JsonObjectMap::new());
        set_default(webhook, "timeoutSeconds", TIMEOUT_SECONDS);
        if kind == "MutatingWebhookConfiguration" {
            set_default(webhook, "reinvocationPolicy", "Never");
        }
        for_each_object(webhook, "rules", |rule| set_default(rule, "scope", "*"));
        with_object(webhook, "clientConfig", |config| {
            with_object(config, "service", |service| {
                set_default(service, "port", HTTPS_PORT);
            });
        });
    });
}
