//! What a failure means: the one table that turns what was seen on the wire into a certain failure
//! or into `unknown`. Only this file knows that a timeout means unknown.

#[cfg(test)]
mod tests;

use crate::job::Text;

/// How an attempt certainly failed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Failure {
    /// Which kind.
    pub class: FailureClass,
    /// The provider's HTTP status, where there was one.
    pub status: Option<u16>,
    /// A sentence for people. Never a secret, never a provider's whole body.
    pub message: Text,
    /// The delay that the provider asked for, in milliseconds. Used once, not stored.
    pub retry_after_ms: Option<u64>,
}

/// The kinds of certain failure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FailureClass {
    /// No byte of the request left for the provider. Tried again.
    NotSent,
    /// The provider said no before doing anything. Tried again after the delay it names, or elsewhere.
    Refused,
    /// Our request is wrong. No retry, no failover: the job fails and says why.
    Invalid,
    /// The provider reports that the work itself failed. Tried again as the task says.
    FailedThere,
    /// A complete answer that breaks the task's contract. It never wins. Tried again as the task says.
    BrokenContract,
    /// An unknown attempt of which evidence says that it never happened: an operator's word, or a
    /// look-up at a provider whose 404 is proof. Tried again, and it uses up none of the tries.
    NotExecuted,
}

impl FailureClass {
    /// All classes.
    pub const ALL: [FailureClass; 6] = [
        FailureClass::NotSent,
        FailureClass::Refused,
        FailureClass::Invalid,
        FailureClass::FailedThere,
        FailureClass::BrokenContract,
        FailureClass::NotExecuted,
    ];

    /// The word for it, the same in SQL, API and docs.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureClass::NotSent => "not_sent",
            FailureClass::Refused => "refused",
            FailureClass::Invalid => "invalid",
            FailureClass::FailedThere => "failed_there",
            FailureClass::BrokenContract => "broken_contract",
            FailureClass::NotExecuted => "not_executed",
        }
    }

    /// The class of that word.
    pub fn parse(word: &str) -> Option<FailureClass> {
        FailureClass::ALL.into_iter().find(|c| c.as_str() == word)
    }

    /// No effect can exist: the provider never began.
    pub fn certainly_did_nothing(self) -> bool {
        match self {
            FailureClass::NotSent | FailureClass::Refused | FailureClass::Invalid | FailureClass::NotExecuted => true,
            FailureClass::FailedThere | FailureClass::BrokenContract => false,
        }
    }
}

/// Why nobody knows what became of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// Its deadline passed.
    Timeout,
    /// The connection broke after the first byte was written and before an answer began.
    ConnectionLost,
    /// The answer began and did not come whole, or cannot be decoded.
    CutShort,
    /// The provider answered with a status that does not say whether it did the work.
    Status,
    /// The process that sent it is gone.
    NodeDied,
    /// The worker that had it fell silent.
    WorkerDied,
}

impl Cause {
    /// All causes.
    pub const ALL: [Cause; 6] =
        [Cause::Timeout, Cause::ConnectionLost, Cause::CutShort, Cause::Status, Cause::NodeDied, Cause::WorkerDied];

    /// The word for it, the same in SQL, API and docs.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::Timeout => "timeout",
            Cause::ConnectionLost => "connection_lost",
            Cause::CutShort => "cut_short",
            Cause::Status => "status",
            Cause::NodeDied => "node_died",
            Cause::WorkerDied => "worker_died",
        }
    }

    /// The cause of that word.
    pub fn parse(word: &str) -> Option<Cause> {
        Cause::ALL.into_iter().find(|c| c.as_str() == word)
    }
}

/// How far a call had come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// No byte of the request has been written: resolving, connecting, shaking hands, or waiting
    /// for a connection.
    BeforeConnect,
    /// Some of the request may have been written.
    Sending,
    /// All of the request was written; no answer has begun.
    AwaitingHeaders,
    /// The head of the answer has come.
    InBody,
}

