//! The table of what a failure means, written out once more and held against the code line by line.

use super::*;

const NOT_SENT: Meaning = Meaning::Failed(FailureClass::NotSent);
const REFUSED: Meaning = Meaning::Failed(FailureClass::Refused);
const INVALID: Meaning = Meaning::Failed(FailureClass::Invalid);
const FAILED_THERE: Meaning = Meaning::Failed(FailureClass::FailedThere);
const BROKEN_CONTRACT: Meaning = Meaning::Failed(FailureClass::BrokenContract);
const UNKNOWN: Meaning = Meaning::Unknown(Cause::Status);

const PHASES: [Phase; 4] = [Phase::BeforeConnect, Phase::Sending, Phase::AwaitingHeaders, Phase::InBody];

fn meaning(observation: Observation) -> Meaning {
    meaning_of(&observation, &[])
}

fn of_status(code: u16, retry_after: bool) -> Meaning {
    meaning(Observation::Status { code, retry_after })
}

/// The rows of the table that speak of a status, in its words. What no row names falls to the three
/// rows that say "other".
fn row_of_status(code: u16, retry_after: bool) -> Meaning {
    const SAYS_NO: [u16; 7] = [401, 402, 403, 404, 405, 429, 529];
    const WRONG_REQUEST: [u16; 4] = [400, 413, 415, 422];
    const SAYS_NOTHING: [u16; 12] = [408, 409, 499, 500, 502, 504, 520, 521, 522, 523, 524, 503];
    const WOULD_HAVE_TO_BE_SENT_AGAIN: [u16; 2] = [307, 308];
    if SAYS_NO.contains(&code) || (code == 503 && retry_after) {
        REFUSED
    } else if WRONG_REQUEST.contains(&code) || WOULD_HAVE_TO_BE_SENT_AGAIN.contains(&code) {
        INVALID
    } else if SAYS_NOTHING.contains(&code) {
        UNKNOWN
    } else if (400..500).contains(&code) {
        INVALID
    } else {
        UNKNOWN
    }
}

#[test]
fn every_status_means_what_the_table_says() {
    for code in (100..=599).filter(|code| !(200..300).contains(code)) {
        for retry_after in [false, true] {
            assert_eq!(of_status(code, retry_after), row_of_status(code, retry_after), "{code} {retry_after}");
        }
    }
}

#[test]
fn retry_after_makes_a_difference_for_503_alone() {
    let differ: Vec<u16> = (100..=599).filter(|code| of_status(*code, false) != of_status(*code, true)).collect();
    assert_eq!(differ, [503]);
}

#[test]
fn r5_no_status_from_the_middle_of_nowhere_is_a_failure() {
    for code in
        [0, 99, 100, 101, 199, 300, 301, 302, 303, 304, 305, 306, 501, 505, 511, 530, 598, 599, 600, 999, u16::MAX]
    {
        assert_eq!(of_status(code, true), UNKNOWN, "{code}");
    }
    // A 2xx never reaches the table as a status. If it did, it would not be a failure.
    assert!((200..300).all(|code| of_status(code, false) == UNKNOWN));
}

#[test]
fn r5_what_broke_or_fell_silent_is_certain_only_before_the_first_byte() {
    let rows = [
        (Phase::BeforeConnect, NOT_SENT, NOT_SENT),
        (Phase::Sending, Meaning::Unknown(Cause::ConnectionLost), Meaning::Unknown(Cause::Timeout)),
        (Phase::AwaitingHeaders, Meaning::Unknown(Cause::ConnectionLost), Meaning::Unknown(Cause::Timeout)),
        (Phase::InBody, Meaning::Unknown(Cause::CutShort), Meaning::Unknown(Cause::Timeout)),
    ];
    assert_eq!(rows.map(|row| row.0), PHASES);
    for (phase, broken, late) in rows {
        assert_eq!(meaning(Observation::Broken { phase }), broken, "{phase:?}");
        assert_eq!(meaning(Observation::DeadlinePassed { phase }), late, "{phase:?}");
    }
}

#[test]
fn an_answer_that_came_means_what_the_table_says() {
    assert_eq!(meaning(Observation::CutShort), Meaning::Unknown(Cause::CutShort));
    assert_eq!(meaning(Observation::Undecodable), Meaning::Unknown(Cause::CutShort));
    assert_eq!(meaning(Observation::Incomplete), BROKEN_CONTRACT);
    assert_eq!(meaning(Observation::BreaksContract), BROKEN_CONTRACT);
    assert_eq!(meaning(Observation::FailedThere), FAILED_THERE);
    assert_eq!(meaning(Observation::Unbuildable), INVALID);
}

#[test]
fn a_definition_moves_its_own_statuses_and_no_others() {
    let lines = [
        (Line::Refused, REFUSED),
        (Line::Invalid, INVALID),
        (Line::FailedThere, FAILED_THERE),
        (Line::Unknown, UNKNOWN),
    ];
    for (line, moved) in lines {
        for status in 100..=599 {
            let overrides = [Override { status, line }];
            for retry_after in [false, true] {
                let seen = |code| meaning_of(&Observation::Status { code, retry_after }, &overrides);
                assert_eq!(seen(status), moved);
                let next = if status == 599 { 100 } else { status + 1 };
                assert_eq!(seen(next), of_status(next, retry_after));
            }
        }
    }
}

#[test]
fn of_two_lines_for_one_status_the_first_stands() {
    let overrides = [Override { status: 503, line: Line::Refused }, Override { status: 503, line: Line::Invalid }];
    assert_eq!(meaning_of(&Observation::Status { code: 503, retry_after: false }, &overrides), REFUSED);
}

#[test]
fn r5_no_override_touches_what_is_not_a_status() {
    let all: Vec<Override> = (100..=599).map(|status| Override { status, line: Line::Refused }).collect();
    for phase in PHASES {
        for seen in [Observation::Broken { phase }, Observation::DeadlinePassed { phase }] {
            assert_eq!(meaning_of(&seen, &all), meaning(seen));
        }
    }
    assert_eq!(meaning_of(&Observation::CutShort, &all), Meaning::Unknown(Cause::CutShort));
}

#[test]
fn only_what_never_began_certainly_did_nothing() {
    let nothing: Vec<_> = FailureClass::ALL.into_iter().filter(|class| class.certainly_did_nothing()).collect();
    assert_eq!(
        nothing,
        [FailureClass::NotSent, FailureClass::Refused, FailureClass::Invalid, FailureClass::NotExecuted]
    );
}

#[test]
fn every_word_is_read_back_as_what_it_was_written_for() {
    for class in FailureClass::ALL {
        assert_eq!(FailureClass::parse(class.as_str()), Some(class));
    }
    for cause in Cause::ALL {
        assert_eq!(Cause::parse(cause.as_str()), Some(cause));
    }
    assert_eq!((FailureClass::parse("timeout"), Cause::parse("refused")), (None, None));
}
