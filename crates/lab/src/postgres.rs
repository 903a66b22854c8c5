//! PostgreSQL for tests: a private cluster that is thrown away with the process, and a database of its own
//! for each test.
//!
//! The cluster runs as an unprivileged user where the tests run as root, listens on a free port of the
//! loopback address and on a socket in its own folder, and is stopped and removed by a watcher when the
//! test process ends, however it ends.
// A test that cannot have its database must fail and say what is missing.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onejob::store::{PostgresOptions, PostgresStore, postgres};
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};

/// Programs that must lie side by side.
const PROGRAMS: [&str; 3] = ["initdb", "postgres", "pg_ctl"];

const HOW_TO_INSTALL: &str = "PostgreSQL (13 to 18) is not installed here, and these tests are not skipped: install the \
server, for example with `apt-get install postgresql` or `brew install postgresql`, or put initdb, postgres and pg_ctl \
into PATH";

const HOW_TO_INSTALL_THE_POOLER: &str = "PgBouncer is not installed here, and these tests are not skipped: install it, for \
example with `apt-get install pgbouncer` or `brew install pgbouncer`, or put pgbouncer into PATH";

/// Whether a commit reaches the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disk {
    /// No: the machine does not crash in a test that only asks for answers.
    Fast,
    /// Yes: for tests that crash the server or count its writes.
    Durable,
}

/// A running server.
pub struct Cluster {
    folder: PathBuf,
    programs: PathBuf,
    user: Option<User>,
    port: u16,
    databases: AtomicU64,
    template: OnceCell<()>,
    /// Its end tells the watcher that this process has ended.
    _alive: ChildStdin,
}

/// Who may run a server.
#[derive(Clone, Copy)]
struct User {
    id: u32,
    group: u32,
}

