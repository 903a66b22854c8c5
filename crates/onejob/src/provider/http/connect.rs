//! Name, address, TCP, TLS: everything before the first byte of a request.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::pool::Connection;
use crate::config::HttpDefinition;

/// Where a connection leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Origin {
    pub(super) secure: bool,
    /// As in a URL: IPv6 addresses in brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

/// Opens connections.
pub(super) struct Connector {
    timeout: Duration,
    extra_authorities: Vec<CertificateDer<'static>>,
    /// Made at the first https request: reading the system's authorities takes a while.
    tls: OnceLock<Result<TlsConnector, String>>,
}

impl Connector {
    pub(super) fn open(definition: &HttpDefinition) -> Result<Connector, String> {
        let extra_authorities = definition.ca_file.as_deref().map_or(Ok(Vec::new()), read_authorities)?;
        Ok(Connector { timeout: definition.connect_timeout, extra_authorities, tls: OnceLock::new() })
    }

    /// Opens a connection; name, address and handshake together within the connect timeout. An
    /// error is a sentence about the host, and nothing of the request has left.
    pub(super) async fn connect(&self, origin: &Origin) -> Result<Connection, String> {
        let until = Instant::now() + self.timeout;
        let place = format!("{}:{}", origin.host, origin.port);
        match tokio::time::timeout_at(until, self.open_stream(origin, until)).await {
            Ok(Ok(stream)) => Connection::over(stream).await,
            Ok(Err(reason)) => Err(format!("cannot connect to {place}: {reason}")),
            Err(_) => Err(format!("cannot connect to {place}: no connection within {:?}", self.timeout)),
        }
    }

    async fn open_stream(&self, origin: &Origin, until: Instant) -> Result<Stream, String> {
        let name = origin.host.trim_start_matches('[').trim_end_matches(']');
        let found = tokio::net::lookup_host((name, origin.port)).await;
        let addresses: Vec<SocketAddr> = found.map_err(|_| "the name cannot be resolved".to_owned())?.collect();
        let socket = Socket(Arc::new(open_tcp(&addresses, until).await?));
        if !origin.secure {
            return Ok(Stream::Plain(socket));
        }
        let tls = self.tls.get_or_init(|| make_tls(&self.extra_authorities)).as_ref().map_err(Clone::clone)?;
        let name = ServerName::try_from(name.to_owned()).map_err(|_| "the host is no name for TLS".to_owned())?;
        let stream = tls.connect(name, socket).await.map_err(|error| format!("TLS failed: {error}"))?;
        Ok(Stream::Tls(Box::new(stream)))
    }
}

/// Tries the addresses of a name one after the other, each with an equal share of the time left, so
/// that one dead address does not use up the time of the next.
pub(super) async fn open_tcp(addresses: &[SocketAddr], until: Instant) -> Result<TcpStream, String> {
    let mut reason = "the name has no address".to_owned();
    for (tried, address) in addresses.iter().enumerate() {
        let share = until.duration_since(Instant::now()) / (addresses.len() - tried) as u32;
        match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // A request is written at once: there is nothing to gather. If it cannot be set,
                // the call is only slower.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => reason = plain(&error),
            Err(_) => reason = "no answer".to_owned(),
        }
    }
    Err(reason)
}

/// An operating system's error without its number.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "not reachable".to_owned(),
        io::ErrorKind::TimedOut => "no answer".to_owned(),
        kind => kind.to_string(),
    }
}

fn read_authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let unusable = |what: String| format!("ca_file {}: {what}", path.display());
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found: Vec<CertificateDer<'static>> = found.map_err(|error| unusable(error.to_string()))?;
    let mut store = RootCertStore::empty();
    for certificate in &found {
        store.add(certificate.clone()).map_err(|error| unusable(error.to_string()))?;
    }
    if found.is_empty() { Err(unusable("no certificate in it".to_owned())) } else { Ok(found) }
}

fn make_tls(extra: &[CertificateDer<'static>]) -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    // What the system has and cannot be read is left out: a chain that needs it fails by name.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots.add_parsable_certificates(extra.iter().cloned());
    if roots.is_empty() {
        return Err("this machine has no certificate authorities, and no ca_file is given".to_owned());
    }
    let crypto = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(crypto).with_safe_default_protocol_versions();
    let mut config = config.map_err(|error| error.to_string())?.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// A TCP connection that can be looked at from outside while a stream uses it.
#[derive(Clone)]
pub(super) struct Socket(Arc<TcpStream>);

impl Socket {
    /// The peer has neither closed nor sent anything that was not read. Asks the operating system:
    /// the runtime may not have heard of it yet.
    pub(super) fn is_quiet(&self) -> bool {
        let mut one = [std::mem::MaybeUninit::uninit()];
        let peeked = SockRef::from(&*self.0).peek(&mut one);
        matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// The bytes' way to the provider.
pub(super) enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

impl Stream {
    pub(super) fn socket(&self) -> Socket {
        match self {
            Stream::Plain(socket) => socket.clone(),
            Stream::Tls(stream) => stream.get_ref().0.clone(),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Ok(read) => {
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.0).shutdown(Shutdown::Write))
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, buffer),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
