//! `cargo lab …`: the project's own tools.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use onejob_lab::{races, walls};

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
}

fn main() -> ExitCode {
    match Arguments::parse().tool {
        Tool::Walls(arguments) => walls::run(&arguments),
        Tool::Races(arguments) => races::run(&arguments),
    }
}