impl Cluster {
    /// The one of this process, for all tests that need no other.
    pub fn shared() -> &'static Cluster {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| Cluster::start(Disk::Fast))
    }

    /// A cluster of its own.
    ///
    /// # Panics
    ///
    /// If PostgreSQL is not installed or does not start.
    pub fn start(disk: Disk) -> Cluster {
        let programs = programs().unwrap_or_else(|| panic!("{HOW_TO_INSTALL}"));
        let user = unprivileged();
        let folder = tempfile::Builder::new().prefix("onejob-pg-").tempdir().unwrap().keep();
        if let Some(user) = user {
            chown(&folder, Some(user.id), Some(user.group)).unwrap();
        }
        let data = folder.join("data");
        let alive = watcher(&folder, &programs, user);
        let mut initdb = command(&programs.join("initdb"), user, &folder);
        initdb
            .args(["--auth=trust", "--username=onejob", "--encoding=UTF8", "--no-locale", "--no-sync", "-D"])
            .arg(&data);
        run(initdb);
        let mut cluster = Cluster {
            folder,
            programs,
            user,
            port: 0,
            databases: AtomicU64::new(0),
            template: OnceCell::new(),
            _alive: alive,
        };
        cluster.configure(disk);
        cluster.start_on_a_free_port();
        cluster
    }

    fn start_on_a_free_port(&mut self) {
        // A port that was free a moment ago may be taken by now.
        let started = (0..5).any(|_| {
            self.port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            self.try_start()
        });
        assert!(started, "the server did not start: {}", self.log());
    }

    /// A standby of it; from now on a commit is answered when it is on the disks of both.
    pub async fn standby(&self) -> Cluster {
        let folder = tempfile::Builder::new().prefix("onejob-pg-").tempdir().unwrap().keep();
        if let Some(user) = self.user {
            chown(&folder, Some(user.id), Some(user.group)).unwrap();
        }
        let alive = watcher(&folder, &self.programs, self.user);
        let mut backup = command(&self.programs.join("pg_basebackup"), self.user, &folder);
        backup.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--dbname"]);
        backup.arg(self.url("postgres")).arg("-D").arg(folder.join("data"));
        let mut standby = Cluster {
            folder,
            programs: self.programs.clone(),
            user: self.user,
            port: 0,
            databases: AtomicU64::new(0),
            template: OnceCell::new(),
            _alive: alive,
        };
        tokio::task::block_in_place(|| {
            run(backup);
            standby.start_on_a_free_port();
        });
        let client = self.client("postgres").await;
        client.batch_execute("ALTER SYSTEM SET synchronous_standby_names = '*'").await.unwrap();
        client.query("SELECT pg_reload_conf()", &[]).await.unwrap();
        let waits_for_it = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        while client.query_one(waits_for_it, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        standby
    }

    /// Makes a standby the primary.
    pub fn promote(&self) {
        let mut promote = self.pg_ctl("promote");
        promote.args(["-w", "-t", "120"]);
        run(promote);
    }

    /// A new, migrated database.
    pub async fn database(&self) -> Database<'_> {
        self.template
            .get_or_init(|| async {
                let template = self.create("template", "template0").await;
                postgres::migrate(&template.options()).await.unwrap();
            })
            .await;
        self.numbered("template").await
    }

    /// A new database with nothing in it.
    pub async fn empty_database(&self) -> Database<'_> {
        self.numbered("template0").await
    }

    async fn numbered(&self, template: &str) -> Database<'_> {
        self.create(&format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed)), template).await
    }

    async fn create(&self, name: &str, template: &str) -> Database<'_> {
        self.client("postgres")
            .await
            .batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {template}"))
            .await
            .unwrap();
        Database { cluster: self, name: name.to_owned() }
    }

    /// Where it is, for one of its databases.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://onejob@127.0.0.1:{}/{database}", self.port)
    }

    /// The folder of its socket.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of its programs.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub async fn client(&self, database: &str) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url(database), NoTls).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        client
    }

    /// From now on it can encrypt.
    pub async fn encrypt(&self, certificate: &str, key: &str) {
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            let file = self.folder.join("data").join(name);
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            if let Some(user) = self.user {
                chown(&file, Some(user.id), Some(user.group)).unwrap();
            }
        }
        let client = self.client("postgres").await;
        client.batch_execute("ALTER SYSTEM SET ssl = on").await.unwrap();
        client.query("SELECT pg_reload_conf()", &[]).await.unwrap();
        while client.query_one("SHOW ssl", &[]).await.unwrap().get::<_, &str>(0) != "on" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Stops it as a crash would, if `how` is `immediate`.
    pub fn stop(&self, how: &str) {
        let mut stop = self.pg_ctl("stop");
        stop.args(["-w", "-m", how]);
        run(stop);
    }

    /// Starts it again on the same port.
    pub fn start_again(&self) {
        assert!(self.try_start(), "the server did not start again: {}", self.log());
    }

    fn try_start(&self) -> bool {
        let mut start = self.pg_ctl("start");
        let options = format!("-p {} -k {}", self.port, self.folder.display());
        start.args(["-w", "-t", "120", "-o", &options, "-l"]).arg(self.folder.join("log"));
        start.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null()).status().unwrap().success()
    }

    fn pg_ctl(&self, what: &str) -> Command {
        let mut pg_ctl = command(&self.programs.join("pg_ctl"), self.user, &self.folder);
        pg_ctl.arg(what).arg("-D").arg(self.folder.join("data"));
        pg_ctl
    }

    fn configure(&self, disk: Disk) {
        let mut text = "listen_addresses = '127.0.0.1'\nmax_connections = 400\nshared_buffers = '64MB'\n\
                        max_wal_size = '2GB'\nlog_min_messages = warning\nlog_statement = none\n"
            .to_owned();
        if disk == Disk::Fast {
            text.push_str("fsync = off\nfull_page_writes = off\n");
        }
        let file = self.folder.join("data/postgresql.auto.conf");
        let before = fs::read_to_string(&file).unwrap();
        fs::write(&file, before + &text).unwrap();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

/// A database of one test.
pub struct Database<'a> {
    cluster: &'a Cluster,
    pub name: String,
}

impl Database<'_> {
    pub fn url(&self) -> String {
        self.cluster.url(&self.name)
    }

    pub fn options(&self) -> PostgresOptions {
        PostgresOptions::parse(&self.url()).unwrap()
    }

    /// A store that believes the times it is given, as the other stores do.
    pub async fn store(&self) -> PostgresStore {
        let mut options = self.options();
        options.clock = postgres::DueBy::Caller;
        PostgresStore::open(options).await.unwrap()
    }

    pub async fn client(&self) -> Client {
        self.cluster.client(&self.name).await
    }

    /// Runs statements, outside of every store.
    pub async fn shell(&self, sql: &str) {
        self.client().await.batch_execute(sql).await.unwrap();
    }

    pub async fn drop(self) {
        let client = self.cluster.client("postgres").await;
        client.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name)).await.unwrap();
    }
}

