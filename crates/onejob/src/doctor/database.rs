//! A PostgreSQL database, its nodes, and what keeps it from being cleaned.

use super::{Check, count, jobs, size, span};
use crate::config::Config;
use crate::store::PostgresOptions;
use crate::store::examined::{
    Asked, ExaminedDatabase, ExaminedNode, ExaminedServer, ExaminedSlot, ExaminedStandby, ExaminedTable,
    ExaminedTransaction,
};
use crate::store::postgres::OpenError;

/// The versions that the tests run on.
const OLDEST_VERSION: i64 = 130_000;
const NEWEST_VERSION: i64 = 189_999;

/// Clocks that differ by more make logs of two machines hard to read side by side.
const CLOCK_MS: i64 = 2_000;

/// What one node opens at most (docs/postgres.md).
const CONNECTIONS_PER_NODE: i64 = 15;

/// A node whose lease ended longer ago should have been declared dead by another.
const LONG_DEAD_MS: i64 = 30_000;

/// A transaction that is open for longer keeps the dead rows of busy tables.
const LONG_TRANSACTION_MS: i64 = 300_000;

/// A slot that nobody reads and that keeps more of the log than this will fill the disk.
const KEPT_LOG: i64 = 1 << 30;

/// A standby that is further behind loses that much when it takes over, unless it is synchronous.
const LONG_LAG_MS: i64 = 30_000;

/// So many dead rows, and more than live ones, and nobody has come to clean.
const MANY_DEAD: i64 = 50_000;

/// The database does not answer, or not as it should.
pub(super) fn unreachable(options: &PostgresOptions, error: &OpenError) -> Check {
    Check::finding(
        "database.connection",
        format!("{}: {error}", options.place()),
        "is the server running, is the address in server.store right, and does pg_hba.conf let this machine and role in? \
         Until then posts are answered 503 with retry_with_same_key, and nothing is lost",
    )
}

/// What a database says.
pub(super) fn judge(config: &Config, options: &PostgresOptions, seen: &ExaminedDatabase) -> Vec<Check> {
    let server = &seen.server;
    let mut checks = vec![connection(server, options), version(server), schema(seen)];
    checks.extend([clock(server), durability(server), connections(server, &seen.nodes)]);
    if matches!(seen.schema_version, Ok(1..)) {
        checks.extend(asked("nodes", &seen.nodes, |nodes| of_nodes(nodes)));
        checks.extend(asked("jobs", &seen.jobs, |found| jobs::judge(config, found)));
        checks.extend(asked("database.tables", &seen.tables, |tables| vec![of_tables(tables)]));
    }
    checks.extend(asked("database.transactions", &seen.transactions, |found| vec![of_transactions(found)]));
    checks.extend(asked("database.slots", &seen.slots, |slots| of_slots(slots)));
    checks.extend(asked("database.standbys", &seen.standbys, |standbys| of_standbys(standbys)));
    checks
}

fn asked<T>(name: &'static str, seen: &Asked<T>, judge: impl FnOnce(&T) -> Vec<Check>) -> Vec<Check> {
    match seen {
        Ok(seen) => judge(seen),
        Err(why) => vec![Check::skipped(name, why)],
    }
}

fn connection(server: &ExaminedServer, options: &PostgresOptions) -> Check {
    const NAME: &str = "database.connection";
    let pooled = if options.pooled { ", through a pooler" } else { "" };
    let seen = format!(
        "{} as {} in {}{pooled}; a question takes {}",
        server.place,
        server.user,
        server.database,
        span(server.round_trip_ms)
    );
    match server.is_standby {
        false => Check::good(NAME, seen),
        true => Check::finding(
            NAME,
            format!("{seen}; it is a standby and takes no writes"),
            "point server.store to the primary, or name both hosts: the one that takes writes is used",
        ),
    }
}

fn version(server: &ExaminedServer) -> Check {
    const NAME: &str = "database.version";
    let seen = format!("PostgreSQL {}", server.version_text);
    match server.version {
        ..OLDEST_VERSION => Check::finding(
            NAME,
            format!("{seen} is too old"),
            "versions 13 to 18 are supported: bring the server up to date",
        ),
        OLDEST_VERSION..=NEWEST_VERSION => Check::good(NAME, seen),
        _ => Check::note(NAME, format!("{seen} is newer than the versions that were tried (13 to 18)")),
    }
}

