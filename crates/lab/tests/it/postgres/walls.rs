//! The database is the second wall: it refuses by name what the rules forbid, whoever asks.

use onejob::store::postgres;
use onejob_lab::postgres::{Cluster, Database};
use tokio_postgres::{Client, SimpleQueryMessage};

/// A queued job 1, a job 2 with an unknown attempt, a succeeded job 3, all exclusive.
async fn small_world() -> (Database<'static>, Client) {
    let database = Cluster::shared().database().await;
    let client = database.client().await;
    client
        .batch_execute(
            "INSERT INTO onejob.jobs (id, owner, idempotency_key, task, fingerprint_version, fingerprint, effects,
                priority, state, version, revision, tries_from, next_provider, next_primary, due_at, completed_by, result,
                duplicates, created_at, updated_at, metadata, input)
            SELECT lpad(n::text, 32, '0')::uuid, 'o' || n, 'k' || n, 't', 1, decode(repeat('00', 32), 'hex'), 'exclusive', 0,
                (ARRAY['queued', 'unknown', 'succeeded'])[n], 0, 0, 0, (ARRAY['main'])[n], (ARRAY['main'])[n],
                (ARRAY[0])[n], CASE n WHEN 3 THEN lpad('3', 32, '0')::uuid END, CASE n WHEN 3 THEN '1' END, 0, 0, 0, '{}', '1'
            FROM generate_series(1, 3) AS n;
            INSERT INTO onejob.attempts (id, job_id, number, task, provider, primary_provider, by_hand, exclusive, node,
                version_read, started_at, state, cause, unknown_since, finished_at)
            SELECT id, id, 1, 't', 'main', 'main', false, true, id, 0, 0, state,
                CASE WHEN state = 'unknown' THEN 'timeout' END, CASE WHEN state = 'unknown' THEN 0 END,
                CASE WHEN state = 'succeeded' THEN 0 END
            FROM onejob.jobs WHERE state <> 'queued'",
        )
        .await
        .unwrap();
    (database, client)
}

/// The statement is refused as a broken constraint of that name.
async fn wall(client: &Client, statement: &str, name: &str) {
    let error = client.batch_execute(statement).await.expect_err(statement);
    let db = error.as_db_error().unwrap();
    assert!(db.code().code().starts_with("23"), "{statement}: {error:?}");
    assert_eq!(db.constraint(), Some(name), "{statement}: {error:?}");
}

