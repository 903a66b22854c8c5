//! A shop keeps its orders in PostgreSQL, and onejob keeps its jobs in the same database: an order and its job
//! are one commit. `cargo run -p onejob-lab --example order_and_job`
//!
//! The cluster is thrown away at the end; a service brings its own URL. A test plays this, too.
#![allow(missing_docs, unreachable_pub)]

use std::error::Error;
use std::time::Duration;

use onejob::tokio_postgres::{self, Client, NoTls};
use onejob::{Config, JobRequest, Onejob, Submitted};
use onejob_lab::postgres::Cluster;
use serde_json::json;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const CONFIG: &str = r#"
[providers.printer]
kind = "simulated"
behaviour = { output = { poster = "{{ input.text }}" } }

[tasks.poster]
providers = ["printer"]
"#;

/// What the shop does when somebody clicks "buy". The order's number is the key: one order, one job.
async fn buy(onejob: &Onejob, shop: &mut Client, order: &str, text: &str) -> Result<Submitted> {
    let mut transaction = shop.transaction().await?;
    transaction
        .execute("INSERT INTO orders (id, text) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING", &[&order, &text])
        .await?;
    let request = JobRequest::new("user_42", order, "poster", json!({"text": text}));
    let job = onejob.submit_in(&mut transaction, request).await?;
    match job.submitted() {
        Submitted::New(_) | Submitted::Same(_) => transaction.commit().await?,
        Submitted::OtherIntent(_) | Submitted::Expired(_) => transaction.rollback().await?,
    }
    Ok(job.committed().await)
}

/// The same, and then the shop changes its mind.
async fn buy_and_think_again(onejob: &Onejob, shop: &mut Client, order: &str) -> Result<()> {
    let mut transaction = shop.transaction().await?;
    transaction.execute("INSERT INTO orders (id, text) VALUES ($1, 'a dog')", &[&order]).await?;
    let request = JobRequest::new("user_42", order, "poster", json!({"text": "a dog"}));
    let _never = onejob.submit_in(&mut transaction, request).await?;
    transaction.rollback().await?;
    Ok(())
}

/// The same, and then the shop's process dies before it commits.
async fn buy_and_die(onejob: &Onejob, url: &str, order: &str) -> Result<()> {
    let (mut shop, connection) = tokio_postgres::connect(url, NoTls).await?;
    let wire = tokio::spawn(connection);
    let mut transaction = shop.transaction().await?;
    transaction.execute("INSERT INTO orders (id, text) VALUES ($1, 'a fox')", &[&order]).await?;
    let request = JobRequest::new("user_42", order, "poster", json!({"text": "a fox"}));
    let _never = onejob.submit_in(&mut transaction, request).await?;
    // No rollback is said, no goodbye: the socket is gone.
    wire.abort();
    Ok(())
}

/// How many orders and jobs there are under a number.
async fn count(onejob: &Onejob, shop: &Client, order: &str) -> Result<(i64, usize)> {
    let orders = shop.query_one("SELECT count(*) FROM orders WHERE id = $1", &[&order]).await?.get(0);
    Ok((orders, onejob.job_of_key("user_42", order).await?.iter().count()))
}

fn word(submitted: &Submitted) -> &'static str {
    match submitted {
        Submitted::New(_) => "a new job",
        Submitted::Same(_) => "the same job",
        Submitted::OtherIntent(_) => "refused: the key names another intent",
        Submitted::Expired(_) => "refused: the key is past its retention",
    }
}

/// Plays it on a migrated database and tells what happened.
pub async fn play(url: &str) -> Result<Vec<String>> {
    let config = Config::from_text(&format!("[server]\nstore = {url:?}\n{CONFIG}"))?;
    let onejob = Onejob::open(config).await?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let node = tokio::spawn({
        let onejob = onejob.clone();
        async move { onejob.run(async { drop(stopped.await) }).await }
    });
    let (mut shop, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    shop.batch_execute("CREATE TABLE orders (id text PRIMARY KEY, text text NOT NULL)").await?;

    let mut story = Vec::new();
    let first = buy(&onejob, &mut shop, "order-1", "a cat").await?;
    story.push(format!("buy: {}", word(&first)));
    story.push(format!("buy again: {}", word(&buy(&onejob, &mut shop, "order-1", "a cat").await?)));
    story.push(format!("buy another: {}", word(&buy(&onejob, &mut shop, "order-1", "a cow").await?)));
    let (Submitted::New(job) | Submitted::Same(job) | Submitted::OtherIntent(job)) = first else {
        return Err("the key is past its retention".into());
    };
    let job = onejob.wait(job.job.id, Duration::from_secs(60)).await?.ok_or("the job is gone")?;
    let result = job.result().map(|result| result.to_string()).unwrap_or_default();
    story.push(format!("the job: {}, {result}, {} duplicate", job.job.state().as_str(), job.duplicates));
    buy_and_think_again(&onejob, &mut shop, "order-2").await?;
    buy_and_die(&onejob, url, "order-3").await?;
    for (what, order) in [("committed", "order-1"), ("rolled back", "order-2"), ("died before the commit", "order-3")] {
        let (orders, jobs) = count(&onejob, &shop, order).await?;
        story.push(format!("{what}: {orders} order, {jobs} job"));
    }

    drop(stop);
    node.await?;
    Ok(story)
}

#[allow(dead_code)]
#[tokio::main]
async fn main() -> Result<()> {
    let database = Cluster::shared().database().await;
    for line in play(&database.url()).await? {
        println!("{line}");
    }
    Ok(())
}
