use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, params};
use tempfile::TempDir;

use super::{OpenError, SqliteOptions, open, sql};

fn fresh() -> (TempDir, PathBuf, Connection) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("onejob.db");
    let connection = open::writer(&file, &SqliteOptions::default()).unwrap();
    (dir, file, connection)
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/store/sqlite")
}

/// Holds a text against a file beside this one; `ONEJOB_BLESS=1` writes the file.
fn hold_against(file: &Path, text: &str) {
    if std::env::var_os("ONEJOB_BLESS").is_some() {
        std::fs::write(file, text).unwrap();
    }
    let stored = std::fs::read_to_string(file).unwrap_or_default();
    assert_eq!(stored, text, "{} is not what it should be; ONEJOB_BLESS=1 writes it anew", file.display());
}

#[test]
fn every_statement_can_be_prepared() {
    let (_dir, file, writer) = fresh();
    let reader = open::reader(&file, &SqliteOptions::default()).unwrap();
    for (name, statement) in sql::ALL {
        writer.prepare(statement).unwrap_or_else(|error| panic!("{name}: {error}"));
        reader.prepare(statement).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn every_sql_file_is_a_statement_of_the_list() {
    for entry in std::fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".sql") && name != "schema.sql" {
            assert!(sql::ALL.iter().any(|(file, _)| *file == name), "{name} is not in sql.rs");
        }
    }
}

#[test]
fn the_schema_is_the_one_that_is_written_down() {
    let (_dir, _file, connection) = fresh();
    let mut statement = connection
        .prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY tbl_name DESC, type = 'table' DESC, type, name")
        .unwrap();
    let parts: Vec<String> = statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let mut text = String::from("-- The schema after all migrations, as SQLite holds it. A test keeps it true.\n");
    for part in parts {
        write!(text, "\n{part};\n").unwrap();
    }
    hold_against(&folder().join("schema.sql"), &text);
}

/// Statements that may sort or walk, because what they sort or walk is small or was asked for.
const MAY_SORT: [&str; 3] = ["list_jobs_of_owner.sql", "list_jobs_running.sql", "list_attempts_live.sql"];

fn plans(connection: &Connection) -> String {
    let mut text = String::from("How SQLite carries out each statement. A test keeps it true.\n");
    for (name, statement) in sql::ALL {
        write!(text, "\n{name}\n").unwrap();
        let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
        let mut rows = explain.raw_query();
        while let Some(row) = rows.next().unwrap() {
            let step: String = row.get(3).unwrap();
            assert!(!step.contains("TEMP B-TREE") || MAY_SORT.contains(name), "{name} sorts: {step}");
            assert!(
                !step.starts_with("SCAN")
                    || step.contains("INDEX")
                    || step.starts_with("SCAN (")
                    || step == "SCAN CONSTANT ROW",
                "{name} walks a table: {step}"
            );
            assert!(!step.contains("AUTOMATIC"), "{name} builds an index: {step}");
            writeln!(text, "    {step}").unwrap();
        }
    }
    text
}

/// Many finished jobs, some queued, some unknown attempts.
fn load(connection: &Connection, jobs: u32) {
    connection.execute_batch("BEGIN").unwrap();
    let mut job = connection
        .prepare(
            "INSERT INTO jobs (id, owner, idempotency_key, task, fingerprint_version, fingerprint, effects, priority, state,
                version, tries_from, next_provider, next_primary, due_at, completed_by, result, duplicates, created_at,
                updated_at, metadata, input, deadline)
            VALUES (?1, 'o' || (?2 % 100), 'k' || ?2, 't', 1, zeroblob(32), 'exclusive', ?2 % 7, ?3, 0, 0, ?4, ?4, ?5, ?6, ?7,
                0, 0, 0, '{}', '1', ?5)",
        )
        .unwrap();
    let mut attempt = connection
        .prepare(
            "INSERT INTO attempts (job_id, id, number, task, provider, primary_provider, by_hand, exclusive, node,
                version_read, started_at, state, cause, unknown_since, finished_at)
            VALUES (?1, ?1, 1, 't', 'main', 'main', 0, 1, zeroblob(16), 0, 0, ?2, ?3, ?4, ?5)",
        )
        .unwrap();
    for number in 0..jobs {
        let id = u128::from(number + 1).to_be_bytes();
        let (state, queued) = match number % 50 {
            0 => ("queued", Some(("main", i64::from(number)))),
            1 => ("unknown", None),
            _ => ("succeeded", None),
        };
        let done = (state == "succeeded").then_some(id);
        job.execute(params![id, number, state, queued.map(|q| q.0), queued.map(|q| q.1), done, done.map(|_| "1")])
            .unwrap();
        if state != "queued" {
            let unknown = (state == "unknown").then_some(i64::from(number));
            attempt.execute(params![id, state, unknown.map(|_| "timeout"), unknown, done.map(|_| 0)]).unwrap();
        }
    }
    connection.execute_batch("COMMIT").unwrap();
}

