//! Exports spans to a collector by OTLP over gRPC: in batches from a bounded queue, so that
//! an unreachable collector neither blocks a request nor takes memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_otlp::{WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, SpanData, SpanExporter,
};
use tonic::transport::Endpoint;

/// The spans that wait for the collector; more are dropped.
const MAX_QUEUED_SPANS: usize = 2048;
const MAX_BATCH_SPANS: usize = 512;
const BATCH_DELAY: Duration = Duration::from_secs(5);
/// How long a collector may take for a batch.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a process that stops waits for the collector.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// The collector to which spans are exported, and the share of exported spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingOptions {
    /// An address as gRPC names it: `http://host:port` or `unix:///path`.
    pub endpoint: String,
    pub sampling_rate_per_million: u32,
    pub service_name: &'static str,
    pub service_instance_id: String,
}

/// Exports spans until it is shut down.
pub struct TracerProvider(SdkTracerProvider);

impl TracerProvider {
    /// Starts the export for this process, which must be inside a runtime. Nothing is dialed
    /// before the first batch.
    pub fn install(options: TracingOptions) -> Result<Self, String> {
        let endpoint = Endpoint::from_shared(options.endpoint).map_err(|e| e.to_string())?;
        let endpoint = endpoint
            .connect_timeout(EXPORT_TIMEOUT)
            .timeout(EXPORT_TIMEOUT);
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_tonic()
            .with_channel(endpoint.connect_lazy())
            .with_timeout(EXPORT_TIMEOUT)
            .build()
            .map_err(|e| e.to_string())?;
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(MAX_QUEUED_SPANS)
            .with_max_export_batch_size(MAX_BATCH_SPANS)
            .with_scheduled_delay(BATCH_DELAY)
            .build();
        let processor = BatchSpanProcessor::builder(LoggingExporter::new(exporter))
            .with_batch_config(batches)
            .build();
        let resource = Resource::builder_empty()
            .with_attributes([
                KeyValue::new("service.name", options.service_name),
                KeyValue::new("service.instance.id", options.service_instance_id),
            ])
            .build();
        let provider = SdkTracerProvider::builder()
            .with_sampler(sampler(options.sampling_rate_per_million))
            .with_span_processor(processor)
            .with_resource(resource)
            .build();
        crate::span::install(&provider)?;
        Ok(Self(provider))
    }

    /// Exports what has ended, for a bounded time.
    pub async fn shutdown(self) {
        let shut_down =
            tokio::task::spawn_blocking(move || self.0.shutdown_with_timeout(SHUTDOWN_TIMEOUT));
        match shut_down.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the last spans were not exported"),
            Err(error) => tracing::warn!(%error, "the export of spans did not end"),
        }
    }
}

/// Follows the decision of the parent; samples a share of the new traces.
pub(crate) fn sampler(rate_per_million: u32) -> Sampler {
    let of_new_traces = match rate_per_million {
        0 => Sampler::AlwaysOff,
        rate => Sampler::TraceIdRatioBased(f64::from(rate) / 1_000_000.0),
    };
    Sampler::ParentBased(Box::new(of_new_traces))
}

/// Logs when the collector fails and when it is back, not each batch.
#[derive(Debug)]
struct LoggingExporter<E> {
    exporter: E,
    is_failing: AtomicBool,
}

impl<E> LoggingExporter<E> {
    fn new(exporter: E) -> Self {
        Self {
            exporter,
            is_failing: AtomicBool::new(false),
        }
    }
}

impl<E: SpanExporter> SpanExporter for LoggingExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let exported = self.exporter.export(batch).await;
        let was_failing = self.is_failing.swap(exported.is_err(), Ordering::Relaxed);
        match &exported {
            Err(error) if !was_failing => {
                tracing::warn!(%error, "spans cannot be exported and are dropped");
            }
            Ok(()) if was_failing => tracing::info!("spans are exported again"),
            _ => {}
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