/// A pooler in transaction mode in front of the shared cluster: each transaction may run on another
/// connection, and so few of them are open that it does.
pub struct Bouncer {
    port: u16,
    _alive: ChildStdin,
}

impl Bouncer {
    /// The one of this process.
    pub fn shared() -> &'static Bouncer {
        static SHARED: OnceLock<Bouncer> = OnceLock::new();
        SHARED.get_or_init(|| Bouncer::start(Cluster::shared()))
    }

    fn start(cluster: &Cluster) -> Bouncer {
        let paths = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect::<Vec<_>>();
        let folders = paths.into_iter().chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
        let program = folders.map(|folder: PathBuf| folder.join("pgbouncer")).find(|program| program.is_file());
        let program = program.unwrap_or_else(|| panic!("{HOW_TO_INSTALL_THE_POOLER}"));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let file = cluster.folder.join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=onejob\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
             default_pool_size = 3\nmax_client_conn = 1000\nlogfile = {}\n",
            cluster.port,
            cluster.folder.join("pgbouncer.log").display()
        );
        fs::write(&file, text).unwrap();
        let script = r#"trap '' INT TERM HUP; "$1" -q "$2" & cat >/dev/null; kill -KILL $!"#;
        let mut watcher = command(Path::new("/bin/sh"), cluster.user, Path::new("/"));
        watcher.arg("-c").arg(script).arg("sh").arg(&program).arg(&file);
        watcher.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let alive = watcher.spawn().unwrap().stdin.take().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "pgbouncer did not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        Bouncer { port, _alive: alive }
    }

    /// A store that reaches the database only through the pooler.
    pub fn options(&self, database: &Database<'_>) -> PostgresOptions {
        let url = format!("postgres://onejob@127.0.0.1:{}/{}?pgbouncer=true", self.port, database.name);
        PostgresOptions::parse(&url).unwrap()
    }
}

/// Waits in a process of its own until this one has ended, then stops the server and removes its folder.
fn watcher(folder: &Path, programs: &Path, user: Option<User>) -> ChildStdin {
    let script = r#"trap '' INT TERM HUP; cat >/dev/null
        "$1/pg_ctl" stop -D "$2/data" -m immediate >/dev/null 2>&1; rm -rf "$2""#;
    let mut watcher = command(Path::new("/bin/sh"), user, Path::new("/"));
    watcher.arg("-c").arg(script).arg("sh").arg(programs).arg(folder);
    // Of its own group: what a terminal sends to the tests is not for it.
    watcher.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    watcher.spawn().unwrap().stdin.take().unwrap()
}

fn command(program: &Path, user: Option<User>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env("LC_ALL", "C");
    if let Some(user) = user {
        command.uid(user.id).gid(user.group);
    }
    command
}

fn run(mut command: Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
}

/// The folder with the server's programs: the newest installed.
fn programs() -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    if let Ok(output) = Command::new("pg_config").arg("--bindir").output() {
        folders.push(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    let version = |folder: &PathBuf| folder.file_name()?.to_str()?.parse::<u32>().ok();
    let mut installed: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
        .unwrap_or_default();
    installed.sort_by_key(|folder| std::cmp::Reverse(version(folder)));
    folders.extend(installed.into_iter().map(|folder| folder.join("bin")));
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    folders.into_iter().find(|folder| PROGRAMS.iter().all(|program| folder.join(program).is_file()))
}

/// The server refuses to run as root.
fn unprivileged() -> Option<User> {
    let mut status = String::new();
    fs::File::open("/proc/self/status").ok()?.read_to_string(&mut status).ok()?;
    let is_root = status.lines().any(|line| line.split_whitespace().take(3).eq(["Uid:", "0", "0"]));
    if !is_root {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let of = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some(User { id: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
    };
    of("postgres").or_else(|| of("nobody"))
}
