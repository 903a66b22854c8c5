use super::server::Server;
use super::*;

#[tokio::test]
async fn a_reset_before_the_answer_is_unknown() {
    let server = Server::start(|mut conn| async move {
        conn.request().await;
        conn.reset();
    })
    .await;
    let (answer, phase) = ask(&server.url()).await;
    assert_eq!(broken(answer).meaning, unknown(Cause::ConnectionLost));
    assert_eq!(phase, Phase::AwaitingHeaders);
    assert_eq!((server.log.requests().len(), server.log.connections()), (1, 1));
}

#[tokio::test]
async fn a_close_before_the_answer_is_unknown() {
    let server = Server::saying("").await;
    let (answer, _) = ask(&server.url()).await;
    assert_eq!(broken(answer).meaning, unknown(Cause::ConnectionLost));
    assert_eq!(server.log.requests().len(), 1);
}

#[tokio::test]
async fn an_answer_that_is_cut_short_is_unknown() {
    let whole = good();
    let body_at = whole.find("\r\n\r\n").unwrap() + 4;
    for cut in [1, 9, 30, body_at, body_at + 1, whole.len() - 1] {
        let server = Server::saying(&whole[..cut]).await;
        let broken = broken(ask(&server.url()).await.0);
        assert_eq!(broken.meaning, unknown(Cause::CutShort), "cut at {cut}");
        assert_eq!(broken.status, (cut >= body_at).then_some(200), "cut at {cut}");
        assert_eq!(server.log.requests().len(), 1);
    }
}
