//! A job as part of a service's own transaction.

use super::{JobRequest, Onejob};
use crate::engine::{SubmitInError, Uncommitted};
use crate::store::postgres::Transaction;

impl Onejob {
    /// Makes the job of an intent, or finds it, inside `transaction`: the service's own rows and the job are
    /// one commit. The order that was paid for has its job, and a job has its order, whatever happens in
    /// between. `crates/lab/examples/order_and_job.rs` shows all of it.
    ///
    /// The transaction is one of [`crate::tokio_postgres`], on any connection to the database of this node's
    /// store, through a pooler or not, with any `search_path`; its role needs what `docs/embedding.md` lists.
    ///
    /// - No attempt starts in it. After the commit say [`Uncommitted::committed`], and a dispatcher comes at
    ///   once; if nobody says it (the process died right after the commit), it comes within a second.
    /// - R1, R2 and R12 hold: of two transactions with one key the second waits until the first has ended. So do
    ///   posts of that key to any node, for some seconds, and then they are told to come again; posts of other
    ///   keys do not wait. Keep the transaction short, and set a `lock_timeout` if you must not wait yourself.
    /// - What is answered is inside a savepoint: after any error of this call, the transaction is as it was
    ///   before and may go on, unless the database says otherwise (a serialization failure ends it).
    /// - [`Submitted::Same`](crate::Submitted::Same) is counted as a duplicate by `committed()`, not in the
    ///   transaction: that would hold the job's row, and an answer that arrives would wait for you. The notice of
    ///   [`Submitted::OtherIntent`](crate::Submitted::OtherIntent) is part of the transaction.
    /// - The commit of a transaction with a job in it is durable, even where the session says
    ///   `synchronous_commit = off` (R10).
    /// - Above READ COMMITTED, a job that another transaction made after this one's snapshot cannot be seen:
    ///   [`WithinError::Again`](crate::WithinError::Again), and the whole transaction is yours to run again.
    ///
    /// ```no_run
    /// # async fn order(
    /// #     onejob: &onejob::Onejob,
    /// #     client: &mut onejob::tokio_postgres::Client,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use onejob::{JobRequest, Submitted};
    ///
    /// let mut transaction = client.transaction().await?;
    /// transaction.execute("INSERT INTO orders (id, poster) VALUES ($1, $2)", &[&"order-7", &"a cat"]).await?;
    /// let request = JobRequest::new("user_42", "order-7", "poster", serde_json::json!({"text": "a cat"}));
    /// let job = onejob.submit_in(&mut transaction, request).await?;
    /// if let Submitted::OtherIntent(_) | Submitted::Expired(_) = job.submitted() {
    ///     // Dropped without a commit: neither the order nor the job is there.
    ///     return Err("this key was used for something else".into());
    /// }
    /// transaction.commit().await?;
    /// job.committed().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SubmitInError`].
    pub async fn submit_in(
        &self,
        transaction: &mut Transaction<'_>,
        request: JobRequest,
    ) -> Result<Uncommitted, SubmitInError> {
        let order = request.order(self.engine.config())?;
        self.engine.submit_in(transaction, order).await
    }
}