#[test]
fn statements_keep_their_plans_on_an_empty_file_on_a_full_one_and_with_statistics() {
    let (_dir, _file, connection) = fresh();
    let empty = plans(&connection);
    hold_against(&folder().join("plans.txt"), &empty);
    load(&connection, 5_000);
    assert_eq!(plans(&connection), empty);
    connection.execute_batch("ANALYZE").unwrap();
    assert_eq!(plans(&connection), empty);
}

fn wall(connection: &Connection, statement: &str, name: &str) {
    let error = connection.execute_batch(statement).expect_err(statement);
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::ConstraintViolation), "{statement}: {error}");
    assert!(error.to_string().contains(name), "{statement}: {error}");
}

/// A file with a succeeded job 3, a queued job 1 and an unknown job 2, to run into walls with.
fn small_world() -> (TempDir, PathBuf, Connection) {
    let (dir, file, connection) = fresh();
    load(&connection, 3);
    (dir, file, connection)
}

const COPY_ATTEMPT: &str =
    "INSERT INTO attempts (job_id, id, number, task, provider, primary_provider, by_hand, exclusive,
    node, version_read, started_at, state, cause, unknown_since, finished_at) ";

#[test]
fn r1_the_database_refuses_a_second_job_for_a_key() {
    let (_dir, _file, db) = small_world();
    wall(
        &db,
        "UPDATE OR FAIL jobs SET owner = 'o0', idempotency_key = 'k0' WHERE owner = 'o1'",
        "jobs_intent_never_changes",
    );
    db.execute_batch("DROP TRIGGER jobs_intent_never_changes").unwrap();
    let twice = "UPDATE OR FAIL jobs SET owner = 'o0', idempotency_key = 'k0' WHERE owner = 'o1'";
    wall(&db, twice, "jobs.owner, jobs.idempotency_key");
}

#[test]
fn r3_the_database_refuses_another_intent() {
    let (_dir, _file, db) = small_world();
    for change in [
        "id = randomblob(16)",
        "owner = 'x'",
        "idempotency_key = 'x'",
        "task = 'x'",
        "input = '2'",
        "provider = 'x'",
        "fingerprint = randomblob(32)",
        "fingerprint_version = 2",
        "task = NULL, input = NULL, fingerprint = NULL, fingerprint_version = NULL, state = 'cancelled'",
    ] {
        wall(&db, &format!("UPDATE jobs SET {change} WHERE owner = 'o2'"), "jobs_intent_never_changes");
    }
}

#[test]
fn r4_the_database_refuses_an_attempt_beside_an_open_one() {
    let (_dir, _file, db) = small_world();
    let second = |exclusive: i32, state: &str| {
        format!(
            "{COPY_ATTEMPT} SELECT job_id, randomblob(16), 9, task, provider, primary_provider, by_hand, {exclusive}, node,
                version_read, started_at, '{state}', NULL, NULL, NULL FROM attempts WHERE state IN ('starting', 'running', 'unknown')"
        )
    };
    // Beside an unknown one, whatever the task allows.
    for exclusive in [0, 1] {
        wall(&db, &second(exclusive, "starting"), "attempts_none_beside_starting_or_unknown");
    }
    // Beside a running one.
    let running = "UPDATE attempts SET state = 'running', cause = NULL, unknown_since = NULL WHERE state = 'unknown'";
    db.execute_batch(running).unwrap();
    wall(&db, &second(1, "starting"), "attempts.job_id");
    // Beside a starting one, also where the trigger is gone.
    db.execute_batch("UPDATE attempts SET state = 'starting' WHERE state = 'running'").unwrap();
    wall(&db, &second(0, "starting"), "attempts_none_beside_starting_or_unknown");
    db.execute_batch("DROP TRIGGER attempts_none_beside_starting_or_unknown").unwrap();
    wall(&db, &second(1, "starting"), "attempts.job_id");
    db.execute_batch("UPDATE attempts SET exclusive = 0 WHERE state = 'starting'").unwrap();
    wall(&db, &second(0, "starting"), "attempts.job_id");
    db.execute_batch(&second(0, "running")).unwrap();
}

