//! A few lines of HTTP: enough to ask a server on this machine, and to serve metrics to a Prometheus.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use fsyncscope::metrics::Metrics;
use fsyncscope::serve::{self, Health};

/// An answer: status code, head and body.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// Sends `request` as it is and reads until the server closes.
pub fn send(address: SocketAddr, request: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(request)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

pub fn get(address: SocketAddr, target: &str, accept: &str) -> std::io::Result<Answer> {
    let request = format!("GET {target} HTTP/1.0\r\nHost: {address}\r\nAccept: {accept}\r\n\r\n");
    let answer = String::from_utf8_lossy(&send(address, request.as_bytes())?).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Ok(Answer { status, head: head.to_owned(), body: body.to_owned() })
}

/// Escapes everything but letters and digits, for use in a query string.
pub fn escaped(text: &str) -> String {
    text.bytes()
        .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

/// A port of 127.0.0.1 that was free a moment ago.
pub fn free_address() -> SocketAddr {
    let probe = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    probe.local_addr().expect("its address")
}

/// The agent's endpoint on a thread of its own, until it is dropped.
pub struct Served {
    pub address: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Served {
    pub fn start(metrics: Arc<Metrics>, health: Health) -> Self {
        let listener = serve::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        let address = listener.local_addr().expect("its address");
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(serve::serve(listener, metrics, health, async { drop(stopped.await) }))
        });
        Self { address, stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server does not panic").expect("the server ends well");
        }
    }
}
