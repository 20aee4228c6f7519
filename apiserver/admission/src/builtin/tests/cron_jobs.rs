//! Tests of CronJobs.

use serde_json::{Value, json};

use super::workloads::workload;
use super::{check_reasons, with};

const CRON_JOB: (&str, &str) = ("batch/v1", "CronJob");

#[test]
fn cron_jobs() {
    let job = with(&workload("Never")["spec"], &json!({"selector": null}));
    let base = json!({"metadata": {"name": "c"}, "spec": {"schedule": "@daily", "jobTemplate": {"spec": job}}});
    let spec = |fields: Value| json!({ "spec": fields });
    let zone = |zone: &str| spec(json!({ "timeZone": zone }));
    let template = |fields: Value| spec(json!({"jobTemplate": {"spec": fields}}));
    let path = "spec.jobTemplate.spec";
    check_reasons(
        CRON_JOB,
        &base,
        None,
        &[
            (json!({}), &[]),
            (spec(json!({"schedule": ""})), &["Required spec.schedule"]),
            (
                spec(json!({"schedule": "* * *"})),
                &["Invalid spec.schedule"],
            ),
            (spec(json!({"schedule": "@every 1h30m"})), &[]),
            (
                spec(json!({"schedule": "TZ=UTC * * * * *"})),
                &["Invalid spec.schedule"],
            ),
            (json!({"metadata": {"name": "c".repeat(52)}}), &[]),
            (
                json!({"metadata": {"name": "c".repeat(53)}}),
                &["Invalid metadata.name"],
            ),
            (zone("Europe/Paris"), &[]),
            (zone("UTC"), &[]),
            (zone(""), &["Invalid spec.timeZone"]),
            (zone("local"), &["Invalid spec.timeZone"]),
            (zone("europe/paris"), &["Invalid spec.timeZone"]),
            (zone("../Paris"), &["Invalid spec.timeZone"]),
            (zone("Europe//Paris"), &["Invalid spec.timeZone"]),
            (
                template(json!({"selector": {}, "manualSelector": true})),
                &[
                    &format!("Invalid {path}.selector"),
                    &format!("NotSupported {path}.manualSelector"),
                ],
            ),
            (
                template(json!({"parallelism": -1, "template": {"spec": {"restartPolicy": null}}})),
                &[
                    &format!("Invalid {path}.parallelism"),
                    &format!("Required {path}.template.spec.restartPolicy"),
                ],
            ),
            (
                spec(
                    json!({"startingDeadlineSeconds": -1, "successfulJobsHistoryLimit": -1,
                            "failedJobsHistoryLimit": -1}),
                ),
                &[
                    "Invalid spec.startingDeadlineSeconds",
                    "Invalid spec.successfulJobsHistoryLimit",
                    "Invalid spec.failedJobsHistoryLimit",
                ],
            ),
        ],
    );
    let old = with(
        &base,
        &json!({"metadata": {"name": "c".repeat(60)}, "spec": {"schedule": "TZ=UTC * * * * *", "timeZone": null}}),
    );
    check_reasons(
        CRON_JOB,
        &old,
        Some(&old),
        &[
            (spec(json!({"suspend": true})), &[]),
            (zone("UTC"), &["Invalid spec.schedule"]),
        ],
    );
    let stored = with(&base, &zone("Mars/Base"));
    check_reasons(
        CRON_JOB,
        &stored,
        Some(&stored),
        &[(spec(json!({"suspend": true})), &[])],
    );
}
