//! `onejob bench`: what this machine does, as ratios within one run. Never a timed test.

mod answers;
mod disk;
mod load;
mod node;
mod shared;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use crate::store::sqlite::bare::Commits;
use load::Start;
use node::Node;

/// Measure this machine: submits and whole lives of jobs per second against the bare statements, and the
/// latency from a post to the provider's receipt next to one flush of the disk, and the check of an answer
///
/// Every figure is a ratio to something measured in the same run. Server, load and provider share the machine.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  onejob bench\n  onejob bench --seconds 2 --finished 1000000\n  onejob bench --json > figures.json\n  onejob bench --store postgres://onejob@localhost/bench\n"
)]
pub(super) struct BenchArgs {
    /// How long each measurement lasts
    #[arg(long, default_value_t = 5, value_name = "SECONDS")]
    seconds: u64,
    /// Connections that post at once; also the jobs per commit of the bare loops
    #[arg(long, default_value_t = 64, value_name = "N")]
    connections: usize,
    /// Measure again with so many finished jobs in the file
    #[arg(long, default_value_t = 0, value_name = "JOBS")]
    finished: u64,
    /// Jobs per second of the latency measurements
    #[arg(long, value_delimiter = ',', default_value = "50,500", value_name = "RATES")]
    rates: Vec<u32>,
    /// Where to put the files; a fresh folder in it is removed afterwards
    #[arg(long, value_name = "FOLDER")]
    dir: Option<std::path::PathBuf>,
    /// Measure a node on this database instead, which must be migrated: `postgres://user@host/database`
    ///
    /// The jobs of the measurement stay there. Nothing stands beside the figures: `cargo lab figures` in
    /// onejob's repository puts pgbench there.
    #[arg(long, value_name = "URL", conflicts_with_all = ["finished", "dir"])]
    store: Option<String>,
    /// With --store: only these measurements
    #[arg(long, value_enum, value_delimiter = ',', default_value = "submit,life,start", requires = "store")]
    only: Vec<Part>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Part {
    /// Submits per second of jobs that are not due
    Submit,
    /// Whole lives per second
    Life,
    /// From a post to the provider's receipt
    Start,
}

/// One measured pair.
#[derive(Clone, Debug)]
struct Row {
    what: String,
    ours: f64,
    bare: f64,
}

/// Everything of one state of the file.
struct Measured {
    rates: Vec<Row>,
    commits_per_job: f64,
    bytes_per_job: f64,
    starts: Vec<(u32, Start)>,
}

/// Runs the benchmark.
pub(super) fn run(args: &BenchArgs) -> ExitCode {
    let measured = match &args.store {
        Some(store) => shared::measure(args, store),
        None => measure_all(args),
    };
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn measure_all(args: &BenchArgs) -> Result<(), String> {
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let dir = node::Folder::new(&parent)?;
    let flush = disk::flush_times(dir.path())?;
    let answers = answers::measure()?;
    let empty = measure(args, &dir, 0)?;
    let filled = if args.finished > 0 { Some(measure(args, &dir, args.finished)?) } else { None };
    if args.json {
        println!("{}", as_json(args, &flush, &answers, &empty, filled.as_ref()));
    } else {
        print(args, &flush, &empty, filled.as_ref());
        print_answers(&answers);
    }
    Ok(())
}

fn measure(args: &BenchArgs, dir: &node::Folder, finished: u64) -> Result<Measured, String> {
    let time = Duration::from_secs(args.seconds.max(1));
    let progress = |what: &str| {
        if !args.json {
            let file = if finished == 0 { "empty file".to_owned() } else { format!("{finished} finished jobs") };
            eprintln!("measuring, {file}: {what}");
        }
    };
    if finished > 0 {
        progress("filling the file");
    }
    let base = dir.filled(finished)?;
    progress("bare inserts");
    let bare_submit = node::bare_submit(&dir.copy(&base, "bare-submit")?, args.connections, time)?;
    progress("submits over HTTP");
    let node = Node::on_file(&dir.copy(&base, "submit")?)?;
    let submit = load::submits(&node, args.connections, time)?;
    node.stop();
    progress("bare lives");
    let bare_two = node::bare_life(&dir.copy(&base, "bare-two")?, args.connections, time, Commits::Two)?;
    let bare_three = node::bare_life(&dir.copy(&base, "bare-three")?, args.connections, time, Commits::Three)?;
    progress("whole lives over HTTP");
    let node = Node::on_file(&dir.copy(&base, "life")?)?;
    let before = node.work();
    let life = load::lives(&node, args.connections, time)?;
    let after = node.work();
    node.stop();
    let mut starts = Vec::new();
    let node = Node::on_file(&dir.copy(&base, "start")?)?;
    for rate in &args.rates {
        progress(&format!("from post to provider at {rate} jobs/s"));
        starts.push((*rate, load::starts(&node, *rate, time)?));
    }
    node.stop();
    let row = |what: &str, ours: f64, bare: f64| Row { what: what.into(), ours, bare };
    Ok(Measured {
        rates: vec![
            row("submit", submit, bare_submit),
            row("whole life, to two commits per life", life.per_second, bare_two),
            row("whole life, to three commits per life", life.per_second, bare_three),
        ],
        commits_per_job: (after.commits - before.commits) as f64 / life.jobs as f64,
        bytes_per_job: (after.log_bytes - before.log_bytes) as f64 / life.jobs as f64,
        starts,
    })
}

fn print(args: &BenchArgs, flush: &disk::Flush, empty: &Measured, filled: Option<&Measured>) {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["jobs per second", "onejob", "bare statements", "ratio", "to an empty file"]);
    for (label, measured) in labelled(args, empty, filled) {
        for (n, row) in measured.rates.iter().enumerate() {
            table.add_row([
                format!("{}{label}", row.what),
                format!("{:.0}", row.ours),
                format!("{:.0}", row.bare),
                format!("{:.2}", row.ours / row.bare),
                format!("{:.2}", row.ours / empty.rates[n].ours),
            ]);
        }
    }
    right(&mut table, 4);
    println!("{table}");
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["from post to provider", "p50 ms", "p99 ms", "p50 in flushes"]);
    for (label, measured) in labelled(args, empty, filled) {
        for (rate, start) in &measured.starts {
            table.add_row([
                format!("{rate} jobs/s{label}"),
                format!("{:.2}", start.p50_ms),
                format!("{:.2}", start.p99_ms),
                format!("{:.1}", start.p50_ms / flush.lone_ms),
            ]);
        }
    }
    right(&mut table, 3);
    println!("{table}");
    println!("one flush of 4 KiB: {:.2} ms in a tight loop, {:.2} ms alone (p50)", flush.tight_ms, flush.lone_ms);
    for (label, measured) in labelled(args, empty, filled) {
        println!(
            "per completed job{label}: {:.3} durable commits, {:.1} kB written to the log",
            measured.commits_per_job,
            measured.bytes_per_job / 1000.0
        );
    }
}

