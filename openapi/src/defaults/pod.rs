//! Defaults of Pods and pod templates (Kubernetes `pkg/apis/core/v1/defaults.go`).

use serde_json::Value;

use super::{Fields, each, fill, fill_number, is_true, storage, text, within, within_new};

/// Octal 0644, the mode of files in projected volumes.
const FILE_MODE: i64 = 420;

/// Defaults of a Pod, including those that are not set in pod templates.
pub(super) fn pod(object: &mut Fields) {
    within_new(object, "spec", |fields| {
        spec(fields);
        fill(fields, "enableServiceLinks", true);
        let host = is_true(fields, "hostNetwork");
        for list in ["initContainers", "containers"] {
            each(fields, list, |container| {
                requests_from_limits(container);
                if host {
                    each(container, "ports", host_port);
                }
            });
        }
    });
    within_new(object, "status", |status| fill(status, "phase", "Pending"));
}

/// Defaults of a pod template, in any kind.
pub(super) fn template(template: &mut Fields) {
    within(template, "spec", spec);
}

fn spec(spec: &mut Fields) {
    fill(spec, "dnsPolicy", "ClusterFirst");
    fill(spec, "restartPolicy", "Always");
    fill(spec, "terminationGracePeriodSeconds", 30);
    fill(spec, "securityContext", Fields::new());
    fill(spec, "schedulerName", "default-scheduler");
    both_account_names(spec);
    each(spec, "volumes", volume);
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        each(spec, list, container);
    }
}

/// Sets the deprecated field `serviceAccount` and its successor to the same name.
fn both_account_names(spec: &mut Fields) {
    let name = match text(spec, "serviceAccountName") {
        "" => text(spec, "serviceAccount"),
        name => name,
    }
    .to_owned();
    if !name.is_empty() {
        spec.insert("serviceAccountName".into(), name.clone().into());
        spec.insert("serviceAccount".into(), name.into());
    }
}

fn container(container: &mut Fields) {
    let policy = pull_policy(text(container, "image"));
    fill(container, "imagePullPolicy", policy);
    fill(container, "terminationMessagePath", "/dev/termination-log");
    fill(container, "terminationMessagePolicy", "File");
    each(container, "ports", |port| fill(port, "protocol", "TCP"));
    each(container, "env", |variable| {
        within(variable, "valueFrom", |from| {
            within(from, "fieldRef", field_reference);
        });
    });
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        within(container, name, probe);
    }
    within(container, "lifecycle", |lifecycle| {
        for hook in ["postStart", "preStop"] {
            within(lifecycle, hook, |hook| within(hook, "httpGet", http_get));
        }
    });
}

fn probe(probe: &mut Fields) {
    fill_number(probe, "timeoutSeconds", 1);
    fill_number(probe, "periodSeconds", 10);
    fill_number(probe, "successThreshold", 1);
    fill_number(probe, "failureThreshold", 3);
    within(probe, "httpGet", http_get);
    within(probe, "grpc", |grpc| fill(grpc, "service", ""));
}

fn http_get(action: &mut Fields) {
    fill(action, "path", "/");
    fill(action, "scheme", "HTTP");
}

fn field_reference(reference: &mut Fields) {
    fill(reference, "apiVersion", "v1");
}

fn host_port(port: &mut Fields) {
    if let Some(number) = port.get("containerPort").and_then(Value::as_i64) {
        fill_number(port, "hostPort", number);
    }
}

fn requests_from_limits(container: &mut Fields) {
    within(container, "resources", |resources| {
        let Some(Value::Object(limits)) = resources.get("limits").cloned() else {
            return;
        };
        if limits.is_empty() {
            return;
        }
        within_new(resources, "requests", |requests| {
            for (name, quantity) in limits {
                requests.entry(name).or_insert(quantity);
            }
        });
    });
}

/// `Always` for the tag "latest", explicit or implied; a digest implies no tag.
fn pull_policy(image: &str) -> &'static str {
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

fn volume(volume: &mut Fields) {
    if volume
        .iter()
        .all(|(name, value)| name == "name" || value.is_null())
    {
        volume.insert("emptyDir".into(), Fields::new().into());
    }
    for name in ["secret", "configMap"] {
        within(volume, name, |source| {
            fill(source, "defaultMode", FILE_MODE)
        });
    }
    within(volume, "downwardAPI", |source| {
        fill(source, "defaultMode", FILE_MODE);
        each(source, "items", downward_item);
    });
    within(volume, "projected", projected);
    within(volume, "hostPath", |source| fill(source, "type", ""));
    within(volume, "image", |source| {
        let policy = pull_policy(text(source, "reference"));
        fill(source, "pullPolicy", policy);
    });
    within(volume, "ephemeral", |source| {
        within(source, "volumeClaimTemplate", |template| {
            within(template, "spec", storage::claim_spec);
        });
    });
}

fn projected(source: &mut Fields) {
    fill(source, "defaultMode", FILE_MODE);
    each(source, "sources", |source| {
        within(source, "serviceAccountToken", |token| {
            fill(token, "expirationSeconds", 3600);
        });
        within(source, "downwardAPI", |downward| {
            each(downward, "items", downward_item);
        });
    });
}

fn downward_item(item: &mut Fields) {
    within(item, "fieldRef", field_reference);
}

#[cfg(test)]
mod tests {
    use super::pull_policy;

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
            assert_eq!(pull_policy(image), expected, "{image}");
        }
    }
}
