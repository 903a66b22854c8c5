//! One connection in use: pipelined statements, one transaction at a time, and never back into its pool
//! in a state that nobody knows.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{ManagerConfig, Object, Pool, RecyclingMethod, Runtime, Timeouts};
use futures_util::future::join_all;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row, Statement as Prepared, Transaction};

use super::fault::Fault;
use super::options::PostgresOptions;
use super::sql::Statement;
use super::tls;

/// What every connection of ours is told. Every hot statement is meant to be a walk along an index; on
/// empty tables, or on large ones that were never analyzed, a planner that is free to choose keeps a
/// plan that scans. A page of a list is not worth the server's other processes. R10 asks for the durable
/// commit whatever the server's default is.
pub(super) const SETTINGS: &[(&str, &str)] = &[
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
    ("max_parallel_workers_per_gather", "0"),
    ("synchronous_commit", "on"),
];

/// A node that was stopped in the middle of a transaction holds rows. It loses them before those who
/// wait give up.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(5);
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// What was gathered does not wait for one of its keys while its neighbours wait with it. Longer than a
/// commit usually takes, so that two nodes with one key seldom get here.
const LOCK_TIMEOUT_OF_LANES: Duration = Duration::from_millis(150);

/// What was found to wait alone: until a node that was stopped in the middle has lost its rows.
const LOCK_TIMEOUT_ALONE: Duration = Duration::from_secs(6);

/// What the network may take on top of what a statement may take.
const NETWORK: Duration = Duration::from_secs(5);

/// A bounded set of connections for one purpose: no purpose waits for another's.
pub(super) struct Links {
    pool: Pool,
    begin: Arc<str>,
    prepares: bool,
    patience: Duration,
}

/// What the connections of a pool are for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Transactions that write: each statement's plan is made once, and only one is possible.
    Write,
    /// The same, for what was gathered.
    Lane,
    /// The same, for what met somebody else's rows and waits for them on its own.
    Alone,
    /// Lists with many filters: a plan for each question.
    Read,
    /// One small row, in time or not at all.
    Lease,
}

impl Links {
    /// Opens nothing yet.
    pub(super) fn new(options: &PostgresOptions, purpose: Purpose, most: usize) -> Result<Links, String> {
        let timeout = match purpose {
            Purpose::Write | Purpose::Lane | Purpose::Alone => options.statement_timeout,
            Purpose::Read => options.statement_timeout / 3,
            Purpose::Lease => options.statement_timeout / 10,
        };
        let settings = settings(purpose, timeout);
        let mut config = options.config.clone();
        let mut begin = "BEGIN ISOLATION LEVEL READ COMMITTED".to_owned();
        if options.pooled {
            // The connection belongs to the pooler; what is said holds for one transaction.
            for (name, value) in &settings {
                begin.push_str(&format!("; SET LOCAL {name} = '{value}'"));
            }
        } else {
            let mut said = config.get_options().unwrap_or_default().to_owned();
            for (name, value) in &settings {
                said.push_str(&format!(" -c {name}={value}"));
            }
            config.options(said);
        }
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = deadpool_postgres::Manager::from_config(config, tls::connector(&options.tls)?, recycling);
        let wait = Some(NETWORK);
        let pool = Pool::builder(manager)
            .max_size(most)
            .timeouts(Timeouts { wait, create: wait, recycle: wait })
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Links { pool, begin: begin.into(), prepares: !options.pooled, patience: timeout + NETWORK })
    }

    /// A connection, opened if none is idle.
    pub(super) async fn get(&self) -> Result<Link<'static>, Fault> {
        Ok(Link {
            wire: Wire::Ours(Some(self.pool.get().await?)),
            begin: self.begin.clone(),
            prepares: self.prepares,
            patience: self.patience,
            is_clean: true,
        })
    }

    /// One statement in a transaction of its own.
    pub(super) async fn ask(&self, statement: &'static Statement, bound: Bound<'_>) -> Result<Vec<Row>, Fault> {
        // An idle connection may have died unseen; that is no word about the database.
        match self.get().await?.ask(statement, &bound).await {
            Err(Fault::Away(_) | Fault::Retry(_)) => self.get().await?.ask(statement, &bound).await,
            other => other,
        }
    }

    pub(super) fn close(&self) {
        self.pool.close();
    }
}

