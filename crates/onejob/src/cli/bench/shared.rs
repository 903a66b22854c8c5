//! A node on a database that is there already. What stands beside the figures is measured by whoever owns
//! the server.

use std::time::Duration;

use comfy_table::{Table, presets};
use serde_json::{Value, json};

use super::node::Node;
use super::{BenchArgs, Part, load, right};

/// Measures and prints.
pub(super) fn measure(args: &BenchArgs, store: &str) -> Result<(), String> {
    let time = Duration::from_secs(args.seconds.max(1));
    let mut figures = Vec::new();
    for part in &args.only {
        let progress = |what: &str| {
            if !args.json {
                eprintln!("measuring: {what}");
            }
        };
        match part {
            Part::Submit => {
                progress("submits over HTTP");
                let node = Node::start(store)?;
                let per_s = load::submits(&node, args.connections, time)?;
                node.stop();
                figures.push(json!({ "what": "submit", "connections": args.connections, "per_s": per_s }));
            }
            Part::Life => {
                progress("whole lives over HTTP");
                let node = Node::start(store)?;
                let life = load::lives(&node, args.connections, time)?;
                let commits = node.work().commits as f64 / life.jobs.max(1) as f64;
                node.stop();
                figures.push(json!({
                    "what": "whole life", "connections": args.connections, "per_s": life.per_second, "jobs": life.jobs,
                    "commits_per_job": commits,
                }));
            }
            Part::Start => {
                let node = Node::start(store)?;
                for rate in &args.rates {
                    progress(&format!("from post to provider at {rate} jobs/s"));
                    let start = load::starts(&node, *rate, time)?;
                    figures.push(json!({
                        "what": "from post to provider", "jobs_per_s": rate, "p50_ms": start.p50_ms, "p99_ms": start.p99_ms,
                    }));
                }
                node.stop();
            }
        }
    }
    if args.json {
        println!("{}", Value::Array(figures));
    } else {
        print(&figures);
    }
    Ok(())
}

fn print(figures: &[Value]) {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["what", "load", "figure"]);
    for figure in figures {
        let what = figure["what"].as_str().unwrap_or_default().to_owned();
        let number = |name: &str| figure[name].as_f64();
        let load = match number("connections") {
            Some(connections) => format!("{connections} connections"),
            None => format!("{} jobs/s", number("jobs_per_s").unwrap_or_default()),
        };
        let shown = match (number("per_s"), number("commits_per_job"), number("p50_ms"), number("p99_ms")) {
            (Some(per_s), Some(commits), ..) => format!("{per_s:.0}/s, {commits:.3} commits per job"),
            (Some(per_s), ..) => format!("{per_s:.0}/s"),
            (None, _, p50, p99) => {
                format!("p50 {:.2} ms, p99 {:.2} ms", p50.unwrap_or_default(), p99.unwrap_or_default())
            }
        };
        table.add_row([what, load, shown]);
    }
    right(&mut table, 2);
    println!("{table}");
}
