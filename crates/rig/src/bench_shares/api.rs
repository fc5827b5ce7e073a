//! The control socket of a running server, asked as a program would: HTTP with JSON, a connection a
//! request.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Posts a document; how long that took, from connecting to the last byte of the answer.
///
/// # Errors
/// When there is no answer, or the server refuses.
pub(super) fn post(socket: &Path, route: &str, document: &Value) -> Result<Duration> {
    let body = document.to_string();
    let request = format!(
        "POST {route} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let started = Instant::now();
    let mut stream = UnixStream::connect(socket)
        .with_context(|| format!("cannot connect to {}", socket.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).with_context(|| format!("no answer to POST {route}"))?;
    let took = started.elapsed();
    match status(&answer) {
        Some(200..=299) => Ok(took),
        _ => bail!("POST {route} {body}: {}", String::from_utf8_lossy(&answer).trim()),
    }
}

/// The number of an answer's first line.
fn status(answer: &[u8]) -> Option<u32> {
    let line = answer.split(|byte| *byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    line.strip_prefix("HTTP/1.1 ")?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn answers_have_a_status() {
        assert_eq!(status(b"HTTP/1.1 200 OK\r\n\r\n{}"), Some(200));
        assert_eq!(status(b"HTTP/1.1 422 Unprocessable\r\n"), Some(422));
        assert_eq!(status(b""), None);
    }

    #[test]
    fn a_refusal_is_told_in_the_servers_words() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut request = vec![0; 4096];
            let count = stream.read(&mut request).expect("a request");
            stream.write_all(b"HTTP/1.1 422 No\r\n\r\nno such share").expect("sent");
            String::from_utf8_lossy(&request[..count]).into_owned()
        });
        let error = post(&path, "/v1/apply", &serde_json::json!({})).expect_err("a refusal");
        assert!(error.to_string().contains("no such share"), "{error}");
        assert!(server.join().expect("done").ends_with("\r\n\r\n{}"));
    }
}