/// What was seen of a call, short of a usable answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Observation {
    /// The call ended without an answer: name not resolved, refused, reset, closed.
    Broken {
        /// How far it had come.
        phase: Phase,
    },
    /// Its time was up.
    DeadlinePassed {
        /// How far it had come.
        phase: Phase,
    },
    /// The answer's head came, and its body was cut short, had no end marker, or was longer than
    /// we read.
    CutShort,
    /// A whole 2xx answer that cannot be decoded.
    Undecodable,
    /// A whole 2xx answer without what the definition takes from it.
    Incomplete,
    /// A whole, decodable 2xx answer that breaks the task's contract.
    BreaksContract,
    /// The provider reports, in a 2xx answer, a look-up or a callback, that the work failed.
    FailedThere,
    /// Any status outside 2xx.
    Status {
        /// The HTTP status code.
        code: u16,
        /// Whether the answer said when to come back.
        retry_after: bool,
    },
    /// We could not build the request: its template does not render.
    Unbuildable,
}

/// What it means.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Meaning {
    /// Certainly failed.
    Failed(FailureClass),
    /// Nobody knows.
    Unknown(Cause),
}

/// A line of the table to which a provider's definition may move a status.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Line {
    /// `refused`.
    Refused,
    /// `invalid`.
    Invalid,
    /// `failed_there`.
    FailedThere,
    /// `unknown`.
    Unknown,
}

/// One status moved to another line by a provider's definition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Override {
    /// The HTTP status code.
    pub status: u16,
    /// Where it belongs.
    pub line: Line,
}

/// The failure table. `overrides` move a status of this provider to another line.
pub fn meaning_of(observation: &Observation, overrides: &[Override]) -> Meaning {
    use FailureClass::{BrokenContract, FailedThere, Invalid, NotSent};
    match observation {
        Observation::Unbuildable => Meaning::Failed(Invalid),
        Observation::Broken { phase: Phase::BeforeConnect }
        | Observation::DeadlinePassed { phase: Phase::BeforeConnect } => Meaning::Failed(NotSent),
        Observation::Broken { phase: Phase::Sending | Phase::AwaitingHeaders } => {
            Meaning::Unknown(Cause::ConnectionLost)
        }
        Observation::Broken { phase: Phase::InBody } | Observation::CutShort | Observation::Undecodable => {
            Meaning::Unknown(Cause::CutShort)
        }
        Observation::DeadlinePassed { phase: Phase::Sending | Phase::AwaitingHeaders | Phase::InBody } => {
            Meaning::Unknown(Cause::Timeout)
        }
        Observation::Incomplete | Observation::BreaksContract => Meaning::Failed(BrokenContract),
        Observation::FailedThere => Meaning::Failed(FailedThere),
        Observation::Status { code, retry_after } => match overrides.iter().find(|o| o.status == *code) {
            Some(moved) => meaning_of_line(moved.line),
            None => meaning_of_status(*code, *retry_after),
        },
    }
}

fn meaning_of_line(line: Line) -> Meaning {
    match line {
        Line::Refused => Meaning::Failed(FailureClass::Refused),
        Line::Invalid => Meaning::Failed(FailureClass::Invalid),
        Line::FailedThere => Meaning::Failed(FailureClass::FailedThere),
        Line::Unknown => Meaning::Unknown(Cause::Status),
    }
}

fn meaning_of_status(code: u16, retry_after: bool) -> Meaning {
    match code {
        // The provider says no before doing anything. 529 is how one of them says "overloaded".
        401..=405 | 429 | 529 => Meaning::Failed(FailureClass::Refused),
        503 if retry_after => Meaning::Failed(FailureClass::Refused),
        // Written out although the last lines cover them: a proxy's 408 or 504 and a 409 "already
        // working on it" are the very answers after which a second try does harm.
        408 | 409 | 499 | 500 | 502 | 503 | 504 | 520..=524 => Meaning::Unknown(Cause::Status),
        400..=499 => Meaning::Failed(FailureClass::Invalid),
        // The request would have to be sent again, elsewhere: it was not carried out here.
        307 | 308 => Meaning::Failed(FailureClass::Invalid),
        // 301, 302, 303: post, then redirect, is how many say "done". Other 3xx, 1xx, 5xx and
        // numbers that HTTP does not know say nothing about the work.
        _ => Meaning::Unknown(Cause::Status),
    }
}