fn schema(seen: &ExaminedDatabase) -> Check {
    const NAME: &str = "database.schema";
    let known = seen.known_version;
    match &seen.schema_version {
        Err(why) => Check::finding(NAME, why, "let this role read the schema onejob"),
        Ok(found) if *found == known => Check::good(NAME, format!("version {found}, the one that this build knows")),
        Ok(found) if *found < known => {
            Check::finding(NAME, format!("version {found}, and this build needs {known}"), "run `onejob migrate`")
        }
        Ok(found) => Check::finding(
            NAME,
            format!("version {found}, and this build knows {known}"),
            "it was migrated by a newer onejob: use that one here, too; this build does not start on it",
        ),
    }
}

fn clock(server: &ExaminedServer) -> Check {
    const NAME: &str = "database.clock";
    let (ahead, word) = match server.clock_ahead_ms {
        behind @ ..0 => (-behind, "behind"),
        ahead => (ahead, "ahead of"),
    };
    let seen = format!("the database's clock is {} {word} this machine's", span(ahead));
    match ahead - server.round_trip_ms > CLOCK_MS {
        false => Check::good(NAME, seen),
        true => Check::finding(
            NAME,
            seen,
            "leases and due times are the database's and go right; but run_at and deadline as callers compute them, and \
             the log of this machine, do not: let both follow NTP",
        ),
    }
}

fn durability(server: &ExaminedServer) -> Check {
    const NAME: &str = "database.durability";
    let off: Vec<&str> = [("fsync", &server.fsync), ("full_page_writes", &server.full_page_writes)]
        .into_iter()
        .filter(|(_, value)| *value == "off")
        .map(|(name, _)| name)
        .collect();
    if !off.is_empty() {
        return Check::finding(
            NAME,
            format!("{} is off: a crash of the machine loses or damages what was acknowledged", off.join(" and ")),
            "switch it on in postgresql.conf and reload; R10 does not hold until then",
        );
    }
    let default = &server.synchronous_commit;
    match default.as_str() {
        "on" | "remote_apply" => Check::good(NAME, "fsync and full_page_writes are on, and commits are durable"),
        _ => Check::note(
            NAME,
            format!("synchronous_commit is {default} by default; onejob switches it on for its own commits"),
        ),
    }
}

fn connections(server: &ExaminedServer, nodes: &Asked<Vec<ExaminedNode>>) -> Check {
    const NAME: &str = "database.connections";
    let (now, most) = (server.connections_now, server.connections_most);
    let nodes = nodes.as_ref().map_or(0, |nodes| nodes.iter().filter(|node| is_alive(node)).count());
    let wanted = CONNECTIONS_PER_NODE * i64::try_from(nodes).unwrap_or(0).max(1);
    let seen = format!("{now} of {most} are open; the nodes here want up to {wanted}");
    match wanted > most || most - now < CONNECTIONS_PER_NODE {
        false => Check::good(NAME, seen),
        true => Check::finding(
            NAME,
            seen,
            "raise max_connections, or put a pooler in between (pgbouncer=true in the URL): without room a node that \
             reconnects is refused and loses its lease",
        ),
    }
}

fn is_alive(node: &ExaminedNode) -> bool {
    node.ended_ms.is_none() && node.lease_ms > 0
}

fn of_nodes(nodes: &[ExaminedNode]) -> Vec<Check> {
    const NAME: &str = "nodes";
    let alive = nodes.iter().filter(|node| is_alive(node)).map(|node| {
        let open = count(node.open_attempts, "attempt", "attempts");
        Check::good(NAME, format!("{}: alive, here for {}, {open} in flight", node.name, span(node.age_ms)))
    });
    let lapsed = nodes.iter().filter(|node| node.ended_ms.is_none() && node.lease_ms <= 0).map(|node| {
        let open = count(node.open_attempts, "attempt is", "attempts are");
        let seen = format!("{}: its lease ended {} ago; {open} open", node.name, span(-node.lease_ms));
        match -node.lease_ms > LONG_DEAD_MS {
            false => Check::note(NAME, seen),
            true => Check::finding(
                NAME,
                seen,
                "it is dead and no other node has said so: start a node, which turns what it left open into unknown \
                 attempts",
            ),
        }
    });
    let ended = nodes.iter().filter(|node| node.ended_ms.is_some() && node.open_attempts > 0).map(|node| {
        let open = count(node.open_attempts, "attempt", "attempts");
        Check::finding(
            NAME,
            format!("{}: ended, and {open} of it not unknown yet", node.name),
            "start a node: it turns them into unknown attempts within seconds",
        )
    });
    let mut checks: Vec<Check> = alive.chain(lapsed).chain(ended).collect();
    if !nodes.iter().any(is_alive) {
        checks.insert(0, Check::note(NAME, "no node is alive: nothing is sent until one serves"));
    }
    checks
}

