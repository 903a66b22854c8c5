use onejob_core::CertificateId;

use super::*;

/// The UUID and the text after the prefix, from the TypeID specification 0.3.
const SPECIFIED: [(u128, &str); 5] = [
    (0, "00000000000000000000000000"),
    (1, "00000000000000000000000001"),
    (0x10, "0000000000000000000000000g"),
    (0x0188_9c89_df6b_7f1c_a388_9139_6ec3_14bc, "01h2e8kqvbfwea724h75qc655w"),
    (u128::MAX, "7zzzzzzzzzzzzzzzzzzzzzzzzz"),
];

#[test]
fn ids_are_written_and_read_as_the_specification_says() {
    for (uuid, suffix) in SPECIFIED {
        assert_eq!(job_text(JobId(uuid)), format!("job_{suffix}"));
        assert_eq!(parse_job(&format!("job_{suffix}")), Some(JobId(uuid)));
        assert_eq!(attempt_text(AttemptId(uuid)), format!("att_{suffix}"));
        assert_eq!(parse_attempt(&format!("att_{suffix}")), Some(AttemptId(uuid)));
        assert_eq!(certificate_text(CertificateId(uuid)), format!("cert_{suffix}"));
    }
}

#[test]
fn what_is_not_exactly_the_text_of_a_job_id_is_none() {
    for text in [
        "",
        "job",
        "job_",
        "_01h2e8kqvbfwea724h75qc655w",
        "01h2e8kqvbfwea724h75qc655w",
        "att_01h2e8kqvbfwea724h75qc655w",
        "jobs_01h2e8kqvbfwea724h75qc655w",
        "job_job_01h2e8kqvbfwea724h75qc655w",
        "JOB_01h2e8kqvbfwea724h75qc655w",
        "job_01H2E8KQVBFWEA724H75QC655W",
        "job_01h2e8kqvbfwea724h75qc655",
        "job_01h2e8kqvbfwea724h75qc655ww",
        "job_8zzzzzzzzzzzzzzzzzzzzzzzzz",
        // Crockford's alphabet has no i, l, o and u; they are not taken for 1, 1, 0 and v either.
        "job_01h2e8kqvbfwea724h75qc65il",
        "job_01h2e8kqvbfwea724h75qc65ou",
        "job_01889c89-df6b-7f1c-a388-91396ec314bc",
        " job_01h2e8kqvbfwea724h75qc655w",
        "job_01h2e8kqvbfwea724h75qc655w\n",
        "job_01h2e8kqvbfwea724h75qc655é",
    ] {
        assert_eq!(parse_job(text), None, "{text:?}");
    }
    assert_eq!(parse_attempt("job_01h2e8kqvbfwea724h75qc655w"), None);
}

#[test]
fn later_ids_sort_after_earlier_ones_as_numbers_and_as_text() {
    let ids: Vec<JobId> = (0..5000).map(|_| new_job_id()).collect();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(ids.windows(2).all(|pair| job_text(pair[0]) < job_text(pair[1])));
}

#[test]
fn ids_drawn_on_many_threads_are_all_different_and_of_version_7() {
    let threads: Vec<_> =
        (0..4).map(|_| std::thread::spawn(|| (0..2000).map(|_| new_attempt_id().0).collect::<Vec<_>>())).collect();
    let mut drawn: Vec<u128> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    assert!(drawn.iter().all(|id| Uuid::from_u128(*id).get_version_num() == 7));
    drawn.sort_unstable();
    drawn.dedup();
    assert_eq!(drawn.len(), 8000);
    assert_ne!(new_node_id(), new_node_id());
}
