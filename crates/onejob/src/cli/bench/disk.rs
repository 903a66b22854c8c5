//! What one flush of the disk takes: the floor under every durable commit.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Flushes measured of each kind.
const TIMES: usize = 200;

/// Between two lone flushes: long enough for the device to fall idle.
const IDLE: Duration = Duration::from_millis(5);

/// Median times of one flush of 4 KiB.
pub(super) struct Flush {
    /// One after the other.
    pub(super) tight_ms: f64,
    /// After a pause.
    pub(super) lone_ms: f64,
}

/// Measures in `dir`.
pub(super) fn flush_times(dir: &Path) -> Result<Flush, String> {
    let path = dir.join("flush");
    let measure = |pause: Option<Duration>| -> std::io::Result<f64> {
        let mut file = std::fs::File::create(&path)?;
        let mut times = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            if let Some(pause) = pause {
                std::thread::sleep(pause);
            }
            let began = Instant::now();
            file.write_all(&[7; 4096])?;
            file.sync_data()?;
            times.push(began.elapsed());
        }
        times.sort();
        Ok(times[TIMES / 2].as_secs_f64() * 1000.0)
    };
    let told = |error: std::io::Error| format!("cannot measure the disk at {}: {error}", path.display());
    Ok(Flush { tight_ms: measure(None).map_err(told)?, lone_ms: measure(Some(IDLE)).map_err(told)? })
}
