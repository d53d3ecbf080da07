//! The way out: spans are gathered and sent in batches by OTLP over HTTP, from a thread of the SDK's own. A collector
//! that is away costs traces and nothing else.

use std::pin::Pin;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{ExporterBuildError, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Handle;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use super::ON;

/// How long one batch may take to be sent.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sends what is gathered for as long as it is there; what is left is sent when it is dropped.
#[derive(Debug)]
pub struct Exporting(SdkTracerProvider);

impl Drop for Exporting {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown_with_timeout(PATIENCE) {
            tracing::debug!(%error, "the last traces were not sent");
        }
    }
}

/// Begins to gather the spans that say of what kind they are (`otel.kind`), and to send them to the collector at this
/// address, on this runtime. `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_SERVICE_NAME` and
/// `OTEL_TRACES_SAMPLER` mean what OpenTelemetry says; the name of the service is `onehold` unless they say otherwise.
///
/// # Errors
/// An address that is none.
pub fn start<S>(
    collector: &str,
    runtime: Handle,
) -> Result<(impl Layer<S> + Send + Sync + use<S>, Exporting), ExporterBuildError>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(Client { http: reqwest::Client::new(), runtime })
        .with_endpoint(format!("{}/v1/traces", collector.trim_end_matches('/')))
        .with_timeout(PATIENCE)
        .build()?;
    let mut resource = Resource::builder();
    let named = resource_is_named();
    if !named {
        resource = resource.with_service_name("onehold");
    }
    let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource.with_attribute(version).build())
        .build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("onehold"))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_target(false)
        .with_filter(filter_fn(|meta| meta.is_span() && meta.fields().field("otel.kind").is_some()));
    let _ = ON.set(());
    Ok((layer, Exporting(provider)))
}

/// Whether the SDK finds a name of its own for the service; it calls one without a name `unknown_service`.
fn resource_is_named() -> bool {
    let name = Resource::builder().build().get(&opentelemetry::Key::from_static_str("service.name"));
    name.is_some_and(|name| !name.as_str().starts_with("unknown_service"))
}

/// The client that everything here uses, for a thread that has no runtime.
#[derive(Debug)]
struct Client {
    http: reqwest::Client,
    runtime: Handle,
}

impl HttpClient for Client {
    // As `async_trait` would write it.
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let http = self.http.clone();
        let sent = self.runtime.spawn(async move {
            let answer = http.execute(request.map(reqwest::Body::from).try_into()?).await?;
            let mut response = Response::builder().status(answer.status());
            if let Some(headers) = response.headers_mut() {
                headers.clone_from(answer.headers());
            }
            Ok::<_, HttpError>(response.body(answer.bytes().await?)?)
        });
        Box::pin(async move { sent.await? })
    }
}
