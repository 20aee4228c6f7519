//! Validates when a Job fails or succeeds before all its pods do.

use std::collections::HashSet;

use machinery::FieldError;
use machinery::names::validate_qualified_name;
use serde_json::Value;

use super::numbers::validate_non_negative_at;
use crate::unstructured::{get, has, index_path, int, items, report_invalid, text};

const MAX_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;
const MAX_CONDITION_PATTERNS: usize = 20;
const MAX_INDEXES_BYTES: usize = 64 << 10;
const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const EXIT_CODE_OPERATORS: [&str; 2] = ["In", "NotIn"];
const CONDITION_STATUSES: [&str; 3] = ["False", "True", "Unknown"];

/// Validates `podFailurePolicy` of a job spec at `field`.
pub(super) fn validate_pod_failure_policy(field: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    let field = format!("{field}.podFailurePolicy.rules");
    let rules = items(spec, "/podFailurePolicy/rules");
    if rules.len() > MAX_RULES {
        errors.push(FieldError::too_many(&field, rules.len(), MAX_RULES));
    }
    let names: HashSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| items(spec, &format!("/template/spec/{list}")))
        .map(|container| text(container, "/name"))
        .collect();
    let has_index_limit = has(spec, "/backoffLimitPerIndex");
    for (i, rule) in rules.iter().enumerate() {
        let path = index_path(&field, i);
        validate_action(&path, text(rule, "/action"), has_index_limit, errors);
        let codes = get(rule, "/onExitCodes");
        let conditions = items(rule, "/onPodConditions");
        if !codes.is_null() {
            validate_exit_codes(&format!("{path}.onExitCodes"), codes, &names, errors);
        }
        validate_condition_patterns(&format!("{path}.onPodConditions"), conditions, errors);
        let detail = match (!codes.is_null(), !conditions.is_empty()) {
            (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        errors.push(FieldError::invalid_omitted(path, detail));
    }
}

fn valid_values(values: &[&str]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    format!("valid values: [{}]", quoted.join(" "))
}

/// Requires one of a few values.
fn validate_choice(field: String, value: &str, choices: &[&str], errors: &mut Vec<FieldError>) {
    if value.is_empty() {
        errors.push(FieldError::required(field, &valid_values(choices)));
    } else if !choices.contains(&value) {
        errors.push(FieldError::not_supported(field, &value.into(), choices));
    }
}

fn validate_action(field: &str, action: &str, has_index_limit: bool, errors: &mut Vec<FieldError>) {
    let field = format!("{field}.action");
    if action == "FailIndex" && !has_index_limit {
        let detail = "requires the backoffLimitPerIndex to be set";
        errors.push(FieldError::invalid(field, &action.into(), detail));
    } else {
        validate_choice(field, action, &ACTIONS, errors);
    }
}

fn validate_exit_codes(
    field: &str,
    codes: &Value,
    containers: &HashSet<&str>,
    errors: &mut Vec<FieldError>,
) {
    let operator = text(codes, "/operator");
    let path = format!("{field}.operator");
    validate_choice(path, operator, &EXIT_CODE_OPERATORS, errors);
    if let Some(name) = get(codes, "/containerName").as_str()
        && !containers.contains(name)
    {
        errors.push(FieldError::invalid(
            format!("{field}.containerName"),
            &name.into(),
            "must be one of the container or initContainer names in the pod template",
        ));
    }
    let field = format!("{field}.values");
    let values = items(codes, "/values");
    if values.is_empty() {
        let detail = "at least one value is required";
        errors.push(FieldError::invalid(&field, get(codes, "/values"), detail));
    } else if values.len() > MAX_EXIT_CODES {
        errors.push(FieldError::too_many(&field, values.len(), MAX_EXIT_CODES));
    }
    let mut visited = HashSet::new();
    for (i, value) in values.iter().enumerate() {
        let path = index_path(&field, i);
        if operator == "In" && *value == 0 {
            let detail = "must not be 0 for the In operator";
            errors.push(FieldError::invalid(&path, value, detail));
        }
        if !visited.insert(value) {
            errors.push(FieldError::duplicate(path, value));
        }
    }
    if !values.is_sorted_by_key(|value| value.as_i64().unwrap_or(0)) {
        let all = get(codes, "/values");
        errors.push(FieldError::invalid(field, all, "must be ordered"));
    }
}

fn validate_condition_patterns(field: &str, patterns: &[Value], errors: &mut Vec<FieldError>) {
    if patterns.len() > MAX_CONDITION_PATTERNS {
        let error = FieldError::too_many(field, patterns.len(), MAX_CONDITION_PATTERNS);
        errors.push(error);
    }
    for (i, pattern) in patterns.iter().enumerate() {
        let path = index_path(field, i);
        let kind = text(pattern, "/type");
        let result = validate_qualified_name(kind);
        report_invalid(format!("{path}.type"), kind, result, errors);
        let status = text(pattern, "/status");
        validate_choice(
            format!("{path}.status"),
            status,
            &CONDITION_STATUSES,
            errors,
        );
    }
}

/// Validates `successPolicy` of a job spec at `field`.
pub(super) fn validate_success_policy(field: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    let field = format!("{field}.successPolicy");
    if text(spec, "/completionMode") != "Indexed" {
        let policy = get(spec, "/successPolicy");
        let detail = "requires indexed completion mode";
        errors.push(FieldError::invalid(field, policy, detail));
        return;
    }
    let field = format!("{field}.rules");
    let rules = items(spec, "/successPolicy/rules");
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.push(FieldError::required(&field, detail));
    }
    if rules.len() > MAX_RULES {
        errors.push(FieldError::too_many(&field, rules.len(), MAX_RULES));
    }
    let completions = int(spec, "/completions").unwrap_or(0);
    for (i, rule) in rules.iter().enumerate() {
        validate_success_rule(&index_path(&field, i), rule, completions, errors);
    }
}

