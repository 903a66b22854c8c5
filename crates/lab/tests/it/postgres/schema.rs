//! The schema after all migrations, and who may use it.

use std::fmt::Write as _;
use std::path::PathBuf;

use onejob::store::postgres::{self, OpenError};
use onejob::store::{PostgresOptions, PostgresStore};
use onejob_lab::postgres::{Cluster, Database};

/// Everything in the schema that can be named, as the database itself describes it.
async fn described(database: &Database<'_>) -> String {
    let client = database.client().await;
    let mut text =
        String::from("-- The schema after all migrations, as PostgreSQL describes it. A test keeps it true.\n");
    let tables = "SELECT c.relname, coalesce(array_to_string(c.reloptions, ', '), '') FROM pg_class c
        WHERE c.relnamespace = 'onejob'::regnamespace AND c.relkind = 'r' ORDER BY c.relname";
    for table in client.query(tables, &[]).await.unwrap() {
        let (name, options): (&str, &str) = (table.get(0), table.get(1));
        let parts = "SELECT 1, lpad(a.attnum::text, 4), format('    %s %s%s%s%s', rpad(a.attname, 20),
                format_type(a.atttypid, a.atttypmod),
                CASE WHEN co.collname <> 'default' THEN format(' COLLATE %I', co.collname) ELSE '' END,
                CASE WHEN d.adbin IS NOT NULL THEN format(CASE a.attgenerated WHEN 's'
                    THEN ' GENERATED ALWAYS AS (%s) STORED' ELSE ' DEFAULT %s' END, pg_get_expr(d.adbin, d.adrelid))
                    ELSE '' END,
                CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END)
            FROM pg_attribute a
            LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
            LEFT JOIN pg_collation co ON co.oid = a.attcollation
            WHERE a.attrelid = format('onejob.%I', $1::text)::regclass AND a.attnum > 0 AND NOT a.attisdropped
            UNION ALL
            SELECT 2, conname, format('    CONSTRAINT %I %s', conname, pg_get_constraintdef(oid)) FROM pg_constraint
            WHERE conrelid = format('onejob.%I', $1::text)::regclass AND contype <> 'n'
            ORDER BY 1, 2";
        let parts = client.query(parts, &[&name]).await.unwrap();
        let lines: Vec<String> = parts.iter().map(|row| row.get(2)).collect();
        let with = if options.is_empty() { String::new() } else { format!(" WITH ({options})") };
        write!(text, "\nCREATE TABLE onejob.{name} (\n{}\n){with};\n", lines.join(",\n")).unwrap();
        let more = "SELECT 1, indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
            WHERE indrelid = format('onejob.%I', $1::text)::regclass
                AND NOT EXISTS (SELECT 1 FROM pg_constraint WHERE conindid = indexrelid)
            UNION ALL
            SELECT 2, tgname, pg_get_triggerdef(oid, true) FROM pg_trigger
            WHERE tgrelid = format('onejob.%I', $1::text)::regclass AND NOT tgisinternal
            ORDER BY 1, 2";
        for row in client.query(more, &[&name]).await.unwrap() {
            write!(text, "\n{};\n", row.get::<_, &str>(2)).unwrap();
        }
    }
    let functions =
        "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'onejob'::regnamespace ORDER BY proname";
    for row in client.query(functions, &[]).await.unwrap() {
        write!(text, "\n{};\n", row.get::<_, &str>(0).trim_end()).unwrap();
    }
    text
}

/// Written on one version, read on another: what differs between versions in how they print.
fn plain(text: &str) -> String {
    text.replace("EXECUTE PROCEDURE", "EXECUTE FUNCTION").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_schema_is_the_one_that_is_written_down() {
    let database = Cluster::shared().database().await;
    let text = described(&database).await;
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../onejob/src/store/postgres/schema.sql");
    if std::env::var_os("ONEJOB_BLESS").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let stored = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(plain(&stored), plain(&text), "ONEJOB_BLESS=1 writes {} anew", file.display());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_can_be_prepared_and_all_its_parameters_are_cast() {
    let database = Cluster::shared().database().await;
    let client = database.client().await;
    for (file, text) in postgres::statements() {
        let statement = client.prepare(text).await.unwrap_or_else(|error| panic!("{file}: {error:?}"));
        let count = statement.params().len();
        let casts = (1..=count).filter(|number| text.contains(&format!("${number}::"))).count();
        assert_eq!(casts, count, "{file}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_was_never_migrated_is_refused_and_told_what_to_do() {
    let database = Cluster::shared().empty_database().await;
    let Err(error) = PostgresStore::open(database.options()).await else { panic!("opened") };
    assert!(matches!(error, OpenError::Older { found: 0, .. }), "{error}");
    assert!(error.to_string().contains("run `onejob migrate`"), "{error}");
    assert_eq!(postgres::pending(&database.options()).await.unwrap(), postgres::MIGRATIONS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_a_newer_onejob_is_refused() {
    let database = Cluster::shared().database().await;
    database.shell("INSERT INTO onejob.schema_version (version, name) VALUES (99, 'later.sql')").await;
    let Err(error) = PostgresStore::open(database.options()).await else { panic!("opened") };
    assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error}");
    let Err(error) = postgres::migrate(&database.options()).await else { panic!("migrated") };
    assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migrations_that_begin_at_once_are_done_once() {
    let database = Cluster::shared().empty_database().await;
    let runs: Vec<_> = (0..4)
        .map(|_| {
            let options = database.options();
            tokio::spawn(async move { postgres::migrate(&options).await.unwrap().len() })
        })
        .collect();
    let mut done = 0;
    for run in runs {
        done += run.await.unwrap();
    }
    assert_eq!(done, postgres::MIGRATIONS.len());
    assert_eq!(postgres::pending(&database.options()).await.unwrap(), []);
    assert_eq!(postgres::migrate(&database.options()).await.unwrap(), []);
    PostgresStore::open(database.options()).await.unwrap().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_not_there_is_said_without_the_password() {
    let port = Cluster::shared().port();
    let options = PostgresOptions::parse(&format!("postgres://onejob:hunter2@127.0.0.1:{port}/nowhere")).unwrap();
    assert!(!format!("{options:?}").contains("hunter2"), "{options:?}");
    let Err(error) = PostgresStore::open(options).await else { panic!("opened") };
    assert!(error.to_string().contains("\"nowhere\" does not exist"), "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[test]
fn urls_are_read_and_never_repeated() {
    for (url, why) in [
        ("postgres://u:hunter2@h", "the name of a database"),
        ("postgres://u:hunter2@h/d?sslmode=maybe", "sslmode"),
        ("postgres://u:hunter2@h/d?sslmode=verify-ca", "verify-full"),
        ("postgres://u:hunter2@h/d?pgbouncer=perhaps", "pgbouncer"),
        ("postgres://u:hunter2@h/d?colour=red", "postgres://user@host/database"),
    ] {
        let error = PostgresOptions::parse(url).unwrap_err();
        assert!(error.contains(why) && !error.contains("hunter2"), "{url}: {error}");
    }
    let options = PostgresOptions::parse("postgres://u@a:1,b:2/d?pgbouncer=true&application_name=x").unwrap();
    assert!(options.pooled && !options.notify);
    assert!(!PostgresOptions::parse("postgres:///d?host=/tmp&user=u&notify=off").unwrap().notify);
}
