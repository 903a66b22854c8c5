//! The `onejob` command. Everything it does is in the library.

fn main() -> std::process::ExitCode {
    onejob::cli::main()
}
