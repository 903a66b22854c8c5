use std::net::TcpListener;

use super::{Check, State, database, examine, jobs};
use crate::config::Config;
use crate::store::PostgresOptions;
use crate::store::examined::{
    ExaminedDatabase, ExaminedJobs, ExaminedNode, ExaminedQueue, ExaminedServer, ExaminedSlot, ExaminedStandby,
    ExaminedTable, ExaminedTransaction,
};

const CONFIG: &str = "[providers.main]\nkind = \"simulated\"\n[tasks.plain]\nproviders = [\"main\"]\n";

/// A database with which all is well.
fn healthy() -> ExaminedDatabase {
    ExaminedDatabase {
        server: ExaminedServer {
            place: "db:5432".into(),
            version: 150_004,
            version_text: "15.4".into(),
            user: "shop".into(),
            database: "shop".into(),
            is_standby: false,
            fsync: "on".into(),
            full_page_writes: "on".into(),
            synchronous_commit: "on".into(),
            connections_most: 97,
            connections_now: 20,
            clock_ahead_ms: -12,
            round_trip_ms: 1,
        },
        schema_version: Ok(1),
        known_version: 1,
        jobs: Ok(ExaminedJobs { now: 10_000_000, ..ExaminedJobs::default() }),
        nodes: Ok(vec![node("a:1", 5_000, None, 3)]),
        tables: Ok(vec![table(100, 10)]),
        transactions: Ok(Vec::new()),
        slots: Ok(Vec::new()),
        standbys: Ok(vec![standby("streaming", 20)]),
    }
}

fn node(name: &str, lease_ms: i64, ended_ms: Option<i64>, open_attempts: i64) -> ExaminedNode {
    ExaminedNode { name: name.into(), age_ms: 90_000, lease_ms, ended_ms, open_attempts }
}

fn table(live: i64, dead: i64) -> ExaminedTable {
    ExaminedTable { name: "jobs".into(), live, dead, cleaned_ms: Some(7_000_000), bytes: 5_000_000 }
}

fn standby(state: &str, lag_ms: i64) -> ExaminedStandby {
    ExaminedStandby { name: "b".into(), state: state.into(), sync: "async".into(), lag_ms }
}

fn transaction(name: &str, age_ms: i64) -> ExaminedTransaction {
    ExaminedTransaction {
        name: name.into(),
        user: "shop".into(),
        application: "psql".into(),
        state: "idle in transaction".into(),
        age_ms,
    }
}

fn judged(seen: &ExaminedDatabase) -> Vec<Check> {
    let options = PostgresOptions::parse("postgres://shop@db/shop").unwrap();
    database::judge(&Config::from_text(CONFIG).unwrap(), &options, seen)
}

/// The names of what needs a hand.
fn findings(checks: &[Check]) -> Vec<&'static str> {
    checks.iter().filter(|check| check.state == State::Finding).map(|check| check.name).collect()
}

#[test]
fn with_a_healthy_database_nothing_is_found() {
    assert_eq!(findings(&judged(&healthy())), [""; 0]);
}

type Harm = fn(&mut ExaminedDatabase);

/// Each harm, and the one finding that it must come to.
const HARMS: [(&str, Harm); 20] = [
    ("database.connection", |it| it.server.is_standby = true),
    ("database.version", |it| it.server.version = 120_000),
    ("database.schema", |it| it.schema_version = Ok(0)),
    ("database.schema", |it| it.schema_version = Ok(2)),
    ("database.schema", |it| it.schema_version = Err("no".into())),
    ("database.clock", |it| it.server.clock_ahead_ms = 60_000),
    ("database.clock", |it| it.server.clock_ahead_ms = -60_000),
    ("database.durability", |it| it.server.fsync = "off".into()),
    ("database.durability", |it| it.server.full_page_writes = "off".into()),
    ("database.connections", |it| it.server.connections_now = 90),
    ("database.connections", |it| it.server.connections_most = 10),
    ("nodes", |it| it.nodes = Ok(vec![node("a:1", -60_000, None, 0)])),
    ("nodes", |it| it.nodes = Ok(vec![node("a:1", -60_000, Some(50_000), 2)])),
    ("database.tables", |it| it.tables = Ok(vec![table(1_000, 60_000)])),
    ("database.transactions", |it| it.transactions = Ok(vec![transaction("session 7", 400_000)])),
    ("database.transactions", |it| it.transactions = Ok(vec![transaction("prepared transaction x", 400_000)])),
    ("database.slots", |it| {
        it.slots = Ok(vec![ExaminedSlot { name: "s".into(), is_active: false, keeps_rows: true, kept_bytes: None }]);
    }),
    ("database.slots", |it| {
        it.slots =
            Ok(vec![ExaminedSlot { name: "s".into(), is_active: false, keeps_rows: false, kept_bytes: Some(2 << 30) }]);
    }),
    ("database.standbys", |it| it.standbys = Ok(vec![standby("streaming", 60_000)])),
    ("database.standbys", |it| it.standbys = Ok(vec![standby("catchup", 0)])),
];

