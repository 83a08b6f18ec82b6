//! The bounds of logins that are at work.

use std::sync::Arc;

use mcode_config::{Effective, LoginEntry};
use mcode_models::{LoginDesk as _, LoginStart};
use tokio::time::Instant;

use super::*;
use crate::auth::{Auth, AuthParts};

/// A login, and what its task would tell its end with.
fn one(number: usize) -> (One, watch::Sender<Option<End>>) {
    let (end, ends) = watch::channel(None);
    let one = One {
        id: format!("login_{number}"),
        provider: "p".into(),
        state: "s".into(),
        takes_code: true,
        ends,
        codes: mpsc::channel(1).0,
        ending: Ending::default(),
    };
    (one, end)
}

#[tokio::test]
async fn a_login_whose_task_broke_off_makes_room_for_others() {
    let at_work = AtWork::default();
    for number in 0..AT_WORK_MAX {
        let (one, end) = one(number);
        at_work.add(one).unwrap();
        drop(end);
    }
    at_work.check().unwrap();
    assert!(!at_work.cancel("login_0"));
    let error = at_work.complete("login_0", Some(Secret::new("c")), WAIT_MAX).await.unwrap_err();
    assert!(error.message.contains("broke off"), "{error:?}");
}

#[tokio::test]
async fn so_many_ended_logins_are_remembered_and_no_more() {
    let at_work = AtWork::default();
    let ended = || Err(LoginError::new(LoginErrorKind::Denied, "no"));
    for number in 0..=ENDED_MAX {
        let (one, end) = one(number);
        at_work.add(one).unwrap();
        end.send_replace(Some(ended()));
    }
    let kind = |id: String| {
        let at_work = &at_work;
        async move { at_work.complete(&id, None, WAIT_MAX).await.unwrap_err().kind }
    };
    assert_eq!(kind("login_0".into()).await, LoginErrorKind::NotFound, "the oldest made room");
    for number in 1..=ENDED_MAX {
        assert_eq!(kind(format!("login_{number}")).await, LoginErrorKind::Denied, "{number}");
    }
    assert_eq!(at_work.logins.lock().unwrap().len(), ENDED_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_login_that_nobody_goes_on_with_ends_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let entry = LoginEntry {
        authorize_url: Some("https://id.example.org/authorize".into()),
        token_url: Some("https://id.example.org/token".into()),
        client_id: Some("me".into()),
        ..LoginEntry::default()
    };
    let config = Effective { logins: BTreeMap::from([("example".to_owned(), entry)]), ..Effective::default() };
    let config = Arc::new(config);
    let auth = Auth::new(AuthParts::in_folder(folder.path().to_path_buf(), Arc::new(move || Arc::clone(&config))));
    let desk = Desk::new(auth);
    let start =
        LoginStart { provider: "example".into(), flow: Some(LoginFlow::Paste), key: None, env: BTreeMap::new() };
    let (now_ms, started) = (desk.keeper().now_ms(), desk.start(start).await.unwrap());
    assert!(started.expires_at_ms - now_ms >= i64::try_from(AGE_MAX.as_millis()).unwrap());
    let (begun, mut calls) = (Instant::now(), 0);
    let error = loop {
        match desk.complete(&started.login_id, None, WAIT_MAX).await {
            Ok(None) => calls += 1,
            Ok(Some(stored)) => panic!("{stored:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!((error.kind, begun.elapsed()), (LoginErrorKind::Expired, AGE_MAX));
    // A call that waits longer than it may is asked again.
    assert!(calls > 0 && error.hint.contains("mcode login example"), "{calls} {error:?}");
}