fn settings(purpose: Purpose, timeout: Duration) -> Vec<(&'static str, String)> {
    let mut settings: Vec<_> = SETTINGS.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    if purpose == Purpose::Read {
        settings.push(("plan_cache_mode", "force_custom_plan".to_owned()));
    }
    let lock_timeout = match purpose {
        Purpose::Lane => LOCK_TIMEOUT_OF_LANES,
        Purpose::Alone => LOCK_TIMEOUT_ALONE,
        Purpose::Write | Purpose::Read | Purpose::Lease => LOCK_TIMEOUT,
    };
    for (name, length) in [
        ("statement_timeout", timeout),
        ("lock_timeout", lock_timeout),
        ("idle_in_transaction_session_timeout", IDLE_IN_TRANSACTION),
    ] {
        settings.push((name, length.as_millis().to_string()));
    }
    settings
}

/// The parameters of one statement.
pub(super) type Bound<'a> = Vec<Box<dyn ToSql + Sync + Send + 'a>>;

/// A statement with its parameters.
pub(super) struct Call<'a> {
    pub(super) statement: &'static Statement,
    pub(super) bound: Bound<'a>,
}

impl<'a> Call<'a> {
    pub(super) fn new(statement: &'static Statement, bound: Bound<'a>) -> Call<'a> {
        Call { statement, bound }
    }
}

/// Whether a transaction begins with a pipeline.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    Begin,
    GoOn,
}

/// A connection on loan.
pub(super) struct Link<'a> {
    wire: Wire<'a>,
    begin: Arc<str>,
    prepares: bool,
    patience: Duration,
    is_clean: bool,
}

/// Whose transaction it is.
// One for each transaction, and hardly ever the small one: a box would cost more than it saves.
#[allow(clippy::large_enum_variant)]
enum Wire<'a> {
    /// Ours, on a connection of a pool.
    Ours(Option<Object>),
    /// A caller's: it began it, and it will end it.
    Theirs(&'a Transaction<'a>),
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + Send + 'a>>;

