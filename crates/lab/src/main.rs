//! `cargo lab …`: the project's own tools.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use onejob_lab::{figures, models, races, versions, walls};

#[derive(Parser)]
#[command(name = "cargo lab", about = "The project's own tools: what breaks onejob, and what measures it")]
struct Arguments {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Subcommand)]
enum Tool {
    /// Takes each wall away in turn, in a copy of the workspace, and shows which tests notice.
    Walls(walls::Arguments),
    /// Races many callers for a few keys on two nodes: one job for each key, made by one post.
    Races(races::Arguments),
    /// Runs the tests of the store of many nodes on PostgreSQL 13 to 18.
    Versions(versions::Arguments),
    /// Measures onejob on PostgreSQL beside pgbench, as ratios within one run.
    Figures(figures::Arguments),
    /// Verifies a JSON task against two small real models.
    Models(models::Arguments),
}

fn main() -> ExitCode {
    match Arguments::parse().tool {
        Tool::Walls(arguments) => walls::run(&arguments),
        Tool::Races(arguments) => races::run(&arguments),
        Tool::Versions(arguments) => versions::run(&arguments),
        Tool::Figures(arguments) => figures::run(&arguments),
        Tool::Models(arguments) => models::run(&arguments),
    }
}
