//! Native rules of CronJob: the template's status lists the active jobs of all clusters.

use jiff::Timestamp;
use machinery::Object;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::native::{CollectedStatus, Error, NativeRules, parse_collected_status};

pub(crate) struct NativeCronJobRules;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CronJobStatus {
    active: Vec<Value>,
    // RFC 3339 in UTC: comparing the texts compares the times.
    last_schedule_time: Option<String>,
    last_successful_time: Option<String>,
}

impl NativeRules for NativeCronJobRules {
    /// The active jobs of all clusters, and the latest times.
    fn aggregate_status(
        &self,
        _template: &Object,
        items: &[CollectedStatus<'_>],
        _now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        let mut all = CronJobStatus::default();
        for item in items {
            let Some(reported) = item.status else {
                continue;
            };
            let one: CronJobStatus = parse_collected_status(item, reported)?;
            all.active.extend(one.active);
            all.last_schedule_time = all.last_schedule_time.max(one.last_schedule_time);
            all.last_successful_time = all.last_successful_time.max(one.last_successful_time);
        }
        let mut out = Map::new();
        if !all.active.is_empty() {
            out.insert("active".into(), all.active.into());
        }
        for (field, time) in [
            ("lastScheduleTime", all.last_schedule_time),
            ("lastSuccessfulTime", all.last_successful_time),
        ] {
            if let Some(time) = time {
                out.insert(field.into(), time.into());
            }
        }
        Ok(Some(Value::Object(out)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::fixtures::aggregate_statuses;
    use serde_json::json;

    // proves: NAT-cron
    #[test]
    fn running_jobs_are_listed_and_times_are_the_latest() {
        let one = |job: &str, scheduled: &str| json!({"active": [{"kind": "Job", "name": job}], "lastScheduleTime": scheduled});
        let cron = json!({"metadata": {"name": "c"}});
        let done = json!({"lastSuccessfulTime": "2026-01-01T00:00:00Z"});
        let items = [one("j1", "2026-01-01T00:00:00Z"), Value::Null, done];
        assert_eq!(
            aggregate_statuses(&NativeCronJobRules, &cron, &items),
            Some(
                json!({"active": [{"kind": "Job", "name": "j1"}], "lastScheduleTime": "2026-01-01T00:00:00Z",
                "lastSuccessfulTime": "2026-01-01T00:00:00Z"})
            )
        );
        let items = [
            one("j1", "2026-01-01T00:00:00Z"),
            one("j2", "2026-01-02T00:00:00Z"),
        ];
        let both = aggregate_statuses(&NativeCronJobRules, &cron, &items).unwrap();
        assert_eq!(both["lastScheduleTime"], "2026-01-02T00:00:00Z");
        assert_eq!(both["active"].as_array().unwrap().len(), 2);
        assert_eq!(
            aggregate_statuses(&NativeCronJobRules, &cron, &[]),
            Some(json!({}))
        );
    }
}
