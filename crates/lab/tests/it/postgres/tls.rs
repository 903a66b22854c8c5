//! Connections that others can read, and connections that they cannot.

use std::fs;

use onejob::store::{PostgresOptions, PostgresStore};
use onejob_lab::postgres::{Cluster, Disk};
use rcgen::{CertifiedKey, generate_simple_self_signed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_is_as_secret_as_the_url_asks() {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let CertifiedKey { cert: other, .. } = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let cluster = Cluster::start(Disk::Fast);
    let database = cluster.database().await;
    let roots = tempfile::tempdir().unwrap();
    let (good, bad) = (roots.path().join("good.pem"), roots.path().join("bad.pem"));
    fs::write(&good, cert.pem()).unwrap();
    fs::write(&bad, other.pem()).unwrap();
    let open = async |host: &str, parameters: &str| {
        let url = format!("postgres://onejob@{host}:{}/{}?notify=off&{parameters}", cluster.port(), database.name);
        match PostgresStore::open(PostgresOptions::parse(&url).unwrap()).await {
            Ok(store) => {
                let secret = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                    WHERE application_name = 'onejob' AND datname = current_database()";
                let row = database.client().await.query_one(secret, &[]).await.unwrap();
                store.close().await;
                Ok(row.get::<_, bool>(0))
            }
            Err(error) => Err(error.to_string()),
        }
    };
    // The server cannot encrypt.
    assert_eq!(open("localhost", "sslmode=prefer").await, Ok(false));
    assert!(open("localhost", "sslmode=require").await.is_err());
    cluster.encrypt(&cert.pem(), &signing_key.serialize_pem()).await;
    assert_eq!(open("localhost", "sslmode=disable").await, Ok(false));
    assert_eq!(open("localhost", "sslmode=prefer").await, Ok(true));
    assert_eq!(open("127.0.0.1", "sslmode=require").await, Ok(true));
    let with = |roots: &std::path::Path| format!("sslmode=verify-full&sslrootcert={}", roots.display());
    assert_eq!(open("localhost", &with(&good)).await, Ok(true));
    for (host, roots) in [("127.0.0.1", &good), ("localhost", &bad)] {
        let error = open(host, &with(roots)).await.unwrap_err();
        assert!(error.contains("TLS"), "{error}");
    }
    let error = open("localhost", "sslmode=verify-full").await.unwrap_err();
    assert!(error.contains("TLS"), "a certificate that this machine does not know: {error}");
    let error = open("localhost", "sslmode=verify-full&sslrootcert=/nowhere.pem").await.unwrap_err();
    assert!(error.contains("sslrootcert /nowhere.pem"), "{error}");
}
