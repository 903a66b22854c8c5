//! `onejob check`: stub, the configuration is on its way.

use std::path::Path;
use std::process::ExitCode;

/// Checks a configuration.
pub(crate) fn run(config: &Path) -> ExitCode {
    let _ = config;
    ExitCode::FAILURE
}