#[test]
fn r6_the_database_refuses_a_second_result() {
    let (_dir, _file, db) = small_world();
    for change in
        ["completed_by = randomblob(16)", "result = '2'", "completed_by = NULL, result = NULL, state = 'running'"]
    {
        wall(&db, &format!("UPDATE jobs SET {change} WHERE state = 'succeeded'"), "jobs_result_slot_is_written_once");
    }
}

#[test]
fn r6_the_completing_statement_finds_no_row_when_the_version_or_the_slot_is_another() {
    let (_dir, _file, db) = small_world();
    let complete = |id: u128, version: i64| {
        let row = params![id.to_be_bytes(), version, version + 1, id.to_be_bytes(), "2", 0];
        db.prepare(sql::COMPLETE).unwrap().execute(row).unwrap()
    };
    assert_eq!((complete(3, 0), complete(2, 7)), (0, 0));
    assert_eq!((complete(2, 0), complete(2, 1)), (1, 0));
}

#[test]
fn r6_the_closing_statement_finds_no_row_when_the_version_or_the_slot_is_another() {
    let (_dir, _file, db) = small_world();
    let cancel = |id: u128, version: i64| {
        let none: Option<&str> = None;
        let row = params![
            id.to_be_bytes(),
            version,
            "cancelled",
            version + 1,
            0,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            0
        ];
        db.prepare(sql::WRITE_JOB).unwrap().execute(row).unwrap()
    };
    assert_eq!((cancel(3, 0), cancel(2, 7)), (0, 0));
    assert_eq!(cancel(2, 0), 1);
}

#[test]
fn r8_the_database_refuses_to_change_an_ended_attempt() {
    let (_dir, _file, db) = small_world();
    let change = "UPDATE attempts SET handle = 'x' WHERE state = 'succeeded'";
    wall(&db, change, "attempts_ended_never_change");
}

#[test]
fn r8_the_writing_statement_finds_no_row_when_the_attempt_has_ended() {
    let (_dir, _file, db) = small_world();
    db.execute_batch("DROP TRIGGER attempts_ended_never_change").unwrap();
    let write = |id: u128| {
        let none: Option<&str> = None;
        let row = params![
            id.to_be_bytes(),
            1,
            "running",
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            none
        ];
        db.prepare(sql::WRITE_ATTEMPT).unwrap().execute(row).unwrap()
    };
    assert_eq!((write(3), write(2)), (0, 1));
}

#[test]
fn r9_the_database_refuses_an_attempt_elsewhere_without_a_certificate() {
    let (_dir, _file, db) = small_world();
    let elsewhere = |by_hand: i32, certificate: &str| {
        format!(
            "INSERT INTO attempts (job_id, id, number, task, provider, primary_provider, by_hand, exclusive, certificate_id,
                node, version_read, started_at, state)
            VALUES (randomblob(16), randomblob(16), 1, 't', 'backup', 'main', {by_hand}, 1, {certificate}, zeroblob(16), 0, 0,
                'starting')"
        )
    };
    wall(&db, &elsewhere(0, "NULL"), "attempts_elsewhere_only_with_certificate");
    db.execute_batch(&elsewhere(1, "NULL")).unwrap();
    wall(&db, &elsewhere(0, "randomblob(16)"), "attempts_certificate_holds");
    certify(&db);
    db.execute_batch(&elsewhere(0, "zeroblob(16)")).unwrap();
}

/// A certificate of the task `t` at `backup`, until 10.
fn certify(db: &Connection) {
    let row = "VALUES (zeroblob(16), 't', 'backup', zeroblob(32), '{}', 0, 10)";
    let columns = "(id, task, provider, contract_digest, detail, issued_at, valid_until)";
    db.execute_batch(&format!("INSERT INTO certificates {columns} {row}")).unwrap();
}