const ANOTHER: &str =
    "INSERT INTO onejob.attempts (id, job_id, number, task, provider, primary_provider, by_hand, exclusive,
    certificate_id, node, version_read, started_at, state) ";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r1_the_database_refuses_a_second_job_for_a_key() {
    let (_database, client) = small_world().await;
    let twice =
        "INSERT INTO onejob.jobs (id, owner, idempotency_key, effects, priority, state, version, revision, tries_from,
        duplicates, created_at, updated_at, metadata)
        VALUES (gen_random_uuid(), 'o1', 'k1', 'exclusive', 0, 'cancelled', 0, 0, 0, 0, 0, 0, '{}')";
    wall(&client, twice, "jobs_one_per_owner_and_key").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r3_the_database_refuses_another_intent() {
    let (_database, client) = small_world().await;
    for change in [
        "id = gen_random_uuid()",
        "owner = 'x'",
        "idempotency_key = 'x'",
        "task = 'x'",
        "input = '2'",
        "provider = 'x'",
        "fingerprint = decode(repeat('11', 32), 'hex')",
        "fingerprint_version = 2",
        "task = NULL, input = NULL, fingerprint = NULL, fingerprint_version = NULL, state = 'cancelled'",
    ] {
        wall(&client, &format!("UPDATE onejob.jobs SET {change} WHERE owner = 'o2'"), "jobs_intent_never_changes")
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r4_the_database_refuses_an_attempt_beside_an_open_one() {
    let (_database, client) = small_world().await;
    let second = |exclusive: bool, state: &str| {
        format!(
            "{ANOTHER} SELECT gen_random_uuid(), job_id, 9, task, provider, primary_provider, by_hand, {exclusive}, NULL, node,
                version_read, started_at, '{state}' FROM onejob.attempts WHERE state IN ('starting', 'running', 'unknown')"
        )
    };
    let one_open = "attempts_one_open_per_exclusive_job";
    let none_beside = "attempts_none_beside_starting_or_unknown";
    // Beside an unknown one, whatever the task allows.
    wall(&client, &second(true, "starting"), one_open).await;
    wall(&client, &second(false, "starting"), none_beside).await;
    // Beside a running one.
    let become_ = |state: &str, more: &str| {
        format!(
            "UPDATE onejob.attempts SET state = '{state}', cause = NULL, unknown_since = NULL {more} WHERE finished_at IS NULL"
        )
    };
    client.batch_execute(&become_("running", "")).await.unwrap();
    wall(&client, &second(true, "starting"), one_open).await;
    // Beside a starting one, also where the trigger is gone.
    client.batch_execute(&become_("starting", "")).await.unwrap();
    wall(&client, &second(true, "starting"), one_open).await;
    wall(&client, &second(false, "starting"), none_beside).await;
    client.batch_execute("DROP TRIGGER attempts_none_beside_starting_or_unknown ON onejob.attempts").await.unwrap();
    client.batch_execute(&become_("starting", ", exclusive = false")).await.unwrap();
    wall(&client, &second(false, "starting"), "attempts_one_starting_per_job").await;
    client.batch_execute(&second(false, "running")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r6_the_database_refuses_a_second_result() {
    let (_database, client) = small_world().await;
    for change in
        ["completed_by = gen_random_uuid()", "result = '2'", "completed_by = NULL, result = NULL, state = 'running'"]
    {
        let change = format!("UPDATE onejob.jobs SET {change} WHERE state = 'succeeded'");
        wall(&client, &change, "jobs_result_slot_is_written_once").await;
    }
}

/// How many rows one of the store's own statements writes, with these parameters.
async fn rows(client: &Client, file: &str, parameters: &str) -> u64 {
    let (_, text) = postgres::statements().find(|(name, _)| *name == file).unwrap();
    client.batch_execute(&format!("DEALLOCATE ALL; PREPARE wall AS {text}")).await.unwrap();
    let said = client.simple_query(&format!("EXECUTE wall({parameters})")).await.unwrap();
    said.iter().filter(|message| matches!(message, SimpleQueryMessage::Row(_))).count() as u64
}

fn id(number: u8) -> String {
    format!("{{{number:032}}}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r6_the_completing_statement_finds_no_row_when_the_version_the_slot_or_the_revision_is_another() {
    let (_database, client) = small_world().await;
    // A filled slot is guarded by the statement itself, also where the trigger is gone.
    client.batch_execute("DROP TRIGGER jobs_result_slot_is_written_once ON onejob.jobs").await.unwrap();
    let complete = async |job: u8, revision: u8, version: u8| {
        let parameters = format!("'{0}', '{{{revision}}}', '{{{version}}}', '{{1}}', '{0}', '{{2}}', '{{0}}'", id(job));
        rows(&client, "complete.sql", &parameters).await
    };
    assert_eq!(complete(3, 0, 0).await, 0, "its slot is filled");
    assert_eq!(complete(2, 0, 7).await, 0, "its version is another");
    assert_eq!(complete(2, 7, 0).await, 0, "something was written since");
    assert_eq!((complete(2, 0, 0).await, complete(2, 1, 1).await), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r6_the_closing_statement_finds_no_row_when_the_version_the_slot_or_the_revision_is_another() {
    let (_database, client) = small_world().await;
    let cancel = async |job: u8, revision: u8, version: u8| {
        let none = "'{NULL}', ".repeat(8);
        let parameters = format!(
            "'{}', '{{{revision}}}', '{{{version}}}', '{{cancelled}}', '{{1}}', '{{0}}', {none}'{{0}}'",
            id(job)
        );
        rows(&client, "write_job.sql", &parameters).await
    };
    assert_eq!(cancel(3, 0, 0).await, 0, "its slot is filled");
    assert_eq!(cancel(2, 0, 7).await, 0, "its version is another");
    assert_eq!(cancel(2, 7, 0).await, 0, "something was written since");
    assert_eq!((cancel(2, 0, 0).await, cancel(1, 0, 0).await), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r8_the_writing_statement_finds_no_row_when_the_attempt_has_ended() {
    let (_database, client) = small_world().await;
    client.batch_execute("DROP TRIGGER attempts_ended_never_change ON onejob.attempts").await.unwrap();
    let write = async |job: u8| {
        let none = vec!["'{NULL}'"; 15].join(", ");
        rows(&client, "write_attempt.sql", &format!("'{}', '{{1}}', '{{running}}', {none}", id(job))).await
    };
    assert_eq!((write(3).await, write(2).await), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r12_the_burying_statement_looks_again_at_what_may_go() {
    let (_database, client) = small_world().await;
    assert_eq!(rows(&client, "bury.sql", &format!("'{}', 1", id(1))).await, 0, "it is queued");
    assert_eq!(rows(&client, "bury.sql", &format!("'{}', 1", id(2))).await, 0, "it is unknown");
    assert_eq!(rows(&client, "bury.sql", &format!("'{}', 0", id(3))).await, 0, "it is too young");
    client.batch_execute("UPDATE onejob.jobs SET state = 'cancelled' WHERE state = 'unknown'").await.unwrap();
    assert_eq!(rows(&client, "bury.sql", &format!("'{}', 1", id(2))).await, 0, "what was sent may be alive");
    assert_eq!(rows(&client, "bury.sql", &format!("'{}', 1", id(3))).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r8_the_database_refuses_to_change_an_ended_attempt() {
    let (_database, client) = small_world().await;
    let change = "UPDATE onejob.attempts SET handle = 'x' WHERE state = 'succeeded'";
    wall(&client, change, "attempts_ended_never_change").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r9_the_database_refuses_an_attempt_elsewhere_without_a_certificate() {
    let (_database, client) = small_world().await;
    let elsewhere = |by_hand: bool, certificate: &str| {
        format!(
            "{ANOTHER} VALUES (gen_random_uuid(), gen_random_uuid(), 1, 't', 'backup', 'main', {by_hand}, true, {certificate},
                gen_random_uuid(), 0, 0, 'starting')"
        )
    };
    wall(&client, &elsewhere(false, "NULL"), "attempts_elsewhere_only_with_certificate").await;
    client.batch_execute(&elsewhere(true, "NULL")).await.unwrap();
    wall(&client, &elsewhere(false, "gen_random_uuid()"), "attempts_certificate_holds").await;
    certify(&client).await;
    client.batch_execute(&elsewhere(false, CERTIFICATE)).await.unwrap();
}

const CERTIFICATE: &str = "lpad('9', 32, '0')::uuid";

/// A certificate of the task `t` at `backup`, until 10.
async fn certify(client: &Client) {
    let row = format!("VALUES ({CERTIFICATE}, 't', 'backup', decode(repeat('00', 32), 'hex'), '{{}}', 0, 10)");
    let columns = "(id, task, provider, contract_digest, detail, issued_at, valid_until)";
    client.batch_execute(&format!("INSERT INTO onejob.certificates {columns} {row}")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r9_the_database_refuses_an_attempt_whose_certificate_does_not_hold() {
    let (_database, client) = small_world().await;
    certify(&client).await;
    let attempt = |task: &str, provider: &str, started_at: i64| {
        format!(
            "{ANOTHER} VALUES (gen_random_uuid(), gen_random_uuid(), 1, '{task}', '{provider}', 'main', false, true,
                {CERTIFICATE}, gen_random_uuid(), 0, {started_at}, 'starting')"
        )
    };
    client.batch_execute(&attempt("t", "backup", 9)).await.unwrap();
    for refused in [attempt("other", "backup", 9), attempt("t", "third", 9), attempt("t", "backup", 10)] {
        wall(&client, &refused, "attempts_certificate_holds").await;
    }
    let suspend = "UPDATE onejob.certificates SET suspended_at = 5, suspended_because = 'x'";
    client.batch_execute(suspend).await.unwrap();
    wall(&client, &attempt("t", "backup", 9), "attempts_certificate_holds").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r9_the_database_refuses_to_change_a_certificate_but_for_suspending_it_once() {
    let (_database, client) = small_world().await;
    certify(&client).await;
    let change = |change: &str| format!("UPDATE onejob.certificates SET {change}");
    for what in [
        "id = gen_random_uuid()",
        "task = 'x'",
        "provider = 'x'",
        "contract_digest = decode(repeat('11', 32), 'hex')",
        "model = 'x'",
        "detail = 'x'",
        "issued_at = 1",
        "valid_until = 99",
    ] {
        wall(&client, &change(what), "certificates_never_change").await;
    }
    wall(&client, &change("suspended_at = 5"), "certificates_suspended_says_why").await;
    client.batch_execute(&change("suspended_at = 5, suspended_because = 'x'")).await.unwrap();
    for what in ["suspended_at = NULL, suspended_because = NULL", "suspended_because = 'y'"] {
        wall(&client, &change(what), "certificates_never_change").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_database_refuses_rows_that_no_state_can_mean() {
    let (_database, client) = small_world().await;
    for (change, wanted) in [
        ("state = 'lost'", "jobs_state_is_known"),
        ("next_provider = 'main', next_primary = 'main', due_at = 0", "jobs_plan_exactly_while_queued"),
        ("error_class = 'refused'", "jobs_error_exactly_when_failed"),
        ("completed_by = gen_random_uuid(), result = '1'", "jobs_result_exactly_when_succeeded"),
        ("effects = 'none'", "jobs_effects_are_known"),
    ] {
        wall(&client, &format!("UPDATE onejob.jobs SET {change} WHERE owner = 'o2'"), wanted).await;
    }
    let change = "UPDATE onejob.attempts SET cause = NULL WHERE state = 'unknown'";
    wall(&client, change, "attempts_unknown_says_why").await;
}
