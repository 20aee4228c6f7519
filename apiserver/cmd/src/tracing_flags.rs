//! The flag of OpenTelemetry traces, and the TracingConfiguration that it names
//! (`k8s.io/component-base/tracing/api/v1/config.go`). Every error has the path of its field.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::Args;
use flotilla_tracing::{TracerProvider, TracingOptions};
use http::Uri;
use machinery::FieldError;
use serde_json::{Map, Value};

const API_VERSIONS: [&str; 3] = [
    "apiserver.config.k8s.io/v1",
    "apiserver.config.k8s.io/v1beta1",
    "apiserver.config.k8s.io/v1alpha1",
];
const KIND: &str = "TracingConfiguration";
const FIELDS: [&str; 4] = ["apiVersion", "kind", "endpoint", "samplingRatePerMillion"];
const SERVICE_NAME: &str = "flotilla";
/// The port of OTLP over gRPC on this machine, as in OpenTelemetry's exporters.
const DEFAULT_ENDPOINT: &str = "localhost:4317";
/// The port that gRPC's resolver assumes.
const DEFAULT_PORT: u16 = 443;
const MAX_SAMPLING_RATE: i64 = 1_000_000;

/// The flag of traces.
#[derive(Args)]
#[command(next_help_heading = "Traces flags")]
pub(crate) struct TracingArgs {
    /// File with the tracing configuration (TracingConfiguration of
    /// apiserver.config.k8s.io): the collector that receives spans of requests and
    /// reconciliations by OTLP, and how many are sampled. It is read once, at the start.
    #[arg(long, value_name = "FILE")]
    tracing_config_file: Option<PathBuf>,
}

impl TracingArgs {
    /// Reads and validates the file, and starts the export; `None` without a file.
    pub(crate) fn install(&self) -> anyhow::Result<Option<TracerProvider>> {
        let Some(file) = &self.tracing_config_file else {
            return Ok(None);
        };
        let flag = || format!("--tracing-config-file {}", file.display());
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", flag()))?;
        let options = parse(&text).map_err(|reason| anyhow!("{}: {reason}", flag()))?;
        let provider = TracerProvider::install(options);
        Ok(Some(
            provider.map_err(|reason| anyhow!("{}: {reason}", flag()))?,
        ))
    }
}

fn parse(text: &str) -> Result<TracingOptions, String> {
    let document: Value = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
    let Some(document) = document.as_object() else {
        return Err("must be an object".to_owned());
    };
    if let Some(unknown) = document.keys().find(|k| !FIELDS.contains(&k.as_str())) {
        return Err(format!("strict decoding error: unknown field {unknown:?}"));
    }
    let mut errors = Vec::new();
    check_type(document, &mut errors);
    let rate = parse_sampling_rate(document, &mut errors);
    let endpoint = match document.get("endpoint") {
        None | Some(Value::Null) => parse_endpoint(DEFAULT_ENDPOINT),
        Some(Value::String(text)) => parse_endpoint(text),
        Some(_) => Err("must be a string".to_owned()),
    };
    let endpoint = endpoint.unwrap_or_else(|reason| {
        let value = document.get("endpoint").unwrap_or(&Value::Null);
        errors.push(FieldError::invalid("endpoint", value, reason));
        String::new()
    });
    if !errors.is_empty() {
        let all: Vec<String> = errors.iter().map(FieldError::to_string).collect();
        return Err(all.join("; "));
    }
    Ok(TracingOptions {
        endpoint,
        sampling_rate_per_million: rate,
        service_name: SERVICE_NAME,
        service_instance_id: uuid::Uuid::new_v4().to_string(),
    })
}

fn check_type(document: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    for (field, supported) in [("apiVersion", &API_VERSIONS[..]), ("kind", &[KIND])] {
        match document.get(field) {
            Some(Value::String(text)) if supported.contains(&text.as_str()) => {}
            None => errors.push(FieldError::required(
                field,
                &format!("must be {}", supported[0]),
            )),
            Some(other) => errors.push(FieldError::not_supported(field, other, supported)),
        }
    }
}

