//! The bindings of policies: which policy is in force where, and with which parameters.

use machinery::{LabelSelector, Object};
use serde_json::Value;

use super::match_resources::MatchResources;
use crate::unstructured::{get, has, text, texts};

/// A ValidatingAdmissionPolicyBinding or MutatingAdmissionPolicyBinding.
#[derive(Debug)]
pub(super) struct PolicyBinding {
    pub(super) name: String,
    pub(super) policy_name: String,
    pub(super) param_ref: Option<ParamRef>,
    pub(super) match_resources: Option<MatchResources>,
    pub(super) validation_actions: Vec<String>,
}

/// Which parameters a binding passes to its policy.
#[derive(Debug)]
pub(super) struct ParamRef {
    pub(super) namespace: String,
    pub(super) selection: ParamSelection,
    /// Whether the request is denied when there are none.
    pub(super) required: bool,
}

#[derive(Debug)]
pub(super) enum ParamSelection {
    Name(String),
    Selector(LabelSelector),
}

impl PolicyBinding {
    pub(super) fn parse(binding: &Object) -> Result<Self, String> {
        let value = binding.value().map_err(|e| e.to_string())?;
        let spec = get(&value, "/spec");
        let match_resources = match get(spec, "/matchResources") {
            Value::Null => None,
            written => Some(MatchResources::parse(written)?),
        };
        let param_ref = match get(spec, "/paramRef") {
            Value::Null => None,
            written => Some(ParamRef::parse(written)?),
        };
        Ok(Self {
            name: binding.name().to_owned(),
            policy_name: text(spec, "/policyName").to_owned(),
            param_ref,
            match_resources,
            validation_actions: texts(spec, "/validationActions")
                .map(str::to_owned)
                .collect(),
        })
    }
}

impl ParamRef {
    fn parse(written: &Value) -> Result<Self, String> {
        let selection = match text(written, "/name") {
            "" if !has(written, "/selector") => {
                return Err("one of name or selector must be provided".into());
            }
            "" => ParamSelection::Selector(LabelSelector::from_value(get(written, "/selector"))?),
            name => ParamSelection::Name(name.to_owned()),
        };
        Ok(Self {
            namespace: text(written, "/namespace").to_owned(),
            selection,
            required: text(written, "/parameterNotFoundAction") == "Deny",
        })
    }
}
