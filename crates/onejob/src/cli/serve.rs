//! `onejob serve`: one node.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};
use tracing_subscriber::EnvFilter;

use crate::config::{Config, RemarkKind};
use crate::engine::Engine;

/// Runs a node until SIGTERM or SIGINT; a second signal ends it at once.
pub(crate) fn run(config: &Path, log_json: bool) -> ExitCode {
    start_logging(log_json);
    // A call each in flight and a connection each that waits: the soft limit of most systems is 1024.
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        warn!(%error, "the limit of open files stays as it is");
    }
    let config = match Config::load(config) {
        Ok(config) => Arc::new(config),
        Err(errors) => {
            eprintln!("{errors}");
            return ExitCode::FAILURE;
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            error!(%error, "no threads to run on");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(serve(config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            error!("{message}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(config: Arc<Config>) -> Result<(), String> {
    for remark in config.remarks.iter().filter(|r| r.kind == RemarkKind::NotSupportedYet) {
        warn!(key = remark.key, line = remark.line, "{}", remark.message);
    }
    let engine = Engine::open(config.clone()).await.map_err(|error| error.to_string())?;
    let listen = config.server.listen;
    let listener =
        tokio::net::TcpListener::bind(listen).await.map_err(|error| format!("cannot listen on {listen}: {error}"))?;
    let mut term = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
    info!(%listen, store = ?config.server.store, "ready");
    let (api_stop, api_stopped) = tokio::sync::oneshot::channel::<()>();
    let api = tokio::spawn(crate::api::serve(engine.clone(), listener, async {
        // A dropped sender is as good a reason to stop.
        let _stopped = api_stopped.await;
    }));
    engine
        .run(async {
            tokio::select! { _ = term.recv() => {}, _ = interrupt.recv() => {} }
            tokio::spawn(async move {
                tokio::select! { _ = term.recv() => {}, _ = interrupt.recv() => {} }
                warn!("told twice to stop: what is in flight becomes unknown at the next start");
                std::process::exit(1);
            });
        })
        .await;
    // The engine is done: answers of the last moment may still leave.
    drop(api_stop);
    api.await.map_err(|error| error.to_string())?;
    info!("stopped");
    Ok(())
}

fn start_logging(json: bool) {
    let chosen = std::env::var("ONEJOB_LOG").ok().filter(|chosen| !chosen.is_empty());
    let filter = EnvFilter::try_new(chosen.as_deref().unwrap_or("info"));
    let wrong = filter.as_ref().err().map(ToString::to_string);
    let filter = filter.unwrap_or_else(|_| EnvFilter::new("info"));
    // A log in a file has no colours.
    let colour = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let builder = builder.with_ansi(colour);
    if json {
        builder.json().flatten_event(true).init()
    } else {
        builder.compact().init()
    }
    if let Some(wrong) = wrong {
        warn!("ONEJOB_LOG is not understood ({wrong}): info is logged");
    }
}