fn print_answers(answers: &[answers::Checked]) {
    for answer in answers {
        println!(
            "held against its contract: an output of {:.1} kB in {:.0} µs, of which reading it as JSON {:.0} µs",
            answer.bytes as f64 / 1000.0,
            answer.check_us,
            answer.parse_us
        );
    }
}

fn labelled<'a>(args: &BenchArgs, empty: &'a Measured, filled: Option<&'a Measured>) -> Vec<(String, &'a Measured)> {
    let mut all = vec![(String::new(), empty)];
    all.extend(filled.map(|filled| (format!(", {} finished jobs", args.finished), filled)));
    all
}

fn right(table: &mut Table, columns: usize) {
    for column in 1..=columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

fn as_json(
    args: &BenchArgs,
    flush: &disk::Flush,
    answers: &[answers::Checked],
    empty: &Measured,
    filled: Option<&Measured>,
) -> Value {
    let of = |measured: &Measured| {
        let rates: Vec<Value> = measured
            .rates
            .iter()
            .map(|r| json!({ "what": r.what, "onejob_per_s": r.ours, "bare_per_s": r.bare, "ratio": r.ours / r.bare }))
            .collect();
        let starts: Vec<Value> = measured
            .starts
            .iter()
            .map(|(rate, s)| json!({ "jobs_per_s": rate, "p50_ms": s.p50_ms, "p99_ms": s.p99_ms }))
            .collect();
        json!({
            "rates": rates,
            "post_to_provider": starts,
            "commits_per_job": measured.commits_per_job,
            "log_bytes_per_job": measured.bytes_per_job,
        })
    };
    let answers: Vec<Value> = answers
        .iter()
        .map(|a| json!({ "output_bytes": a.bytes, "check_us": a.check_us, "parse_us": a.parse_us }))
        .collect();
    json!({
        "connections": args.connections,
        "answers": answers,
        "flush_ms": { "tight": flush.tight_ms, "lone": flush.lone_ms },
        "empty": of(empty),
        "finished_jobs": args.finished,
        "filled": filled.map(of),
    })
}
