use std::path::PathBuf;

use rustls::pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;

use super::server::{Conn, Server};
use super::*;

/// A certificate authority of our own, and a certificate that it has signed for `name`.
struct Identity {
    ca_file: PathBuf,
    acceptor: TlsAcceptor,
    _folder: tempfile::TempDir,
}

fn identity(name: &str) -> Identity {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_certificate = authority.self_signed(&key).unwrap();
    let issuer = rcgen::Issuer::new(authority, key);
    let server_key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&server_key, &issuer).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, authority_certificate.pem()).unwrap();
    let crypto = Arc::new(rustls::crypto::ring::default_provider());
    let server_key = PrivateKeyDer::Pkcs8(server_key.serialize_der().into());
    let mut config = rustls::ServerConfig::builder_with_provider(crypto)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], server_key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Identity { ca_file, acceptor: TlsAcceptor::from(Arc::new(config)), _folder: folder }
}

/// A TLS server that gives one good answer after the other, or with `cut` half of one.
async fn tls_server(acceptor: TlsAcceptor, cut: bool) -> Server {
    Server::start(move |conn| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(socket) = acceptor.accept(conn.socket).await else { return };
            assert_eq!(socket.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
            let mut conn = Conn { socket, log: conn.log };
            while conn.request().await.is_some() {
                if cut {
                    conn.write("HTTP/1.1 200 OK\r\n\r\n{\"output\": {}}").await;
                    return;
                }
                conn.write(&good()).await;
            }
        }
    })
    .await
}

fn secure(server: &Server, host: &str, ca_file: Option<PathBuf>) -> HttpDefinition {
    let mut definition = definition(&format!("https://{host}:{}/v1/do", server.port));
    definition.ca_file = ca_file;
    definition
}

#[tokio::test]
async fn an_authority_of_ones_own_is_trusted_and_the_connection_used_again() {
    let identity = identity("localhost");
    let server = tls_server(identity.acceptor.clone(), false).await;
    let provider = open(&secure(&server, "localhost", Some(identity.ca_file.clone())));
    for _ in 0..3 {
        let (answer, phase) = ask_with(&provider, json!(1)).await;
        assert_eq!((output(answer), phase), (json!({"ok": true}), Phase::InBody));
    }
    assert_eq!((server.log.requests().len(), server.log.connections()), (3, 1));
}

#[tokio::test]
async fn a_stranger_and_a_wrong_name_are_sent_nothing() {
    let (identity, other) = (identity("localhost"), identity("localhost"));
    let server = tls_server(identity.acceptor.clone(), false).await;
    for (host, ca_file) in [("localhost", other.ca_file.clone()), ("127.0.0.1", identity.ca_file.clone())] {
        let (answer, phase) = ask_with(&open(&secure(&server, host, Some(ca_file))), json!(1)).await;
        let broken = broken(answer);
        assert_eq!((broken.meaning, phase), (failed(FailureClass::NotSent), Phase::BeforeConnect));
        assert!(broken.message.contains("TLS failed: invalid peer certificate"), "{}", broken.message);
    }
    assert_eq!(server.log.requests().len(), 0);
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_is_sent_nothing() {
    let identity = identity("localhost");
    let server = Server::start(|mut conn| async move {
        conn.write(&http(400, "", "speak plainly")).await;
        conn.closed().await;
    })
    .await;
    let (answer, phase) =
        ask_with(&open(&secure(&server, "localhost", Some(identity.ca_file.clone()))), json!(1)).await;
    assert_eq!((broken(answer).meaning, phase), (failed(FailureClass::NotSent), Phase::BeforeConnect));
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_a_connect_timeout() {
    let identity = identity("localhost");
    let server = Server::start(|mut conn| async move { conn.closed().await }).await;
    let mut definition = secure(&server, "localhost", Some(identity.ca_file.clone()));
    definition.connect_timeout = Duration::from_millis(200);
    let (answer, phase) = ask_with(&open(&definition), json!(1)).await;
    let broken = broken(answer);
    assert_eq!((broken.meaning, phase), (failed(FailureClass::NotSent), Phase::BeforeConnect));
    assert!(broken.message.ends_with("no connection within 200ms"), "{}", broken.message);
}

#[tokio::test]
async fn a_tls_connection_cut_without_goodbye_is_no_end_of_an_answer() {
    let identity = identity("localhost");
    let server = tls_server(identity.acceptor.clone(), true).await;
    let provider = open(&secure(&server, "localhost", Some(identity.ca_file.clone())));
    assert_eq!(broken(ask_with(&provider, json!(1)).await.0).meaning, unknown(Cause::CutShort));
    assert_eq!(server.log.requests().len(), 1);
}
