//! What onejob does on PostgreSQL beside pgbench: the same tables and columns, the same throw-away server, the
//! same run. Figures are medians of a few rounds; within a round everything runs in turn, so that what else
//! the machine does falls on all of it; and each begins with vacuumed tables after a checkpoint, so that nobody
//! cleans up after another.
// A figure that cannot be measured must not be printed.
#![allow(clippy::unwrap_used)]

mod pgbench;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::Value;

use crate::gauge::Gauge;
use crate::postgres::{Cluster, Database, Disk};

/// Options of `cargo lab figures`.
#[derive(clap::Args)]
pub struct Arguments {
    /// How long each measurement lasts, in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Rounds; the figures are their medians.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Measure again with so many finished jobs in the tables.
    #[arg(long, default_value_t = 0)]
    finished: u64,
}

/// Everything of one state of the tables: what was measured, each round.
type Figures = BTreeMap<String, Vec<f64>>;

/// Runs the tool.
pub fn run(arguments: &Arguments) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let binary = build();
        let cluster = Cluster::start(Disk::Durable);
        // Room for the upper pages of a million keys.
        let postgres = cluster.client("postgres").await;
        postgres.batch_execute("ALTER SYSTEM SET shared_buffers = '512MB'").await.unwrap();
        cluster.stop("fast");
        cluster.start_again();
        let empty = measured(arguments, &cluster, &binary, 0).await;
        print(&empty, None);
        if arguments.finished > 0 {
            let filled = measured(arguments, &cluster, &binary, arguments.finished).await;
            println!("\nwith {} finished jobs in the tables:\n", arguments.finished);
            print(&filled, Some(&empty));
        }
    });
    ExitCode::SUCCESS
}

/// The product as it is shipped.
fn build() -> PathBuf {
    let built = Command::new("cargo").args(["build", "--release", "--quiet", "-p", "onejob"]).status().unwrap();
    assert!(built.success(), "onejob does not build");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    std::path::absolute(target.join("release/onejob")).unwrap()
}

async fn measured(arguments: &Arguments, cluster: &Cluster, binary: &Path, finished: u64) -> Figures {
    let mut figures = Figures::new();
    for round in 1..=arguments.rounds {
        eprintln!("{finished} finished jobs, round {round} of {}", arguments.rounds);
        let database = cluster.database().await;
        pgbench::prepare(&database, finished).await;
        let onejob = Onejob { binary, database: &database, seconds: arguments.seconds };
        one_round(cluster, &onejob, finished, &mut figures).await;
        database.drop().await;
    }
    figures
}

async fn one_round(cluster: &Cluster, onejob: &Onejob<'_>, finished: u64, figures: &mut Figures) {
    let mut note = |what: &str, figure: f64| figures.entry(what.to_owned()).or_default().push(figure);
    let (database, seconds) = (onejob.database, onejob.seconds);
    let fresh = || pgbench::fresh(database, finished);
    let bare = |script, clients| pgbench::rate(cluster, database, script, clients, seconds);
    for clients in [8, 64] {
        fresh().await;
        note(&format!("pgbench inserts, {clients} clients"), bare(pgbench::Script::Insert, clients));
    }
    for connections in [64, 256] {
        fresh().await;
        let submit = onejob.bench("submit", &["--connections", &connections.to_string()]);
        note(&format!("submit, {connections} connections"), submit[0]["per_s"].as_f64().unwrap());
    }
    for clients in [8, 64] {
        fresh().await;
        note(&format!("pgbench lives, {clients} clients"), bare(pgbench::Script::Life, clients));
    }
    for clients in [1, 2] {
        fresh().await;
        note(&format!("batches of 100, {clients} clients"), bare(pgbench::Script::Batch, clients));
    }
    let client = database.client().await;
    for connections in [64, 256] {
        fresh().await;
        let before = Gauge::read(&client).await;
        let life = onejob.bench("life", &["--connections", &connections.to_string()]);
        let gone = Gauge::read(&client).await.since(&before);
        let jobs = life[0]["jobs"].as_f64().unwrap();
        note(&format!("life, {connections} connections"), life[0]["per_s"].as_f64().unwrap());
        note(&format!("syncs per job, {connections} connections"), gone.syncs.map_or(f64::NAN, |n| n as f64 / jobs));
        note(&format!("log bytes per job, {connections} connections"), gone.log_bytes as f64 / jobs);
    }
    for rate in ["50", "500"] {
        fresh().await;
        let start = onejob.bench("start", &["--rates", rate]);
        note(&format!("start p50 ms at {rate}/s"), start[0]["p50_ms"].as_f64().unwrap());
        note(&format!("start p99 ms at {rate}/s"), start[0]["p99_ms"].as_f64().unwrap());
    }
}

struct Onejob<'a> {
    binary: &'a Path,
    database: &'a Database<'a>,
    seconds: u64,
}

impl Onejob<'_> {
    fn bench(&self, part: &str, more: &[&str]) -> Vec<Value> {
        let mut command = Command::new(self.binary);
        command.args(["bench", "--json", "--store", &self.database.url(), "--only", part]);
        command.args(["--seconds", &self.seconds.to_string()]).args(more);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn print(figures: &Figures, empty: Option<&Figures>) {
    let of = |what: &str| median(&figures[what]);
    let best = |what: &str| of(&format!("{what}, 8 clients")).max(of(&format!("{what}, 64 clients")));
    let loops = [of("batches of 100, 1 clients"), of("batches of 100, 2 clients")];
    println!(
        "| per second | onejob | to pgbench's best, same columns | to one loop of batches of 100, to two | to empty tables |"
    );
    println!("|---|---|---|---|---|");
    for (what, bare, name) in
        [("submit", "pgbench inserts", "single inserts"), ("life", "pgbench lives", "three transactions")]
    {
        for connections in [64, 256] {
            let what = format!("{what}, {connections} connections");
            let to_loops = match bare {
                "pgbench lives" => loops.map(|rate| format!("{:.2}", of(&what) / rate)).join(", "),
                _ => String::new(),
            };
            let to_empty = empty.map_or_else(String::new, |empty| format!("{:.2}", of(&what) / median(&empty[&what])));
            println!(
                "| {what} | {:.0} | {:.1} × {:.0} ({name}) | {to_loops} | {to_empty} |",
                of(&what),
                of(&what) / best(bare),
                best(bare)
            );
        }
    }
    println!("\n| | |\n|---|---|");
    for (what, rounds) in figures {
        let all: Vec<String> = rounds.iter().map(|figure| number(*figure)).collect();
        println!("| {what} | {} ({}) |", number(median(rounds)), all.join(", "));
    }
}

fn number(figure: f64) -> String {
    if figure < 10.0 { format!("{figure:.3}") } else { format!("{figure:.0}") }
}
