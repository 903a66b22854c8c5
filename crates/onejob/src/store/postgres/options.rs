//! Where the database is and how it is used: one URL, and what its parameters mean.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::store::record::Hold;

/// How the database is reached and used.
#[derive(Clone)]
pub struct PostgresOptions {
    pub(super) config: tokio_postgres::Config,
    pub(super) tls: Tls,
    /// A pooler in transaction mode stands between: no prepared statements, no session settings, no
    /// hints. `pgbouncer=true` in the URL.
    pub pooled: bool,
    /// Whether nodes tell each other what they do (`LISTEN`, `NOTIFY`). `notify=false` in the URL.
    pub notify: bool,
    /// Whose clock says what is due.
    pub clock: DueBy,
    /// How much of the open jobs this node remembers, in bytes; 0 makes it read every job anew.
    pub remembered_bytes: usize,
    /// Connections that gather posts, and those that gather commands to jobs.
    pub lanes: (usize, usize),
    /// Longest single statement of a write; reads get a third of it, leases a tenth.
    pub statement_timeout: Duration,
    /// How long a commit whose end is not known is looked into before the caller is told so.
    pub resolve_within: Duration,
    /// Called between each decision and its write; for tests.
    pub hold: Option<Hold>,
}

/// See [`PostgresOptions::lanes`]. Two that gather posts beat one, which waits for the disk half of the
/// time, and four, whose batches are small. Commands to jobs wait for nobody, so one is enough.
const LANES: (usize, usize) = (2, 1);

/// Whose clock says whether a queued job is due when it is claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DueBy {
    /// The database's: nodes whose clocks differ agree.
    Database,
    /// The caller's `at`; for tests.
    Caller,
}

/// How the connection is kept from others' eyes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Tls {
    /// Encrypted where the server can, whoever it is.
    Unverified,
    /// Encrypted, and the server proves its name: by the certificates of this machine, or of a file.
    Verified { roots: Option<PathBuf> },
}

impl PostgresOptions {
    /// Reads `postgres://user:password@host:port/database?…`: what libpq takes in a URL as far as it
    /// matters here, several hosts too, and two parameters of our own (`pgbouncer`, `notify`).
    ///
    /// # Errors
    ///
    /// A sentence that never repeats the URL: it may hold a password.
    pub fn parse(url: &str) -> Result<PostgresOptions, String> {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut pooled, mut notify, mut roots, mut mode) = (false, true, None, "prefer".to_owned());
        let mut rest: Vec<&str> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let text = || decoded(value).ok_or_else(|| format!("the parameter {name} is not valid text"));
            match name {
                "pgbouncer" => pooled = switch(name, &text()?)?,
                "notify" => notify = switch(name, &text()?)?,
                "sslrootcert" => roots = Some(PathBuf::from(text()?)),
                "sslmode" => mode = text()?,
                _ => rest.push(pair),
            }
        }
        let plain = if rest.is_empty() { place.to_owned() } else { format!("{place}?{}", rest.join("&")) };
        let mut config: tokio_postgres::Config =
            plain.parse().map_err(|error| format!("expected \"postgres://user@host/database\": {error}"))?;
        if config.get_dbname().is_none_or(str::is_empty) {
            return Err("expected the name of a database at the end: \"postgres://user@host/database\"".to_owned());
        }
        let tls = match &*mode {
            "disable" => Tls::Unverified,
            "prefer" | "allow" => Tls::Unverified,
            "require" if roots.is_none() => Tls::Unverified,
            // As libpq does: who names the roots wants them used.
            "require" | "verify-full" => Tls::Verified { roots },
            "verify-ca" => return Err("sslmode=verify-ca is not supported: use verify-full".to_owned()),
            _ => return Err("sslmode: expected disable, prefer, require or verify-full".to_owned()),
        };
        config.ssl_mode(match &*mode {
            "disable" => SslMode::Disable,
            "prefer" | "allow" => SslMode::Prefer,
            _ => SslMode::Require,
        });
        set_defaults(&mut config);
        Ok(PostgresOptions {
            config,
            tls,
            pooled,
            notify: notify && !pooled,
            clock: DueBy::Database,
            remembered_bytes: 64 << 20,
            lanes: LANES,
            statement_timeout: Duration::from_secs(30),
            resolve_within: Duration::from_secs(10),
            hold: None,
        })
    }
}

impl PostgresOptions {
    /// Where it is, for people: hosts and ports, and nothing that a URL may hold beside.
    pub fn place(&self) -> String {
        let ports = self.config.get_ports();
        let hosts = self.config.get_hosts().iter().enumerate().map(|(number, host)| {
            let port = ports.get(number).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) => format!("{name}:{port}"),
                #[cfg(unix)]
                Host::Unix(folder) => format!("{}:{port}", folder.display()),
            }
        });
        hosts.collect::<Vec<_>>().join(", ")
    }
}

/// What is said of connections whose peer is gone without a word, unless the URL says otherwise.
fn set_defaults(config: &mut tokio_postgres::Config) {
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_secs(5));
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(Duration::from_secs(15));
    }
    config.keepalives_idle(Duration::from_secs(15));
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(Duration::from_secs(5));
    }
    if config.get_application_name().is_none() {
        config.application_name("onejob");
    }
    // Of several servers the one that takes writes, wherever it is after a failover.
    if config.get_hosts().len() > 1 && config.get_target_session_attrs() == TargetSessionAttrs::Any {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
}

fn switch(name: &str, value: &str) -> Result<bool, String> {
    match value {
        "" | "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(format!("{name}: expected true or false")),
    }
}

fn decoded(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let hex = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

impl fmt::Debug for PostgresOptions {
    /// Without the password, the user and everything else that the URL holds but the place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("hosts", &self.config.get_hosts())
            .field("database", &self.config.get_dbname())
            .field("pooled", &self.pooled)
            .field("notify", &self.notify)
            .finish_non_exhaustive()
    }
}
