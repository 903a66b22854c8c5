//! Every clause on every store.

use onejob_lab::store_clauses;
use onejob_lab::store_contract::{Ground, Kind};

macro_rules! on_memory {
    ($($module:ident::$clause:ident;)*) => {
        mod on_memory {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $clause() {
                    let ground = Ground::new(Kind::Memory);
                    onejob_lab::store_contract::$module::$clause(&ground).await;
                    ground.end().await;
                }
            )*
        }
    };
}

macro_rules! on_sqlite {
    ($($module:ident::$clause:ident;)*) => {
        mod on_sqlite {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $clause() {
                    let ground = Ground::new(Kind::Sqlite);
                    onejob_lab::store_contract::$module::$clause(&ground).await;
                    ground.end().await;
                }
            )*
        }
    };
}

macro_rules! on_postgres {
    ($($module:ident::$clause:ident;)*) => {
        mod on_postgres {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $clause() {
                    let ground = Ground::new(Kind::Postgres);
                    onejob_lab::store_contract::$module::$clause(&ground).await;
                    ground.end().await;
                }
            )*
        }
    };
}

macro_rules! on_postgres_through_pgbouncer {
    ($($module:ident::$clause:ident;)*) => {
        mod on_postgres_through_pgbouncer {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $clause() {
                    let ground = Ground::new(Kind::Pooled);
                    onejob_lab::store_contract::$module::$clause(&ground).await;
                    ground.end().await;
                }
            )*
        }
    };
}

store_clauses!(on_memory);
store_clauses!(on_sqlite);
store_clauses!(on_postgres);
store_clauses!(on_postgres_through_pgbouncer);
