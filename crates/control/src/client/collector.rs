//! Posts documents to somebody else's server: a collector.

use std::time::Duration;

use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::runtime::Builder;

/// For one document, from the connection to the end of the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The port of OTLP by HTTP.
const PORT: u16 = 4318;

/// Why an address cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AddressError {
    /// It is no URL.
    #[error("it is no URL: write one such as http://127.0.0.1:4318")]
    Syntax,
    /// It asks for TLS, or for something else.
    #[error(
        "only http:// is spoken: have a collector on this host, which sends on what it gets by https"
    )]
    Scheme,
    /// A header cannot be sent.
    #[error("{0:?} is no header of HTTP: write NAME=VALUE")]
    Header(String),
}

/// Why a document was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PostError {
    /// The collector is away or busy: the same document may be taken later.
    #[error("{why}")]
    Later {
        /// What is in the way.
        why: String,
        /// When it may be tried again, if it said so.
        after: Option<Duration>,
    },
    /// It will never take this document.
    #[error("{0}")]
    Refused(String),
}

/// A server that takes documents of JSON.
#[derive(Clone, Debug)]
pub struct Collector {
    authority: String,
    host: String,
    port: u16,
    path: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Collector {
    /// `url`: where it listens; `path_usual`: where it takes documents if that names no path; `headers`: `NAME=VALUE`, sent
    /// with each.
    ///
    /// # Errors
    /// [`AddressError`].
    pub fn new(url: &str, path_usual: &str, headers: &[String]) -> Result<Self, AddressError> {
        let uri: Uri = url.parse().map_err(|_| AddressError::Syntax)?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(AddressError::Syntax);
        };
        if scheme != "http" {
            return Err(AddressError::Scheme);
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || authority.as_str().contains('@') {
            return Err(AddressError::Syntax);
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let headers = headers.iter().map(|header| {
            let parts = header.split_once('=').and_then(|(name, value)| {
                let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
                Some((name, HeaderValue::from_str(value.trim()).ok()?))
            });
            parts.ok_or_else(|| AddressError::Header(header.clone()))
        });
        Ok(Self {
            authority: authority.as_str().to_owned(),
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(PORT),
            path: if path == "/" { path_usual } else { path }.to_owned(),
            headers: headers.collect::<Result<_, _>>()?,
        })
    }

    /// Where documents go.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.authority, self.path)
    }

    /// Posts a document; the answer.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn post(&self, document: Vec<u8>) -> Result<Vec<u8>, PostError> {
        let later = |why: String| PostError::Later { why, after: None };
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| later(error.to_string()))?;
        runtime.block_on(async {
            let posted = tokio::time::timeout(PATIENCE, self.exchange(document)).await;
            posted.map_err(|_| later(format!("no answer for {} s", PATIENCE.as_secs())))?
        })
    }

    async fn exchange(&self, document: Vec<u8>) -> Result<Vec<u8>, PostError> {
        fn later(error: &impl ToString) -> PostError {
            PostError::Later { why: error.to_string(), after: None }
        }
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = TokioIo::new(stream.map_err(|error| later(&error))?);
        let (mut sender, connection) =
            http1::handshake(stream).await.map_err(|error| later(&error))?;
        // It ends with the runtime.
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method("POST")
            .uri(&self.path)
            .header(HOST, &self.authority)
            .header(USER_AGENT, concat!("steadfast/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/json");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(document)));
        let request = request.map_err(|error| PostError::Refused(error.to_string()))?;
        let response = sender.send_request(request).await.map_err(|error| later(&error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        if status.is_success() {
            return Ok(body.map(Collected::to_bytes).unwrap_or_default().to_vec());
        }
        let why = format!("it answers {status}");
        // Those that OTLP says may be tried again.
        if !matches!(status.as_u16(), 429 | 502 | 503 | 504) {
            return Err(PostError::Refused(why));
        }
        let after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        Err(PostError::Later { why, after: after.map(Duration::from_secs) })
    }
}

#[cfg(test)]
mod tests {
    use super::{AddressError, Collector};

    #[test]
    fn an_address_names_host_port_and_path() {
        for (url, told, host, port) in [
            ("http://127.0.0.1", "http://127.0.0.1/v1/traces", "127.0.0.1", 4318),
            ("http://[::1]:80/", "http://[::1]:80/v1/traces", "::1", 80),
            ("http://collector:1/api?a=b", "http://collector:1/api?a=b", "collector", 1),
        ] {
            let collector = Collector::new(url, "/v1/traces", &[]).unwrap();
            assert_eq!(collector.url(), told);
            assert_eq!((collector.host.as_str(), collector.port), (host, port));
        }
        for (url, error) in [
            ("https://collector", AddressError::Scheme),
            ("grpc://collector:4317", AddressError::Scheme),
            ("collector:4318", AddressError::Syntax),
            ("http://", AddressError::Syntax),
            ("http://user:secret@collector", AddressError::Syntax),
            ("/v1/traces", AddressError::Syntax),
            ("", AddressError::Syntax),
        ] {
            assert_eq!(Collector::new(url, "/", &[]).map(|it| it.url()), Err(error), "{url}");
        }
    }

    #[test]
    fn headers_are_a_name_and_a_value() {
        let new = |header: &str| Collector::new("http://c", "/", &[header.to_owned()]);
        let collector = new("X-Api-Key = a=b").unwrap();
        assert_eq!(collector.headers[0].0, "x-api-key");
        assert_eq!(collector.headers[0].1, "a=b");
        for header in ["key", "a b=c", "key=a\nb", "=b"] {
            assert!(matches!(new(header), Err(AddressError::Header(_))), "{header:?}");
        }
    }
}