fn validate_success_rule(
    field: &str,
    rule: &Value,
    completions: i64,
    errors: &mut Vec<FieldError>,
) {
    let indexes = get(rule, "/succeededIndexes").as_str();
    let count = int(rule, "/succeededCount");
    if indexes.is_none() && count.is_none() {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        errors.push(FieldError::required(field, detail));
    }
    let mut limits = vec![(completions, "the number of specified completions")];
    if let Some(indexes) = indexes {
        let path = format!("{field}.succeededIndexes");
        if indexes.len() > MAX_INDEXES_BYTES {
            errors.push(FieldError::too_long(&path, MAX_INDEXES_BYTES));
        }
        let index_count = count_indexes(indexes, completions);
        limits.push((
            *index_count.as_ref().unwrap_or(&0),
            "the number of indexes in the specified succeededIndexes field",
        ));
        if let Err(detail) = index_count {
            let detail = format!("error parsing succeededIndexes: {detail}");
            errors.push(FieldError::invalid(path, &indexes.into(), detail));
        }
    }
    let Some(count) = count else {
        return;
    };
    validate_non_negative_at(field, rule, "succeededCount", errors);
    for (limit, noun) in limits.into_iter().filter(|(limit, _)| count > *limit) {
        errors.push(FieldError::invalid(
            format!("{field}.succeededCount"),
            &count.into(),
            format!("must be less than or equal to {limit} ({noun})"),
        ));
    }
}

/// How many indexes a text such as `0,2-4` names, each below `completions`.
fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let (mut total, mut last) = (0, None);
    for interval in text.split(',').filter(|_| !text.is_empty()) {
        let (first, end) = parse_interval(interval, completions)?;
        match last {
            Some(last) if last >= first => {
                return Err(format!(
                    "non-increasing order, previous: {last}, current: {first}"
                ));
            }
            _ => {}
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

fn parse_interval(interval: &str, completions: i64) -> Result<(i64, i64), String> {
    let index = |text: &str| match text.parse::<i32>() {
        Err(_) => Err(format!(
            "cannot convert string to integer for index: {text:?}"
        )),
        Ok(index) if i64::from(index) >= completions => Err(format!("too large index: {text:?}")),
        Ok(index) => Ok(i64::from(index)),
    };
    match interval.split('-').collect::<Vec<_>>()[..] {
        [one] => index(one).map(|index| (index, index)),
        [first, end] => match (index(first)?, index(end)?) {
            (first, end) if first >= end => Err(format!(
                "non-increasing order, previous: {first}, current: {end}"
            )),
            both => Ok(both),
        },
        _ => Err(format!(
            "the fragment {interval:?} violates the requirement that an index interval can have \
             at most two parts separated by '-'"
        )),
    }
}
