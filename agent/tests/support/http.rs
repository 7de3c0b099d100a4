//! One GET over plain TCP: enough for the /metrics and /healthz of the agent and of the brokers, without a client crate.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A status code and a body.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// Asks a server on loopback. HTTP/1.0, so that the body is never chunked and ends with the connection.
pub fn get(port: u16, path: &str) -> std::io::Result<Answer> {
    get_with(port, path, "")
}

/// As [`get`], with header lines of the caller, each ended by CR LF.
pub fn get_with(port: u16, path: &str, headers: &str) -> std::io::Result<Answer> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n{headers}\r\n")?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Ok(Answer { status, head: head.to_owned(), body: body.to_owned() })
}
