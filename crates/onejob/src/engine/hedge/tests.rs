use super::*;
use crate::config::Config;
use crate::engine::Engine;

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_slot_leaves_when_the_node_stops() {
    let config = "[server]\nstore = \"memory:\"\n[providers.main]\nkind = \"simulated\"\nconcurrency = 1\n";
    let engine = Engine::open(Arc::new(Config::from_text(config).unwrap())).await.unwrap();
    let inner = engine.inner;
    let held = inner.lanes.try_slot(inner.lanes.get("main").unwrap());
    assert!(held.is_some());
    let (job, attempt) = (id::new_job_id(), id::new_attempt_id());
    let waits = Watch { inner: inner.clone(), job, attempt, after: Duration::from_secs(1) };
    let main = Candidate { provider: "main".into(), certificate: None, refuses: false };
    let (_keep, mut ended) = watch::channel(());
    let mut stage = inner.stage.subscribe();
    let began = Instant::now();
    inner.stage.send_replace(Stage::Draining);
    assert!(waits.slot(&[&main], &mut ended, &mut stage).await.is_none());
    assert!(began.elapsed() < SLOT_PAUSE, "{:?}", began.elapsed());
}