fn of_tables(tables: &[ExaminedTable]) -> Check {
    const NAME: &str = "database.tables";
    let bytes: i64 = tables.iter().map(|table| table.bytes).sum();
    let dead: Vec<&ExaminedTable> =
        tables.iter().filter(|table| table.dead > MANY_DEAD && table.dead > table.live).collect();
    if dead.is_empty() {
        let rows: i64 = tables.iter().map(|table| table.dead).sum();
        return Check::good(NAME, format!("{} in {} tables, about {rows} dead rows", size(bytes), tables.len()));
    }
    let seen: Vec<String> = dead
        .iter()
        .map(|table| {
            let cleaned = table.cleaned_ms.map_or("never cleaned".to_owned(), |ms| format!("cleaned {} ago", span(ms)));
            format!("{}: {} dead rows on {} live ones, {cleaned}", table.name, table.dead, table.live)
        })
        .collect();
    Check::finding(
        NAME,
        seen.join("; "),
        "something holds cleaning back (a long transaction, a slot: see below), or autovacuum is off or too slow: end \
         what holds it, then `VACUUM (ANALYZE)` these tables",
    )
}

fn of_transactions(found: &[ExaminedTransaction]) -> Check {
    const NAME: &str = "database.transactions";
    let Some(longest) = found.first().filter(|longest| longest.age_ms > LONG_TRANSACTION_MS) else {
        return Check::good(NAME, "none is open for long");
    };
    let others = found.iter().filter(|it| it.age_ms > LONG_TRANSACTION_MS).count() - 1;
    let also = if others == 0 { String::new() } else { format!("; and {others} more") };
    let advice = match longest.name.strip_prefix("session ") {
        Some(process) => {
            format!("it keeps dead rows, and perhaps keys and jobs: end it with `pg_terminate_backend({process})`")
        }
        None => "it keeps dead rows and locks: COMMIT PREPARED or ROLLBACK PREPARED it".to_owned(),
    };
    let ExaminedTransaction { name, user, application, state, .. } = longest;
    let age = span(longest.age_ms);
    Check::finding(NAME, format!("{name} of {user} {application:?} is open for {age} ({state}){also}"), advice)
}

fn of_slots(slots: &[ExaminedSlot]) -> Vec<Check> {
    let idle = slots.iter().filter(|slot| !slot.is_active);
    let judged = idle.filter_map(|slot| {
        let kept = slot.kept_bytes.unwrap_or(0);
        (slot.keeps_rows || kept > KEPT_LOG).then(|| {
            let rows = if slot.keeps_rows { " and dead rows" } else { "" };
            Check::finding(
                "database.slots",
                format!(
                    "nobody reads the replication slot {:?}, which keeps {} of the log{rows}",
                    slot.name,
                    size(kept)
                ),
                "start its reader, or drop it with `pg_drop_replication_slot`. The disk fills until then",
            )
        })
    });
    judged.collect()
}

fn of_standbys(standbys: &[ExaminedStandby]) -> Vec<Check> {
    let judged = standbys.iter().map(|standby| {
        let ExaminedStandby { name, state, sync, lag_ms } = standby;
        let seen = format!("standby {name:?}: {state}, {sync}, {} behind", span(*lag_ms));
        match *lag_ms > LONG_LAG_MS || state != "streaming" {
            false => Check::good("database.standbys", seen),
            true => Check::finding(
                "database.standbys",
                seen,
                "a failover now would lose what it lacks, unless it is synchronous: look at its disk and network",
            ),
        }
    });
    judged.collect()
}
