//! Runs the cases of a theme on both servers and compares the replies.

use std::fmt::Write as _;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::differential::case::{CaseStep, CaseTheme, known_differences};
use crate::differential::crd;
use crate::differential::normalize::ReplyNormalizer;
use crate::differential::options;
use crate::differential::policies;
use crate::differential::request::{
    CaseContext, ParsedStep, PreparedRequest, StepAction, parse_step,
};
use crate::differential::servers::{ServerConnection, ServerPair};

const CONCURRENT_CASES: usize = 4;
const UNTIL_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The replies of one server, each with its step.
type CaseReplies = Vec<(String, Value)>;

/// Runs the cases; panics when one differs that is not listed, or one is listed that does not.
pub(crate) async fn compare_theme(name: &str) {
    let Some(pair) = ServerPair::shared().await else {
        return;
    };
    let servers = pair.connect().await;
    let theme = CaseTheme::read(name);
    compare_cases(&servers, &theme).await;
}

pub(crate) async fn compare_cases(servers: &[ServerConnection; 2], theme: &CaseTheme) {
    let group = crd::group(&theme.name);
    let mut kinds = Map::new();
    for (plural, short) in &theme.crds {
        let definition = crd::expand(&group, plural, short);
        kinds.insert(plural.clone(), definition["spec"]["names"]["kind"].clone());
        for server in servers {
            crd::create(server, &definition).await;
        }
    }
    if !theme.policies.is_empty() {
        policies::put_in_force(servers, &group, theme.policies.iter()).await;
    }
    let filter = options::case_filter();
    let selected = theme.cases.iter().filter(|(name, _)| match &filter {
        Some(text) => name.contains(text),
        None => true,
    });
    let (group, kinds) = (&group, &kinds);
    let run = selected.map(|(name, steps)| async move {
        let context = CaseContext {
            namespace: name,
            group,
            kinds: &with_own_definitions(kinds, steps),
        };
        let differences = compare_case(servers, steps, &context, theme.managed_fields).await;
        (name.clone(), differences)
    });
    let results: Vec<(String, Option<String>)> = futures_util::stream::iter(run)
        .buffer_unordered(CONCURRENT_CASES)
        .collect()
        .await;
    assert_known(results);
}

/// The kinds of the theme and of the definitions that the case creates.
fn with_own_definitions(kinds: &Map<String, Value>, steps: &[CaseStep]) -> Map<String, Value> {
    let mut kinds = kinds.clone();
    for (title, short) in steps.iter().flatten() {
        if let Some(plural) = title.strip_prefix("CRD ") {
            kinds.insert(plural.to_owned(), short["kind"].clone());
        }
    }
    kinds
}

fn assert_known(results: Vec<(String, Option<String>)>) {
    let known_cases = known_differences();
    let mut failures = String::new();
    for (name, differences) in results {
        match (differences, known_cases.contains(&name)) {
            (Some(text), false) => write!(failures, "\n## {name}\n{text}").unwrap(),
            (None, true) => write!(
                failures,
                "\n## {name}\nis equal: take it off differences.txt"
            )
            .unwrap(),
            _ => {}
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// The differences of a case as text, or `None`.
pub(crate) async fn compare_case(
    servers: &[ServerConnection; 2],
    steps: &[CaseStep],
    context: &CaseContext<'_>,
    managers: bool,
) -> Option<String> {
    let [reference, flotilla] = servers;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": context.namespace}});
    let created = PreparedRequest::json("POST", "/api/v1/namespaces", &namespace);
    let created = flotilla.send(created).await;
    assert_eq!(created.code, 201, "{}", created.text());
    let parsed: Vec<ParsedStep> = steps.iter().map(|step| parse_step(step, context)).collect();
    let (expected, actual) = tokio::join!(
        run_steps(reference, &parsed, context, managers),
        run_steps(flotilla, &parsed, context, managers)
    );
    if options::case_filter().is_some() {
        options::show(&show_replies(&parsed, &expected, &actual));
    }
    let mut differences = String::new();
    for ((title, expected), (_, actual)) in expected.iter().zip(&actual) {
        let mut paths = Vec::new();
        list_differences("", expected, actual, &mut paths);
        if !paths.is_empty() {
            writeln!(differences, "{title}\n{}", paths.join("\n")).unwrap();
        }
    }
    if differences.is_empty() {
        return None;
    }
    options::report(|| {
        let replies = show_replies(&parsed, &expected, &actual);
        let name = context.namespace;
        format!("\n## {name}\n```\n{differences}```\n{replies}")
    });
    Some(differences)
}

async fn run_steps(
    server: &ServerConnection,
    steps: &[ParsedStep],
    context: &CaseContext<'_>,
    managers: bool,
) -> CaseReplies {
    let mut normalizer = ReplyNormalizer::new(managers);
    let mut replies = Vec::new();
    for step in steps {
        match &step.action {
            StepAction::CreateDefinition { plural, short } => {
                crd::create(server, &crd::expand(context.group, plural, short)).await;
            }
            StepAction::Send(request) => {
                let reply = run_step(server, request, step.until, context, &mut normalizer).await;
                replies.push((step.title.clone(), reply));
            }
        }
    }
    replies
}

async fn run_step(
    server: &ServerConnection,
    request: &PreparedRequest,
    until: Option<u16>,
    context: &CaseContext<'_>,
    normalizer: &mut ReplyNormalizer,
) -> Value {
    let mut request = request.clone();
    let fill = |text: &str| normalizer.fill_placeholders(&text.replace("{ns}", context.namespace));
    request.path = fill(&request.path);
    request.body = fill(&request.body);
    let end = Instant::now() + UNTIL_TIMEOUT;
    loop {
        let reply = server.send(request.clone()).await;
        if until.is_none_or(|code| code == reply.code) || Instant::now() > end {
            return normalizer.normalize(&reply);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// One line for each value that is not the same.
fn list_differences(path: &str, expected: &Value, actual: &Value, lines: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(a), Value::Object(b)) => {
            let added = b.keys().filter(|key| !a.contains_key(*key));
            for key in a.keys().chain(added) {
                let missing = json!("(missing)");
                let (a, b) = (
                    a.get(key).unwrap_or(&missing),
                    b.get(key).unwrap_or(&missing),
                );
                list_differences(&format!("{path}.{key}"), a, b, lines);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (n, (a, b)) in a.iter().zip(b).enumerate() {
                list_differences(&format!("{path}[{n}]"), a, b, lines);
            }
        }
        (a, b) if a == b => {}
        (a, b) => lines.push(format!(
            "  {path}\n    Kubernetes: {a}\n    Flotilla:   {b}"
        )),
    }
}

/// Requests and both replies, as Markdown.
fn show_replies(steps: &[ParsedStep], expected: &CaseReplies, actual: &CaseReplies) -> String {
    let sent = steps.iter().filter_map(|step| match &step.action {
        StepAction::Send(request) => Some(request),
        StepAction::CreateDefinition { .. } => None,
    });
    let mut text = String::new();
    for ((request, (title, expected)), (_, actual)) in sent.zip(expected).zip(actual) {
        write!(
            text,
            "\n{title}\n```\n{} {}\n{}\n```\n",
            request.method, request.path, request.body
        )
        .unwrap();
        match expected == actual {
            true => writeln!(text, "both: `{expected}`").unwrap(),
            false => writeln!(text, "Kubernetes: `{expected}`\n\nFlotilla: `{actual}`").unwrap(),
        }
    }
    text
}
