use super::*;

fn opened() -> Circuit {
    let circuit = Circuit::default();
    let opens: Vec<bool> = (0..REFUSALS).map(|_| circuit.refused(None)).collect();
    assert_eq!(opens, [false, false, false, false, true]);
    circuit
}

async fn after(time: Duration) {
    tokio::time::advance(time).await;
}

#[tokio::test(start_paused = true)]
async fn five_refusals_in_a_row_open_it_and_any_other_answer_closes_it() {
    let circuit = Circuit::default();
    for _ in 0..3 {
        assert!((1..REFUSALS).all(|_| !circuit.refused(None)));
        assert!(!circuit.is_open() && !circuit.diverts());
        assert!(!circuit.answered(), "it was not open");
    }
    let circuit = opened();
    assert!(circuit.is_open() && circuit.diverts());
    assert!(circuit.answered() && !circuit.is_open() && !circuit.diverts());
}

#[tokio::test(start_paused = true)]
async fn one_job_in_a_period_goes_there_first_to_see() {
    let circuit = opened();
    for _ in 0..3 {
        after(PERIOD.0.mul_f64(1.25)).await;
        let diverted: Vec<bool> = (0..4).map(|_| circuit.diverts()).collect();
        assert_eq!(diverted, [false, true, true, true], "the probe fell silent, so the next period has one too");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_probe_doubles_the_period_up_to_half_a_minute() {
    let circuit = opened();
    let mut period = PERIOD.0;
    for _ in 0..8 {
        after(period.mul_f64(0.7)).await;
        assert!(circuit.diverts(), "{period:?}");
        assert!(!circuit.refused(None), "on its way since before");
        after(period.mul_f64(0.6)).await;
        assert!(!circuit.diverts(), "{period:?}");
        assert!(!circuit.refused(None));
        period = (period * 2).min(PERIOD.1);
    }
    assert_eq!(period, PERIOD.1);
}

#[tokio::test(start_paused = true)]
async fn the_time_that_the_provider_names_wins_up_to_ten_minutes() {
    for (asked_ms, wait) in [(20_000, 20), (86_400_000, 600)] {
        let circuit = Circuit::default();
        for _ in 0..REFUSALS {
            circuit.refused(Some(asked_ms));
        }
        after(Duration::from_secs(wait) - Duration::from_millis(1)).await;
        assert!(circuit.diverts(), "{asked_ms}");
        after(Duration::from_millis(1)).await;
        assert!(!circuit.diverts(), "{asked_ms}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_says_come_back_at_once_is_not_asked_by_every_job() {
    let circuit = Circuit::default();
    for _ in 0..REFUSALS {
        circuit.refused(Some(0));
    }
    assert!(circuit.diverts() && circuit.diverts());
    after(PERIOD.0.mul_f64(1.25)).await;
    assert!(!circuit.diverts());
}