fn parse_sampling_rate(document: &Map<String, Value>, errors: &mut Vec<FieldError>) -> u32 {
    let field = "samplingRatePerMillion";
    let Some(value) = document.get(field).filter(|value| !value.is_null()) else {
        return 0;
    };
    let reason = match value.as_i64() {
        None => "must be an integer",
        Some(rate) if rate < 0 => "sampling rate must be positive",
        Some(rate) if rate > MAX_SAMPLING_RATE => {
            "sampling rate per million must be less than or equal to one million"
        }
        Some(rate) => return u32::try_from(rate).unwrap_or_default(),
    };
    errors.push(FieldError::invalid(field, value, reason));
    0
}

/// The address of the collector: gRPC's `host:port`, `dns:///host:port` or `unix:///path`.
fn parse_endpoint(endpoint: &str) -> Result<String, String> {
    let target = match endpoint.split_once("//") {
        None => endpoint,
        Some((scheme, rest)) => match scheme.strip_suffix(':').unwrap_or(scheme) {
            "dns" => match rest.split_once('/') {
                None => rest,
                Some(("", target)) => target,
                Some(_) => return Err("a DNS server cannot be named".to_owned()),
            },
            "unix" if rest.starts_with('/') => return Ok(format!("unix://{rest}")),
            "unix" => return Err("the path of a socket must be absolute".to_owned()),
            other => {
                return Err(format!(
                    "unsupported scheme: {other}.  Options are none, dns, or unix.  See https://github.com/grpc/grpc/blob/master/doc/naming.md"
                ));
            }
        },
    };
    let address: Uri = format!("http://{target}")
        .parse()
        .map_err(|e: http::uri::InvalidUri| e.to_string())?;
    if address.path() != "/" || address.query().is_some() || target.contains('@') {
        return Err("must be host:port".to_owned());
    }
    let host = address.host().unwrap_or_default();
    let port = address.port_u16().unwrap_or(DEFAULT_PORT);
    Ok(format!("http://{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "{apiVersion: apiserver.config.k8s.io/v1, kind: TracingConfiguration";

    #[test]
    fn endpoints_and_rates_are_read() {
        for (fields, endpoint, rate) in [
            ("", "http://localhost:4317", 0),
            (", endpoint: 'otel:4317'", "http://otel:4317", 0),
            (", endpoint: otel", "http://otel:443", 0),
            (
                ", endpoint: 'dns:///otel:1', samplingRatePerMillion: 1000000",
                "http://otel:1",
                1_000_000,
            ),
            (", endpoint: '[::1]:4317'", "http://[::1]:4317", 0),
            (", endpoint: 'unix:///run/otel'", "unix:///run/otel", 0),
        ] {
            let options = parse(&format!("{HEAD}{fields}}}")).unwrap();
            assert_eq!(options.endpoint, endpoint);
            assert_eq!(options.sampling_rate_per_million, rate);
        }
    }

    #[test]
    fn errors_have_the_path_of_their_field() {
        for (text, expected) in [
            (
                format!("{HEAD}, samplingRatePerMillion: -1}}"),
                "samplingRatePerMillion: Invalid value: -1: sampling rate must be positive",
            ),
            (
                format!("{HEAD}, samplingRatePerMillion: 1000001}}"),
                "samplingRatePerMillion: Invalid value: 1000001: sampling rate per million must be less than or equal to one million",
            ),
            (
                format!("{HEAD}, endpoint: 'https://otel:1'}}"),
                "endpoint: Invalid value: \"https://otel:1\": unsupported scheme: https.",
            ),
            (
                format!("{HEAD}, endpoint: 'otel:1/path'}}"),
                "endpoint: Invalid value: \"otel:1/path\": must be host:port",
            ),
            (
                format!("{HEAD}, sampling: 1}}"),
                "strict decoding error: unknown field \"sampling\"",
            ),
            (
                "{kind: TracingConfiguration}".to_owned(),
                "apiVersion: Required value",
            ),
            (
                "{apiVersion: v1, kind: TracingConfiguration}".to_owned(),
                "apiVersion: Unsupported value: \"v1\"",
            ),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