impl<'t> Link<'t> {
    /// A caller's transaction. `begin` is what is said in it first; how long a statement takes is the
    /// caller's own affair.
    pub(super) fn within(transaction: &'t Transaction<'t>, begin: &str) -> Link<'t> {
        let wire = Wire::Theirs(transaction);
        Link { wire, begin: begin.into(), prepares: false, patience: Duration::MAX, is_clean: true }
    }

    async fn ask(mut self, statement: &'static Statement, bound: &Bound<'_>) -> Result<Vec<Row>, Fault> {
        let prepared = self.prepare(statement).await?;
        let answer = self.send(statement, prepared, bound);
        let end = within(self.patience, answer).await?;
        end.map_err(|error| self.spoiled_by(Fault::of(&error)))
    }

    /// Sends all of them at once and gives the rows of each; the first that fails fails all. Nothing is
    /// committed. The statements run in their order, each on what the last one left.
    pub(super) async fn run(&mut self, first: First, calls: &[Call<'_>]) -> Result<Vec<Vec<Row>>, Fault> {
        let mut prepared = Vec::with_capacity(calls.len());
        for call in calls {
            prepared.push(self.prepare(call.statement).await?);
        }
        self.is_clean = false;
        let begins = first == First::Begin;
        let ends = {
            let mut answers: Vec<Answer<'_>> = Vec::with_capacity(calls.len() + 1);
            if begins {
                let (begin, wire) = (self.begin.clone(), &self.wire);
                answers.push(Box::pin(async move { wire.batch_execute(&begin).await.map(|()| Vec::new()) }));
            }
            for (call, prepared) in calls.iter().zip(prepared) {
                answers.push(self.send(call.statement, prepared, &call.bound));
            }
            within(self.patience, join_all(answers)).await?
        };
        let mut rows = Vec::with_capacity(calls.len());
        for end in ends {
            rows.push(end.map_err(|error| self.spoiled_by(Fault::of(&error)))?);
        }
        if begins {
            rows.remove(0);
        }
        Ok(rows)
    }

    /// Commits. The connection goes back into its pool.
    pub(super) async fn commit(mut self) -> Result<(), Fault> {
        let lost = |why: String| Fault::Ambiguous(why);
        let client = self.client().map_err(|_| lost("the connection is gone".into()))?;
        match tokio::time::timeout(self.patience, client.batch_execute("COMMIT")).await {
            Ok(Ok(())) => {
                self.is_clean = true;
                Ok(())
            }
            Ok(Err(error)) => Err(Fault::of_commit(&error)),
            Err(_) => Err(lost("no answer to COMMIT in time".into())),
        }
    }

    /// Takes everything back.
    pub(super) async fn roll_back(mut self) {
        let Ok(client) = self.client() else { return };
        if let Ok(Ok(())) = tokio::time::timeout(self.patience, client.batch_execute("ROLLBACK")).await {
            self.is_clean = true;
        }
    }

    fn client(&self) -> Result<&Object, Fault> {
        match &self.wire {
            Wire::Ours(Some(object)) => Ok(object),
            Wire::Ours(None) | Wire::Theirs(_) => Err(Fault::Away("the connection is gone".into())),
        }
    }

    async fn prepare(&mut self, statement: &'static Statement) -> Result<Option<Prepared>, Fault> {
        if !self.prepares {
            return Ok(None);
        }
        let client = self.client()?;
        let prepared = client.prepare_typed_cached(statement.text, statement.types());
        match within(self.patience, prepared).await? {
            Ok(prepared) => Ok(Some(prepared)),
            Err(error) => Err(self.spoiled_by(Fault::of(&error))),
        }
    }

    fn send<'a>(
        &'a self,
        statement: &'static Statement,
        prepared: Option<Prepared>,
        bound: &'a Bound<'_>,
    ) -> Answer<'a> {
        Box::pin(async move {
            let values = bound.iter().map(|value| &**value as &(dyn ToSql + Sync));
            let typed = || values.clone().zip(statement.types().iter().cloned()).collect::<Vec<(_, Type)>>();
            match (&self.wire, prepared) {
                (Wire::Ours(None), _) => Ok(Vec::new()),
                (Wire::Ours(Some(client)), Some(prepared)) => {
                    client.query(&prepared, &values.collect::<Vec<_>>()).await
                }
                (Wire::Ours(Some(client)), None) => client.query_typed(statement.text, &typed()).await,
                (Wire::Theirs(client), _) => client.query_typed(statement.text, &typed()).await,
            }
        })
    }

    /// After these a connection says nothing about the next one.
    fn spoiled_by(&mut self, fault: Fault) -> Fault {
        match &fault {
            Fault::Away(_) | Fault::Retry(_) | Fault::Ambiguous(_) => self.is_clean = false,
            Fault::Row(_) | Fault::Stale(_) | Fault::NoLease | Fault::Held(_) => {}
        }
        fault
    }
}

impl Wire<'_> {
    async fn batch_execute(&self, text: &str) -> Result<(), Error> {
        match self {
            // Whatever follows on this connection fails.
            Wire::Ours(None) => Ok(()),
            Wire::Ours(Some(client)) => client.batch_execute(text).await,
            Wire::Theirs(client) => client.batch_execute(text).await,
        }
    }
}

impl Drop for Link<'_> {
    /// A transaction that was left open is not the next one's: the connection is closed, and the server
    /// takes everything back.
    fn drop(&mut self) {
        if !self.is_clean
            && let Wire::Ours(object) = &mut self.wire
            && let Some(object) = object.take()
        {
            drop(Object::take(object));
        }
    }
}

async fn within<T>(patience: Duration, work: impl Future<Output = T>) -> Result<T, Fault> {
    tokio::time::timeout(patience, work).await.map_err(|_| Fault::Away("no answer in time".into()))
}

/// A column of a multi-row statement: one value of each row.
pub(super) fn column<'a, R, T>(rows: &'a [R], value: impl Fn(&'a R) -> T) -> Box<dyn ToSql + Sync + Send + 'a>
where
    T: ToSql + Sync + Send + 'a,
{
    Box::new(rows.iter().map(value).collect::<Vec<T>>())
}

/// A parameter.
pub(super) fn value<'a, T: ToSql + Sync + Send + 'a>(value: T) -> Box<dyn ToSql + Sync + Send + 'a> {
    Box::new(value)
}
