//! The record of a takeover: a ConfigMap beside Flotilla's other objects in the host. The command
//! writes its phase, the leader of the replicas its report.

use std::fmt;

use machinery::{Gvr, Object};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The name of the ConfigMap.
pub const RECORD_CONFIG_MAP: &str = "flotilla-takeover";
/// The key of the data that has the report.
const REPORT_KEY: &str = "report";

/// How far a takeover is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TakeoverPhase {
    /// Flotilla validates the objects of the host and stores none.
    #[default]
    Check,
    /// Flotilla stores the objects of the host.
    Move,
    /// The APIServices lead to Flotilla; its controllers stand still.
    Switch,
    /// Flotilla has taken over: its controllers run.
    Serve,
    /// Flotilla still serves; its controllers and its writes of APIServices have stopped.
    GiveBack,
    /// Karmada has its groups again.
    Returned,
}

impl TakeoverPhase {
    const ALL: [Self; 6] = [
        Self::Check,
        Self::Move,
        Self::Switch,
        Self::Serve,
        Self::GiveBack,
        Self::Returned,
    ];

    /// Whether Flotilla writes its APIServices.
    pub fn registers(self) -> bool {
        matches!(self, Self::Switch | Self::Serve)
    }

    /// Whether Flotilla's controllers run.
    pub fn runs_controllers(self) -> bool {
        self == Self::Serve
    }

    /// Whether Flotilla reads the objects of the host.
    pub fn imports(self) -> bool {
        matches!(self, Self::Check | Self::Move)
    }
}

impl fmt::Display for TakeoverPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A resource and how many objects were moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedResource {
    pub group: String,
    pub version: String,
    pub resource: String,
    pub kind: String,
    pub namespaced: bool,
    pub objects: usize,
}

impl MovedResource {
    pub fn gvr(&self) -> Gvr {
        let (group, version) = (self.group.clone(), self.version.clone());
        Gvr::new(group, version, self.resource.clone())
    }
}

/// The last deed of the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeoverReport {
    pub phase: TakeoverPhase,
    pub pass: u64,
    /// The resources that the host serves, after a pass.
    #[serde(default)]
    pub resources: Vec<MovedResource>,
    /// The reasons why a pass has failed; the first ones of many.
    #[serde(default)]
    pub errors: Vec<String>,
    /// The objects that Flotilla's controllers have written to members since they were started.
    #[serde(default)]
    pub member_writes: u64,
}

/// The record of a takeover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakeoverRecord {
    /// The id of the takeover, which its backup bears too.
    pub id: String,
    /// The run of the command that acts; the writes of earlier ones are refused.
    pub run: String,
    pub phase: TakeoverPhase,
    /// Increased for each pass over the host's objects.
    pub pass: u64,
    /// Whether fields that Flotilla does not know are dropped.
    pub allow_changes: bool,
    /// Whether objects were moved before: then Flotilla's objects are those of the host.
    pub has_moved: bool,
    pub report: Option<TakeoverReport>,
}

impl TakeoverRecord {
    /// Reads the ConfigMap. Fails, with the key, for a value that no command writes: nothing may
    /// run then.
    pub fn from_config_map(map: &Object) -> Result<Self, String> {
        let value = map.value().map_err(|e| e.to_string())?;
        let data = &value["data"];
        let text = |key: &str| data[key].as_str().unwrap_or_default();
        let phase = TakeoverPhase::ALL.into_iter();
        let mut phase = phase.filter(|phase| phase.to_string() == text("phase"));
        let invalid = |key: &str| {
            format!(
                "ConfigMap {RECORD_CONFIG_MAP}: data.{key} is invalid: {:?}",
                text(key)
            )
        };
        let report = match text(REPORT_KEY) {
            "" => None,
            report => Some(machinery::json::from_str(report).map_err(|_| invalid(REPORT_KEY))?),
        };
        Ok(Self {
            id: text("id").to_owned(),
            run: text("run").to_owned(),
            phase: phase.next().ok_or_else(|| invalid("phase"))?,
            pass: text("pass").parse().map_err(|_| invalid("pass"))?,
            allow_changes: text("allowChanges") == "true",
            has_moved: text("hasMoved") == "true",
            report,
        })
    }

    /// The data that the command writes, as a merge patch.
    pub fn command_data(&self) -> Value {
        json!({"data": {"id": self.id, "run": self.run, "phase": self.phase.to_string(),
            "pass": self.pass.to_string(), "allowChanges": self.allow_changes.to_string(),
            "hasMoved": self.has_moved.to_string()}})
    }

    /// Whether the leader has reported what the command has written last.
    pub fn is_reported(&self) -> bool {
        self.report
            .as_ref()
            .is_some_and(|report| (report.phase, report.pass) == (self.phase, self.pass))
    }
}

impl TakeoverReport {
    /// The data that the leader writes, as a merge patch.
    pub(super) fn data(&self) -> serde_json::Result<Value> {
        Ok(json!({"data": {REPORT_KEY: serde_json::to_string(self)?}}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: TKO-record
    #[test]
    fn a_record_reads_what_the_command_and_the_leader_write() {
        let report = TakeoverReport {
            phase: TakeoverPhase::Move,
            pass: 2,
            ..TakeoverReport::default()
        };
        let record = TakeoverRecord {
            id: "a".into(),
            run: "b".into(),
            phase: TakeoverPhase::Move,
            pass: 2,
            allow_changes: true,
            has_moved: true,
            report: Some(report.clone()),
        };
        let mut map = record.command_data();
        map["metadata"] = json!({"name": RECORD_CONFIG_MAP});
        map["data"][REPORT_KEY] = report.data().unwrap()["data"][REPORT_KEY].clone();
        let read = |map: &Value| TakeoverRecord::from_config_map(&Object::from_value(map).unwrap());
        assert_eq!(read(&map), Ok(record.clone()));
        assert!(record.is_reported());
        for key in ["phase", "pass", REPORT_KEY] {
            let mut map = map.clone();
            map["data"][key] = "x".into();
            let error = read(&map).unwrap_err();
            assert!(error.contains(&format!("data.{key}")), "{error}");
        }
    }

    #[test]
    fn controllers_run_only_where_the_apiservices_lead_to_flotilla() {
        for phase in TakeoverPhase::ALL {
            assert!(!phase.runs_controllers() || phase.registers(), "{phase}");
            assert!(!(phase.imports() && phase.registers()), "{phase}");
        }
    }
}
