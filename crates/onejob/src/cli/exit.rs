//! Exit codes: what a script learns from a command without reading its output.

/// How a command ended. The numbers are part of the command line's face and never change meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// Done as asked; of a job that is shown: it has succeeded, or is on its way and nobody waited.
    Good,
    /// The job has failed or was cancelled; a check or a claim did not hold.
    JobNotDone,
    /// The command or its input is wrong; nothing was done.
    Usage,
    /// Nobody knows what became of an attempt, and only evidence will tell.
    Unknown,
    /// A rule forbids it.
    Conflict,
    /// The server cannot be reached or cannot serve now.
    Unavailable,
    /// No such job, attempt or task, or its key has expired.
    NotFound,
    /// The wait was over before the job was.
    StillOpen,
    /// The access key is missing, or does not allow this.
    NotAllowed,
    /// Whoever read our output stopped reading. The number that a shell shows for SIGPIPE.
    ClosedPipe,
}

impl Exit {
    /// All, in the order of their numbers.
    pub(crate) const ALL: [Exit; 10] = [
        Exit::Good,
        Exit::JobNotDone,
        Exit::Usage,
        Exit::Unknown,
        Exit::Conflict,
        Exit::Unavailable,
        Exit::NotFound,
        Exit::StillOpen,
        Exit::NotAllowed,
        Exit::ClosedPipe,
    ];

    /// The number that the process ends with.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Good => 0,
            Exit::JobNotDone => 1,
            Exit::Usage => 2,
            Exit::Unknown => 3,
            Exit::Conflict => 4,
            Exit::Unavailable => 5,
            Exit::NotFound => 6,
            Exit::StillOpen => 7,
            Exit::NotAllowed => 8,
            Exit::ClosedPipe => 141,
        }
    }

    /// What it means, for the help and the docs.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Exit::Good => "done; the job shown has succeeded, or is on its way",
            Exit::JobNotDone => "the job failed or was cancelled; a check did not hold",
            Exit::Usage => "wrong command or input; nothing was done",
            Exit::Unknown => "unknown: only evidence will tell what became of an attempt",
            Exit::Conflict => "a rule forbids it: same key with another intent, attempt in flight, job closed",
            Exit::Unavailable => "server not reached or not able now; try again with the same key",
            Exit::NotFound => "no such job, attempt or task, or its key has expired",
            Exit::StillOpen => "the wait was over before the job was",
            Exit::NotAllowed => "access key missing, or not enough",
            Exit::ClosedPipe => "the reader of the output went away",
        }
    }

    /// The exit that tells the state of a job; `waited` if the caller asked for its end.
    pub(crate) fn of_job(state: &str, waited: bool) -> Exit {
        match state {
            "succeeded" => Exit::Good,
            "failed" | "cancelled" => Exit::JobNotDone,
            "unknown" => Exit::Unknown,
            _ if waited => Exit::StillOpen,
            _ => Exit::Good,
        }
    }

    /// The exit that tells the status of a refusal.
    pub(crate) fn of_status(status: u16) -> Exit {
        match status {
            401 | 403 => Exit::NotAllowed,
            404 | 410 => Exit::NotFound,
            409 => Exit::Conflict,
            // Too many requests: the server cannot now, and the same call may be repeated.
            429 => Exit::Unavailable,
            400..=499 => Exit::Usage,
            _ => Exit::Unavailable,
        }
    }
}

/// The list of exit codes as the help shows it.
pub(crate) fn help() -> String {
    let mut text = String::from("Exit codes:\n");
    for exit in Exit::ALL {
        text.push_str(&format!("  {:>3}  {}\n", exit.code(), exit.meaning()));
    }
    text
}
