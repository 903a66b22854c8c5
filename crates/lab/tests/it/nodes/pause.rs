//! A node is stopped past its lease, under load, and goes on as if no time had passed.

use onejob_lab::nodes::{Caller, World, until};
use onejob_lab::postgres::{Cluster, Database};
use serde_json::json;

/// The boot id under which an attempt was started, as text.
async fn node_of(database: &Database<'_>, job: &str) -> String {
    let job = onejob::id::parse_job(job).unwrap();
    let find = format!("SELECT node::text FROM onejob.attempts WHERE job_id = lpad('{:x}', 32, '0')::uuid", job.0);
    database.client().await.query_one(&find, &[]).await.unwrap().get(0)
}

async fn started_by(database: &Database<'_>, node: &str) -> i64 {
    let count = format!("SELECT count(*) FROM onejob.attempts WHERE node = '{node}'");
    database.client().await.query_one(&count, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r6_a_node_that_was_paused_past_its_lease_starts_nothing_and_its_late_answers_count_once() {
    let database = Cluster::shared().database().await;
    let url = database.url();
    let world = World::start(&[url.clone(), url.clone()]).await;
    let held = world.held_calls(&url, 0, 4, "held").await;
    for id in held.values() {
        // Told once, after a second; it must not be told after the pause, for it ends an unknown too.
        until("the call is known to run", || async { world.job(0, id).await["attempts"][0]["state"] == "running" })
            .await;
    }
    let load = world.load(12);
    load.go_on_for(60).await;
    let mut ids: Vec<&String> = held.values().collect();
    ids.sort();
    let stale = node_of(&database, ids[0]).await;

    world.nodes[0].pause();
    for id in &ids {
        let job = world.waited(1, id).await;
        assert_eq!((&job["state"], &job["attempts"][0]["cause"]), (&"unknown".into(), &"node_died".into()), "{job:#}");
        assert_eq!(job["attempts"].as_array().map(Vec::len), Some(1), "nothing was started in its place");
    }
    let started = started_by(&database, &stale).await;
    load.go_on_for(60).await;
    // An operator ends one before its answer is heard.
    let attempt = world.job(1, ids[0]).await["attempts"][0]["id"].as_str().unwrap().to_owned();
    let result = world.provider.of_job(ids[0])[0].output();
    let word = json!({ "outcome": "succeeded", "result": result, "reason": "I saw it there" });
    let resolved =
        Caller::of(world.nodes[1].port).post(&format!("/v1/attempts/{attempt}/resolve"), word).await.unwrap();
    assert_eq!((resolved.status, &resolved.json["state"]), (200, &"succeeded".into()), "{resolved:?}");

    world.provider.open("held");
    world.nodes[0].go_on();
    for id in &ids[1..] {
        // Still open: its late answer wins.
        until("the late answer is in", || async { world.job(1, id).await["state"] == "succeeded" }).await;
        let job = world.job(1, id).await;
        assert_eq!(job["attempts"][0]["resolution"]["by"], "late_answer", "{job:#}");
    }
    assert_eq!(world.job(1, ids[0]).await["attempts"][0]["resolution"]["by"], "operator");
    world.nodes[0].until_ready().await;
    load.go_on_for(60).await;
    let mut acknowledged = load.end().await;
    acknowledged.extend(held.clone());
    let audit = world.audit(1, &url, &acknowledged).await;
    assert_eq!(started_by(&database, &stale).await, started, "nothing was started on the stale lease");
    println!("{audit:?}");
    assert!(audit.jobs >= 180, "{audit:?}");
}
