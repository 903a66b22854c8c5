//! `[server]`.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::section::{Item, Section};
use super::{Secret, Server, StoreLocation, defaults};
use crate::store::PostgresOptions;

const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
const LONGEST_RETENTION: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Reads `[server]`; without one, everything is at its default.
pub(super) fn read(item: Option<&Item<'_>>, base: &Path) -> Option<Server> {
    let Some(item) = item else { return Some(default(base)) };
    let section = item.section("a table")?;
    let server = read_section(&section, default(base));
    section.end(&[]);
    server
}

fn default(base: &Path) -> Server {
    let listen = SocketAddr::from(([127, 0, 0, 1], 4545));
    Server {
        listen,
        store: store_location(defaults::STORE, base).unwrap_or(StoreLocation::Memory),
        public_url: format!("http://{listen}"),
        max_in_flight: defaults::MAX_IN_FLIGHT,
        max_open_requests: defaults::MAX_OPEN_REQUESTS,
        max_body_bytes: defaults::MAX_BODY_BYTES,
        header_timeout: defaults::HEADER_TIMEOUT,
        body_timeout: defaults::BODY_TIMEOUT,
        max_wait: defaults::MAX_WAIT,
        shutdown_grace: defaults::SHUTDOWN_GRACE,
        retention: defaults::RETENTION,
        sqlite_cache_bytes: defaults::SQLITE_CACHE_BYTES,
    }
}

/// Keys that are wrong keep their default; their error is recorded.
fn read_section(section: &Section<'_>, mut server: Server) -> Option<Server> {
    if let Some(listen) = section.get("listen").and_then(|item| listen(&item)) {
        server.listen = listen;
        server.public_url = format!("http://{listen}");
    }
    if let Some(store) = section.get("store").and_then(|item| store(&item)) {
        server.store = store;
    }
    if let Some(url) = section.get("public_url").and_then(|item| public_url(&item)) {
        server.public_url = url;
    }
    let count = |key, high, value: &mut usize| {
        let found = section.get(key).and_then(|item| item.whole(1..=high, ""));
        *value = found.and_then(|found| usize::try_from(found).ok()).unwrap_or(*value);
    };
    count("max_in_flight", 1_000_000, &mut server.max_in_flight);
    count("max_open_requests", 1_000_000, &mut server.max_open_requests);
    count("max_body_bytes", 1 << 30, &mut server.max_body_bytes);
    let time = |key, low, value: &mut Duration| {
        let found = section.get(key).and_then(|item| item.duration(low..=HOUR));
        *value = found.unwrap_or(*value);
    };
    time("header_timeout", MILLISECOND, &mut server.header_timeout);
    time("body_timeout", MILLISECOND, &mut server.body_timeout);
    time("max_wait", MILLISECOND, &mut server.max_wait);
    time("shutdown_grace", Duration::ZERO, &mut server.shutdown_grace);
    if let Some(retention) = section.get("retention").and_then(|item| item.duration(HOUR..=LONGEST_RETENTION)) {
        server.retention = retention;
    }
    if let Some(bytes) = section.get("sqlite_cache_bytes").and_then(|item| item.whole(1 << 20..=1 << 40, "of bytes")) {
        server.sqlite_cache_bytes = bytes;
    }
    Some(server)
}

fn listen(item: &Item<'_>) -> Option<SocketAddr> {
    let text = item.string(defaults::LISTEN)?;
    let Ok(address) = text.parse::<SocketAddr>() else {
        item.error(format!("expected an IP address and a port such as {:?}, found {text:?}", defaults::LISTEN));
        return None;
    };
    if !address.ip().is_loopback() {
        item.error(format!(
            "{address} is no loopback address, and access keys do not exist yet: anyone who reaches it could spend your \
             money; expected an address such as {:?}",
            defaults::LISTEN
        ));
        return None;
    }
    Some(address)
}

fn store(item: &Item<'_>) -> Option<StoreLocation> {
    let text = item.string(defaults::STORE)?;
    match store_location(text, item.findings.base) {
        Ok(location) => Some(location),
        Err(message) => {
            item.error(message);
            None
        }
    }
}

fn store_location(text: &str, base: &Path) -> Result<StoreLocation, String> {
    if text == "memory:" {
        return Ok(StoreLocation::Memory);
    }
    if text.starts_with("postgres:") || text.starts_with("postgresql:") {
        // The message never repeats the URL: it may hold a password.
        return PostgresOptions::parse(text).map(|_| StoreLocation::Postgres(Secret::new(text.to_owned())));
    }
    match text.strip_prefix("sqlite:") {
        Some(":memory:") => Err("expected \"memory:\" for a store that keeps nothing".to_owned()),
        Some(path) if !path.is_empty() && !path.starts_with("//") => Ok(StoreLocation::Sqlite(base.join(path))),
        Some(_) | None => Err(format!(
            "expected \"sqlite:\" and a path, such as {:?} or \"sqlite:/var/lib/onejob/onejob.db\", \
             \"postgres://user@host/database\", or \"memory:\"",
            defaults::STORE
        )),
    }
}

fn public_url(item: &Item<'_>) -> Option<String> {
    let example = "https://onejob.example.com";
    let text = item.string(example)?;
    let url = url::Url::parse(text).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none() && url.fragment().is_none()
    });
    if url.is_none() {
        item.error(format!("expected an http or https URL such as {example:?}, without query"));
        return None;
    }
    Some(text.trim_end_matches('/').to_owned())
}