#[test]
fn every_harm_is_one_finding_that_says_what_to_do() {
    let mut text = String::new();
    for (name, harm) in HARMS {
        let mut seen = healthy();
        harm(&mut seen);
        let checks = judged(&seen);
        assert_eq!(findings(&checks), [name], "{checks:#?}");
        let found = checks.iter().find(|check| check.state == State::Finding).unwrap();
        text.push_str(&format!("{name}: {}\n    {}\n", found.seen, found.advice.as_ref().unwrap()));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn what_may_not_be_asked_is_skipped_with_its_reason() {
    let denied = ExaminedDatabase { slots: Err("permission denied (42501)".into()), ..healthy() };
    let checks = judged(&denied);
    let skipped: Vec<_> = checks.iter().filter(|check| check.state == State::Skipped).collect();
    assert_eq!(skipped.len(), 1);
    assert_eq!((skipped[0].name, &*skipped[0].seen), ("database.slots", "permission denied (42501)"));
}

#[test]
fn what_waits_is_judged_by_its_age_and_by_who_could_take_it() {
    let config = Config::from_text(CONFIG).unwrap();
    let queue = |provider: &str, due, oldest_due| ExaminedQueue {
        provider: provider.into(),
        queued: 4,
        due,
        oldest_due: Some(oldest_due),
    };
    let now = 10_000_000;
    let of = |jobs: ExaminedJobs| findings(&jobs::judge(&config, &jobs)).join(" ");
    assert_eq!(of(ExaminedJobs { now, unknown: 1, unknown_since: Some(now - 60_000), queues: vec![] }), "");
    assert_eq!(
        of(ExaminedJobs { now, unknown: 1, unknown_since: Some(now - 9), queues: vec![queue("main", 0, now + 9)] }),
        ""
    );
    let old = ExaminedJobs { now, unknown: 1, unknown_since: Some(now - 7_200_000), queues: vec![] };
    assert_eq!(of(old), "jobs.unknown");
    let late = ExaminedJobs { now, queues: vec![queue("main", 2, now - 120_000)], ..ExaminedJobs::default() };
    assert_eq!(of(late), "jobs.queued");
    let orphaned = ExaminedJobs { now, queues: vec![queue("gone", 0, now + 120_000)], ..ExaminedJobs::default() };
    assert_eq!(of(orphaned), "jobs.provider");
}

#[tokio::test]
async fn a_providers_host_is_reached_without_a_request_or_named_as_unreachable() {
    let open = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let (here, gone) = (open.local_addr().unwrap(), closed.local_addr().unwrap());
    drop(closed);
    let config = format!(
        "[server]\nstore = \"memory:\"\n[providers.here]\nkind = \"http\"\nrequest = {{ url = \"http://{here}/x\" }}\n\
         [providers.gone]\nkind = \"http\"\nrequest = {{ url = \"http://{gone}/x\" }}\n\
         [providers.deep]\nkind = \"http\"\nrequest = {{ url = \"http://{here}/x/{{{{ input.path }}}}\" }}\n"
    );
    let checks = examine(&Config::from_text(&config).unwrap()).await;
    let states: Vec<_> =
        checks.iter().skip(1).map(|check| (check.state, check.seen.split(':').next().unwrap())).collect();
    assert_eq!(states, [(State::Good, "deep"), (State::Finding, "gone"), (State::Good, "here")]);
    assert!(checks[2].seen.contains("connection refused"), "{}", checks[2].seen);
    // Not a byte was sent.
    for _ in 0..2 {
        let (mut stream, _) = open.accept().unwrap();
        let mut said = Vec::new();
        std::io::Read::read_to_end(&mut stream, &mut said).unwrap();
        assert_eq!(said, b"");
    }
}

#[tokio::test]
async fn a_folder_in_the_place_of_the_file_is_a_finding() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("[server]\nstore = \"sqlite:{}\"\n", folder.path().display());
    let checks = examine(&Config::from_text(&config).unwrap()).await;
    let place = checks.iter().find(|check| check.name == "file.writable").unwrap();
    assert_eq!(place.state, State::Finding);
    assert!(place.seen.contains("it is a folder"), "{}", place.seen);
}
