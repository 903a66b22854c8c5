//! The race suite: many tasks on two nodes post the same few keys, over and over. One job for each, and
//! one of its posts is told that it made it.
//!
//! The keys come up one after the other, so that all tasks race for the birth of each; half of the posts
//! are about keys that have been there for a while.
#![allow(clippy::unwrap_used, missing_docs)]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::nodes::{Acknowledged, Answer, Caller, World};
use crate::postgres::{Cluster, Disk};

pub const TASKS: usize = 64;
pub const KEYS: usize = 200;

/// Options of `cargo lab races`.
#[derive(clap::Args)]
pub struct Arguments {
    /// How long, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Of an earlier run.
    #[arg(long)]
    seed: Option<u64>,
}

/// How much.
#[derive(Clone, Copy)]
pub enum Length {
    /// Until so many posts were begun.
    Posts(usize),
    /// For so long.
    Time(Duration),
}

/// What came of it; everything else has been checked.
#[derive(Debug)]
pub struct Raced {
    pub posts: usize,
    pub made: usize,
    pub found: usize,
    pub conflicts: usize,
}

/// What all tasks share.
struct Field {
    seed: u64,
    began: Instant,
    length: Length,
    posts: AtomicUsize,
    made: [AtomicUsize; KEYS],
    ids: [OnceLock<String>; KEYS],
    found: AtomicUsize,
    conflicts: AtomicUsize,
}

/// Runs it on a cluster of its own.
pub fn run(arguments: &Arguments) -> ExitCode {
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let raced = runtime.block_on(async {
        let cluster = Cluster::start(Disk::Durable);
        let database = cluster.database().await;
        race(&database.url(), Length::Time(Duration::from_secs(arguments.seconds)), seed).await
    });
    println!(
        "{TASKS} tasks, 2 nodes, {KEYS} keys: {} posts, {} made a job, {} found it, {} were another wish",
        raced.posts, raced.made, raced.found, raced.conflicts
    );
    ExitCode::SUCCESS
}

/// Two nodes on the database at `url`.
///
/// # Panics
///
/// If a key has two jobs, two posts made it, a post was answered with another job, or the provider was asked
/// twice.
pub async fn race(url: &str, length: Length, seed: u64) -> Raced {
    println!("the seed is {seed}");
    let world = World::start(&[url.to_owned(), url.to_owned()]).await;
    let field = Arc::new(Field {
        seed,
        began: Instant::now(),
        length,
        posts: AtomicUsize::new(0),
        made: std::array::from_fn(|_| AtomicUsize::new(0)),
        ids: std::array::from_fn(|_| OnceLock::new()),
        found: AtomicUsize::new(0),
        conflicts: AtomicUsize::new(0),
    });
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let callers = world.ports().into_iter().map(Caller::of).collect();
        tasks.spawn(field.clone().run(task, callers));
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    // Whoever comes last finds all of them, at each node.
    for port in world.ports() {
        let mut caller = Caller::of(port);
        for key in 0..KEYS {
            field.post(&mut caller, key).await;
        }
    }
    let acknowledged: Acknowledged =
        field.ids.iter().enumerate().map(|(key, id)| (name(key), id.get().unwrap().clone())).collect();
    let audit = world.audit(0, url, &acknowledged).await;
    assert_eq!((audit.jobs, audit.unknown.len()), (KEYS, 0));
    let made: Vec<usize> = field.made.iter().map(|made| made.load(Ordering::SeqCst)).collect();
    assert_eq!(made, [1; KEYS], "posts that were told that they made the job, by key");
    Raced {
        posts: field.posts.load(Ordering::SeqCst),
        made: KEYS,
        found: field.found.load(Ordering::SeqCst),
        conflicts: field.conflicts.load(Ordering::SeqCst),
    }
}

fn name(key: usize) -> String {
    format!("hot-{key}")
}

impl Field {
    async fn run(self: Arc<Field>, task: usize, mut callers: Vec<Caller>) {
        let mut random = fastrand::Rng::with_seed(self.seed.wrapping_add(task as u64));
        while let Some(newest) = self.newest() {
            let key = if random.bool() { newest } else { random.usize(0..=newest) };
            let caller = &mut callers[random.usize(0..2)];
            match self.ids[key].get() {
                Some(id) if random.u8(0..8) == 0 => {
                    let other = caller.post_job(&name(key), &json!({ "another": key })).await.unwrap();
                    assert_eq!((other.status, other.problem()), (409, "idempotency-conflict"), "{other:?}");
                    assert_eq!(other.json["job"].as_str(), Some(&**id));
                    self.posts.fetch_add(1, Ordering::SeqCst);
                    self.conflicts.fetch_add(1, Ordering::SeqCst);
                }
                Some(_) | None => self.post(caller, key).await,
            }
        }
    }

    /// The key that came up last; none when it is over.
    fn newest(&self) -> Option<usize> {
        let passed = match self.length {
            Length::Posts(posts) => self.posts.load(Ordering::SeqCst) as f64 / posts as f64,
            Length::Time(time) => self.began.elapsed().as_secs_f64() / time.as_secs_f64(),
        };
        (passed < 1.0).then_some((passed * KEYS as f64) as usize)
    }

    async fn post(&self, caller: &mut Caller, key: usize) {
        let what = json!({ "delay_ms": key % 5 });
        let answer: Answer = caller.post_job(&name(key), &what).await.unwrap();
        self.posts.fetch_add(1, Ordering::SeqCst);
        match answer.status {
            201 => self.made[key].fetch_add(1, Ordering::SeqCst),
            200 => self.found.fetch_add(1, Ordering::SeqCst),
            _ => panic!("{}: {answer:?}", name(key)),
        };
        assert_eq!(self.ids[key].get_or_init(|| answer.id()), &answer.id(), "{}: {answer:?}", name(key));
    }
}
