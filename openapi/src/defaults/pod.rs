//! Defaults of Pods and pod templates (Kubernetes `pkg/apis/core/v1/defaults.go`).

use serde_json::Value;

use super::{
    JsonObjectMap, for_each_object, is_true, set_default, set_default_number, storage,
    string_field, with_object, with_object_or_create,
};

/// Octal 0644, the mode of files in projected volumes.
const PROJECTED_FILE_MODE: i64 = 420;

/// Defaults of a Pod, including those that are not set in pod templates.
pub(super) fn set_defaults_pod(object: &mut JsonObjectMap) {
    with_object_or_create(object, "spec", |fields| {
        set_defaults_pod_spec(fields);
        set_default(fields, "enableServiceLinks", true);
        let host = is_true(fields, "hostNetwork");
        for list in ["initContainers", "containers"] {
            for_each_object(fields, list, |container| {
                set_default_requests_from_limits(container);
                if host {
                    for_each_object(container, "ports", set_defaults_host_port);
                }
            });
        }
    });
    with_object_or_create(object, "status", |status| {
        set_default(status, "phase", "Pending")
    });
}

/// Defaults of a pod template, in any kind.
pub(super) fn set_defaults_pod_template(template: &mut JsonObjectMap) {
    with_object(template, "spec", set_defaults_pod_spec);
}

fn set_defaults_pod_spec(spec: &mut JsonObjectMap) {
    set_default(spec, "dnsPolicy", "ClusterFirst");
    set_default(spec, "restartPolicy", "Always");
    set_default(spec, "terminationGracePeriodSeconds", 30);
    set_default(spec, "securityContext", JsonObjectMap::new());
    set_default(spec, "schedulerName", "default-scheduler");
    sync_service_account_names(spec);
    for_each_object(spec, "volumes", set_defaults_volume);
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for_each_object(spec, list, set_defaults_container);
    }
}

/// Sets the deprecated field `serviceAccount` and its successor to the same name.
fn sync_service_account_names(spec: &mut JsonObjectMap) {
    let name = match string_field(spec, "serviceAccountName") {
        "" => string_field(spec, "serviceAccount"),
        name => name,
    }
    .to_owned();
    if !name.is_empty() {
        spec.insert("serviceAccountName".into(), name.clone().into());
        spec.insert("serviceAccount".into(), name.into());
    }
}

fn set_defaults_container(container: &mut JsonObjectMap) {
    let policy = default_pull_policy(string_field(container, "image"));
    set_default(container, "imagePullPolicy", policy);
    set_default(container, "terminationMessagePath", "/dev/termination-log");
    set_default(container, "terminationMessagePolicy", "File");
    for_each_object(container, "ports", |port| {
        set_default(port, "protocol", "TCP")
    });
    for_each_object(container, "env", |variable| {
        with_object(variable, "valueFrom", |from| {
            with_object(from, "fieldRef", set_defaults_field_ref);
        });
    });
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        with_object(container, name, set_defaults_probe);
    }
    with_object(container, "lifecycle", |lifecycle| {
        for handler in ["postStart", "preStop"] {
            with_object(lifecycle, handler, |handler| {
                with_object(handler, "httpGet", set_defaults_http_get)
            });
        }
    });
}

fn set_defaults_probe(probe: &mut JsonObjectMap) {
    set_default_number(probe, "timeoutSeconds", 1);
    set_default_number(probe, "periodSeconds", 10);
    set_default_number(probe, "successThreshold", 1);
    set_default_number(probe, "failureThreshold", 3);
    with_object(probe, "httpGet", set_defaults_http_get);
    with_object(probe, "grpc", |grpc| set_default(grpc, "service", ""));
}

fn set_defaults_http_get(action: &mut JsonObjectMap) {
    set_default(action, "path", "/");
    set_default(action, "scheme", "HTTP");
}

fn set_defaults_field_ref(reference: &mut JsonObjectMap) {
    set_default(reference, "apiVersion", "v1");
}

fn set_defaults_host_port(port: &mut JsonObjectMap) {
    if let Some(number) = port.get("containerPort").and_then(Value::as_i64) {
        set_default_number(port, "hostPort", number);
    }
}

fn set_default_requests_from_limits(container: &mut JsonObjectMap) {
    with_object(container, "resources", |resources| {
        let Some(Value::Object(limits)) = resources.get("limits").cloned() else {
            return;
        };
        if limits.is_empty() {
            return;
        }
        with_object_or_create(resources, "requests", |requests| {
            for (name, quantity) in limits {
                requests.entry(name).or_insert(quantity);
            }
        });
    });
}

/// `Always` for the tag "latest", explicit or implied; a digest implies no tag.
fn default_pull_policy(image: &str) -> &'static str {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let last = name.rsplit('/').next().unwrap_or(name);
    match (last.split_once(':'), digest) {
        (Some((_, "latest")), _) | (None, None) => "Always",
        _ => "IfNotPresent",
    }
}

fn set_defaults_volume(volume: &mut JsonObjectMap) {
    if volume
        .iter()
        .all(|(name, value)| name == "name" || value.is_null())
    {
        volume.insert("emptyDir".into(), JsonObjectMap::new().into());
    }
    for name in ["secret", "configMap"] {
        with_object(volume, name, |source| {
            set_default(source, "defaultMode", PROJECTED_FILE_MODE)
        });
    }
    with_object(volume, "downwardAPI", |source| {
        set_default(source, "defaultMode", PROJECTED_FILE_MODE);
        for_each_object(source, "items", set_defaults_downward_api_item);
    });
    with_object(volume, "projected", set_defaults_projected_volume);
    with_object(volume, "hostPath", |source| set_default(source, "type", ""));
    with_object(volume, "image", |source| {
        let policy = default_pull_policy(string_field(source, "reference"));
        set_default(source, "pullPolicy", policy);
    });
    with_object(volume, "ephemeral", |source| {
        with_object(source, "volumeClaimTemplate", |template| {
            with_object(
                template,
                "spec",
                storage::set_defaults_persistent_volume_claim_spec,
            );
        });
    });
}

fn set_defaults_projected_volume(source: &mut JsonObjectMap) {
    set_default(source, "defaultMode", PROJECTED_FILE_MODE);
    for_each_object(source, "sources", |source| {
        with_object(source, "serviceAccountToken", |token| {
            set_default(token, "expirationSeconds", 3600);
        });
        with_object(source, "downwardAPI", |downward| {
            for_each_object(downward, "items", set_defaults_downward_api_item);
        });
    });
}

fn set_defaults_downward_api_item(item: &mut JsonObjectMap) {
    with_object(item, "fieldRef", set_defaults_field_ref);
}

#[cfg(test)]
mod tests {
    use super::default_pull_policy;

    #[test]
    fn the_tag_determines_the_pull_policy() {
        for (image, expected) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.27", "IfNotPresent"),
            ("localhost:5000/team/app", "Always"),
            ("localhost:5000/team/app:v1", "IfNotPresent"),
            ("nginx@sha256:0123", "IfNotPresent"),
            ("nginx:latest@sha256:0123", "Always"),
            ("", "Always"),
        ] {
            assert_eq!(default_pull_policy(image), expected, "{image}");
        }
    }
}
