//! The record of permissions: a chain that shows what was done to it.

use mcode_events::{AuditEntry, AuditKind};
use mcode_store::{AUDIT_CUT, AUDIT_RECORDS_MAX, AuditCheck, Store};

use crate::rig::Rig;

fn entry(number: u64) -> AuditEntry {
    AuditEntry { subject: format!("ls {number}"), ..AuditEntry::new(AuditKind::Decided, "allow") }
}

async fn add(store: &Store, numbers: std::ops::Range<u64>) {
    store.audit(numbers.map(entry).collect()).await.unwrap();
}

async fn fault(store: &Store) -> String {
    store.check_audit().await.unwrap().fault.unwrap()
}

#[tokio::test]
async fn records_are_kept_in_a_chain_and_listed_newest_first() {
    let rig = Rig::new();
    let store = rig.open();
    assert_eq!(store.check_audit().await.unwrap(), AuditCheck::default());
    let thread = rig.thread().state.thread_id;
    add(&store, 0..3).await;
    store.audit(vec![AuditEntry { thread_id: Some(thread), ..entry(3) }]).await.unwrap();
    drop(store);
    let store = rig.open();
    let check = store.check_audit().await.unwrap();
    assert_eq!((check.records, check.first, check.fault), (4, 1, None));
    let page = store.audit_records(None, 3, None).await.unwrap();
    let numbers: Vec<u64> = page.rows.iter().map(|row| row.number).collect();
    assert_eq!(numbers, [4, 3, 2]);
    assert_eq!(page.rows[0].hash, check.head);
    assert_eq!(page.rows[0].previous, page.rows[1].hash);
    let rest = store.audit_records(None, 3, page.next).await.unwrap();
    assert_eq!((rest.rows.len(), rest.rows[0].previous.as_str(), rest.next), (1, "", None));
    let of_thread = store.audit_records(Some(thread), 3, None).await.unwrap();
    assert_eq!(of_thread.rows.len(), 1);
    assert!(store.audit_records(None, 3, Some("x".into())).await.is_err());
}

#[tokio::test]
async fn what_is_changed_removed_or_put_in_is_found() {
    for (statement, wanted) in [
        ("UPDATE audit SET entry = replace(entry, 'ls 2', 'ls 9') WHERE n = 3", "record 3 was changed"),
        ("UPDATE audit SET at = at + 1 WHERE n = 5", "record 5 was changed"),
        ("DELETE FROM audit WHERE n = 2", "record 2 is missing"),
        ("DELETE FROM audit WHERE n = 1", "record 1 is missing"),
        ("UPDATE audit SET previous = 'x' WHERE n = 4", "record 4 does not follow the record before it"),
        (
            "INSERT INTO audit (n, at, thread_id, previous, entry, hash)
             SELECT 6, at, NULL, previous, entry, hash FROM audit WHERE n = 5",
            "record 6 does not follow the record before it",
        ),
    ] {
        let rig = Rig::new();
        let store = rig.open();
        add(&store, 0..5).await;
        rig.sql(statement);
        assert_eq!(fault(&store).await, wanted, "{statement}");
    }
}

#[tokio::test]
async fn the_oldest_part_goes_and_the_chain_holds() {
    let rig = Rig::new();
    let store = rig.open();
    add(&store, 0..AUDIT_RECORDS_MAX).await;
    assert_eq!(store.check_audit().await.unwrap().records, AUDIT_RECORDS_MAX);
    add(&store, 0..1).await;
    let check = store.check_audit().await.unwrap();
    assert_eq!((check.records, check.first, check.fault), (AUDIT_RECORDS_MAX - AUDIT_CUT, AUDIT_CUT + 2, None));
    add(&store, 0..5).await;
    assert_eq!(store.check_audit().await.unwrap().fault, None);
    rig.sql("UPDATE audit_base SET hash = 'x'");
    assert_eq!(fault(&store).await, format!("record {} does not follow the record before it", AUDIT_CUT + 2));
}
