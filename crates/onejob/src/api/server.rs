//! Accepting connections: time limits on headers, and an end that lets answers out.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tracing::{debug, warn};

use crate::engine::Engine;

/// How long open answers may take to leave when the server ends.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// After an error of `accept` (too many open files): a moment for connections to end.
const AFTER_ACCEPT_ERROR: Duration = Duration::from_millis(100);

/// Serves the API on `listener` until `shutdown` comes, then lets the answers under way out.
pub async fn serve(engine: Engine, listener: TcpListener, shutdown: impl Future<Output = ()>) {
    let header_timeout = engine.config().server.header_timeout;
    let router = super::router(engine);
    let graceful = GracefulShutdown::new();
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(header_timeout).keep_alive(true);
    let http = Arc::new(http);
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let stream = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    warn!(%error, "could not accept a connection");
                    tokio::time::sleep(AFTER_ACCEPT_ERROR).await;
                    continue;
                }
            },
        };
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%error, "a connection ended before it began");
            continue;
        }
        let service = TowerToHyperService::new(router.clone());
        let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "a connection ended badly");
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(LAST_ANSWERS, graceful.shutdown()).await.is_err() {
        warn!("some connections did not end in time");
    }
}
