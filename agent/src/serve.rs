//! The HTTP endpoint: /metrics, /healthz and an index.
//!
//! Knows sockets and HTTP. Must not know what is measured or what makes the agent healthy: both are handed in.
//! A slow, hostile or broken client costs one of a few places for a few seconds, never more: one request a connection,
//! a deadline on the whole of it, small buffers, and as many connections as `limits` says.

use std::future::Future;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::limits;
use crate::metrics::Metrics;

/// Says whether the agent is healthy, or why not in one sentence.
pub type Health = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

const INDEX: &str = "<!doctype html><title>fsyncscope</title><h1>fsyncscope</h1>\
    <p><a href=\"/metrics\">/metrics</a> for Prometheus, <a href=\"/healthz\">/healthz</a> for probes.</p>\n";

#[derive(Clone)]
struct Shared {
    metrics: Arc<Metrics>,
    health: Health,
}

/// Takes the address before anything is attached, so that a taken port costs nothing but this error.
pub fn bind(listen: SocketAddr) -> anyhow::Result<TcpListener> {
    let bound = TcpListener::bind(listen).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|error| {
        let advice = match error.kind() {
            ErrorKind::AddrInUse => "stop the process that holds the port, or choose another with --listen",
            ErrorKind::AddrNotAvailable => "choose an address of this machine with --listen",
            ErrorKind::PermissionDenied => "choose a port above 1023 with --listen",
            _ => "choose another address with --listen",
        };
        anyhow::anyhow!("could not listen on {listen}: {error}; {advice}")
    })
}

/// Answers requests until `stop` is ready. Needs a tokio runtime with time and io.
pub async fn serve(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    health: Health,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener).context("could not wait on the listening socket")?;
    let router = Router::new()
        .route("/", get(index))
        .route("/metrics", get(exposition))
        .route("/healthz", get(healthz))
        .with_state(Shared { metrics, health });
    let places = Arc::new(Semaphore::new(limits::HTTP_CONNECTIONS_MAX));
    tokio::pin!(stop);
    loop {
        // The place is taken before the connection, so that those without one wait in the kernel.
        let accepted = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            () = &mut stop => return Ok(()),
            accepted = accepted => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // Out of descriptors, or a client that is gone already: neither is better for trying at once.
            tokio::time::sleep(limits::HTTP_ACCEPT_RETRY).await;
            continue;
        };
        let router = router.clone();
        tokio::spawn(async move {
            // A client that misbehaves learns it by the closed connection; there is nobody else to tell.
            let _ended = tokio::time::timeout(limits::HTTP_CONNECTION, answer(stream, router)).await;
            drop(place);
        });
    }
}

async fn answer(stream: TcpStream, router: Router) -> hyper::Result<()> {
    http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .header_read_timeout(limits::HTTP_HEADER)
        .max_buf_size(limits::HTTP_HEADER_BYTES_MAX)
        .max_headers(limits::HTTP_HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await
}

async fn index() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], INDEX)
}

async fn exposition(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    match shared.metrics.encode(&accept.collect::<Vec<_>>().join(",")) {
        Ok((content_type, body)) => ([(header::CONTENT_TYPE, content_type)], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, PLAIN, format!("{error:#}\n")).into_response(),
    }
}

async fn healthz(State(shared): State<Shared>) -> Response {
    match (shared.health)() {
        Ok(()) => (PLAIN, "ok\n").into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, PLAIN, reason + "\n").into_response(),
    }
}

const PLAIN: [(HeaderName, &str); 1] = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
