//! Every default of the configuration, in one place. `docs/configuration.md` states each.

use std::time::Duration;

/// `server.listen`: loopback, the only kind of address that is served without access keys.
pub const LISTEN: &str = "127.0.0.1:4545";
/// `server.store`: a file beside the configuration.
pub const STORE: &str = "sqlite:onejob.db";
/// `server.max_in_flight`: one connection each; docs/operating.md says how many files may be open.
pub const MAX_IN_FLIGHT: usize = 1024;
/// `server.max_open_requests`: many callers wait for one answer each.
pub const MAX_OPEN_REQUESTS: usize = 4096;
/// `server.max_body_bytes`: an input is a request, not a file.
pub const MAX_BODY_BYTES: usize = 1 << 20;
/// `server.header_timeout`.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// `server.body_timeout`.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// `server.max_wait`: below the idle limit of most balancers.
pub const MAX_WAIT: Duration = Duration::from_secs(60);
/// `server.shutdown_grace`: below the 30 s that most orchestrators wait before they kill.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(20);
/// `server.retention`: a quarter, so that a dispute about a bill can still be looked up.
pub const RETENTION: Duration = Duration::from_secs(90 * 24 * 3600);
/// `server.sqlite_cache_bytes`: keeps the indexes of a million jobs in memory.
pub const SQLITE_CACHE_BYTES: u64 = 256 << 20;

/// `providers.*.concurrency`.
pub const CONCURRENCY: usize = 64;
/// `providers.*.request.method`.
pub const METHOD: &str = "POST";
/// `providers.*.connect_timeout`.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// `providers.*.max_answer_bytes`.
pub const MAX_ANSWER_BYTES: usize = 16 << 20;

/// `tasks.*.attempt_timeout`.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
/// `tasks.*.linger`.
pub const LINGER: Duration = Duration::from_secs(600);
/// `tasks.*.tries`.
pub const TRIES: u32 = 2;
/// `tasks.*.max_attempts`.
pub const MAX_ATTEMPTS: u32 = 4;
/// `tasks.*.backoff`.
pub const BACKOFF: Duration = Duration::from_millis(500);

/// `tasks.*.contract.repeat`: once shows that it can, five times that it does.
pub const REPEAT: u32 = 5;
/// `tasks.*.contract.valid_for`.
pub const VALID_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
/// `tasks.*.contract.token_tolerance`: a foreign template or tokenizer is further off, a few tokens of
/// markup are not.
pub const TOKEN_TOLERANCE: f64 = 0.1;
/// `tasks.*.contract.probe_tokens`: longer than the windows that servers cut prompts to by default, and
/// still cheap.
pub const PROBE_TOKENS: u64 = 6_000;