#[test]
fn r9_the_database_refuses_an_attempt_whose_certificate_does_not_hold() {
    let (_dir, _file, db) = small_world();
    certify(&db);
    let attempt = |task: &str, provider: &str, started_at: i64| {
        format!(
            "INSERT INTO attempts (job_id, id, number, task, provider, primary_provider, by_hand, exclusive, certificate_id,
                node, version_read, started_at, state)
            VALUES (randomblob(16), randomblob(16), 1, '{task}', '{provider}', 'main', 0, 1, zeroblob(16), zeroblob(16), 0,
                {started_at}, 'starting')"
        )
    };
    db.execute_batch(&attempt("t", "backup", 9)).unwrap();
    for refused in [attempt("other", "backup", 9), attempt("t", "third", 9), attempt("t", "backup", 10)] {
        wall(&db, &refused, "attempts_certificate_holds");
    }
    db.execute_batch("UPDATE certificates SET suspended_at = 5, suspended_because = 'x'").unwrap();
    wall(&db, &attempt("t", "backup", 9), "attempts_certificate_holds");
}

#[test]
fn r9_the_database_refuses_to_change_a_certificate_but_for_suspending_it_once() {
    let (_dir, _file, db) = small_world();
    certify(&db);
    for change in [
        "id = randomblob(16)",
        "task = 'x'",
        "provider = 'x'",
        "contract_digest = randomblob(32)",
        "model = 'x'",
        "detail = 'x'",
        "issued_at = 1",
        "valid_until = 99",
    ] {
        wall(&db, &format!("UPDATE certificates SET {change}"), "certificates_never_change");
    }
    wall(&db, "UPDATE certificates SET suspended_at = 5", "certificates_suspended_says_why");
    db.execute_batch("UPDATE certificates SET suspended_at = 5, suspended_because = 'x'").unwrap();
    for change in ["suspended_at = NULL, suspended_because = NULL", "suspended_because = 'y'"] {
        wall(&db, &format!("UPDATE certificates SET {change}"), "certificates_never_change");
    }
}

#[test]
fn the_database_refuses_rows_that_no_state_can_mean() {
    let (_dir, _file, db) = small_world();
    for (change, name) in [
        ("state = 'lost'", "state"),
        ("state = 'running'", "jobs_result_slot_is_written_once"),
        ("next_provider = 'main', next_primary = 'main', due_at = 0", "jobs_plan_exactly_while_queued"),
        ("error_class = 'refused'", "jobs_error_exactly_when_failed"),
    ] {
        let change = format!("UPDATE jobs SET {change} WHERE state = 'succeeded'");
        let error = db.execute_batch(&change).expect_err(&change).to_string();
        assert!(error.contains(name) || error.contains("jobs_result_exactly_when_succeeded"), "{change}: {error}");
    }
    wall(&db, "UPDATE attempts SET cause = NULL WHERE state = 'unknown'", "attempts_unknown_says_why");
}

#[test]
fn r10_the_writer_waits_for_the_disk() {
    let (_dir, _file, db) = fresh();
    let pragma = |name: &str| {
        db.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, rusqlite::types::Value>(0)).unwrap()
    };
    assert_eq!(pragma("synchronous"), rusqlite::types::Value::Integer(2));
    assert_eq!(pragma("journal_mode"), rusqlite::types::Value::Text("wal".into()));
    assert_eq!(pragma("busy_timeout"), rusqlite::types::Value::Integer(5_000));
}

#[test]
fn a_file_of_a_newer_onejob_is_refused() {
    let (_dir, file, connection) = fresh();
    let newer = i64::try_from(open::MIGRATIONS.len()).unwrap() + 1;
    connection.pragma_update(None, "user_version", newer).unwrap();
    let error = open::writer(&file, &SqliteOptions::default()).unwrap_err();
    assert!(matches!(error, OpenError::Newer { found, .. } if found == newer), "{error}");
    assert!(error.to_string().contains("use the newer onejob"), "{error}");
}

#[test]
fn a_database_of_another_program_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("theirs.db");
    let theirs = Connection::open(&file).unwrap();
    theirs.execute_batch("CREATE TABLE jobs (id INTEGER); INSERT INTO jobs VALUES (7)").unwrap();
    let error = open::writer(&file, &SqliteOptions::default()).unwrap_err();
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    assert_eq!(theirs.query_row("SELECT id FROM jobs", [], |row| row.get::<_, i64>(0)).unwrap(), 7);
    let mode: String = theirs.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "delete");
}

#[test]
fn a_migrated_file_is_opened_as_it_is() {
    let (_dir, file, connection) = fresh();
    load(&connection, 10);
    drop(connection);
    let again = open::writer(&file, &SqliteOptions::default()).unwrap();
    assert_eq!(again.query_row("SELECT count(*) FROM jobs", [], |row| row.get::<_, i64>(0)).unwrap(), 10);
}
