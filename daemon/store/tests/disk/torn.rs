//! What the last daemon left when it was killed: a WAL that is cut anywhere, or goes on with nonsense.

use std::path::Path;

use mcode_ids::{Seq, ThreadId};
use mcode_store::Store;

use crate::rig::{Rig, Thread, words};

/// Appends after which the killed daemon left everything.
const APPENDS: usize = 40;

/// A database as `kill -9` leaves it, and how long its WAL was after each acknowledged append.
struct Left {
    rig: Rig,
    threads: Vec<ThreadId>,
    database: Vec<u8>,
    wal: Vec<u8>,
    /// WAL length, and how many words of each thread were acknowledged by then.
    acknowledged: Vec<(usize, Vec<usize>)>,
}

fn beside(database: &Path, end: &str) -> std::path::PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(end);
    name.into()
}

async fn left() -> Left {
    let rig = Rig::new();
    let store = rig.open();
    let mut threads: Vec<Thread> = (0..3).map(|_| rig.thread()).collect();
    let mut said = vec![0usize; threads.len()];
    let wal = beside(&rig.database(), "-wal");
    let mut acknowledged = Vec::new();
    for number in 0..APPENDS {
        let of = number % threads.len();
        let text = format!("{:08} {}", said[of], "w".repeat(number * 150));
        threads[of].say(&store, &text).await.unwrap();
        said[of] += 1;
        acknowledged.push((usize::try_from(std::fs::metadata(&wal).unwrap().len()).unwrap(), said.clone()));
    }
    // While the store is open nothing is put from the WAL into the database that a kill would not leave so.
    let (database, wal) = (std::fs::read(rig.database()).unwrap(), std::fs::read(&wal).unwrap());
    let threads = threads.iter().map(Thread::id).collect();
    drop(store);
    Left { rig, threads, database, wal, acknowledged }
}

impl Left {
    /// A store on what was left, with this WAL.
    fn open(&self, wal: &[u8]) -> (Rig, Store) {
        let rig = Rig::new();
        std::fs::create_dir_all(rig.root.join("data")).unwrap();
        std::fs::write(rig.database(), &self.database).unwrap();
        std::fs::write(beside(&rig.database(), "-wal"), wal).unwrap();
        let store = rig.open();
        (rig, store)
    }

    /// Each thread has at least so many words, in their order and without gaps; the rest of the store fits to them.
    async fn holds(&self, store: &Store, at_least: &[usize], how: &str) -> Vec<usize> {
        let mut counts = Vec::new();
        for (thread, least) in self.threads.iter().zip(at_least) {
            let said = words(store, *thread).await;
            assert!(said.len() >= *least, "{how}: {} of {least} acknowledged words are there", said.len());
            for (number, word) in said.iter().enumerate() {
                assert!(word.starts_with(&format!("{number:08}")), "{how}: {word}");
            }
            if let Some(loaded) = store.load(*thread).await.unwrap() {
                assert_eq!(loaded.damage, None, "{how}");
                assert_eq!(loaded.state.last_seq, Seq::new(said.len() as u64 + 1), "{how}");
            }
            counts.push(said.len());
        }
        let check = store.check().await.unwrap();
        assert!(check.is_whole(), "{how}: {check:?}");
        counts
    }
}

/// A little generator, so that each run tries the same places.
fn places(below: usize, count: usize) -> Vec<usize> {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % below as u64).unwrap()
    };
    (0..count).map(|_| next()).collect()
}

#[tokio::test]
async fn whatever_was_acknowledged_before_the_cut_is_there_and_nothing_is_half_there() {
    let left = left().await;
    assert!(left.wal.len() > 200_000, "{} bytes of WAL are left", left.wal.len());
    let mut cuts = places(left.wal.len(), 40);
    // And around the ends of transactions.
    cuts.extend(left.acknowledged.iter().step_by(4).flat_map(|(length, _)| [length - 1, *length, length + 1]));
    cuts.push(0);
    for cut in cuts {
        let cut = cut.min(left.wal.len());
        let before = left.acknowledged.iter().rev().find(|(length, _)| *length <= cut);
        let least = before.map_or(vec![0; left.threads.len()], |(_, said)| said.clone());
        let (_rig, store) = left.open(&left.wal[..cut]);
        let counts = left.holds(&store, &least, &format!("cut at {cut}")).await;
        assert!(counts.iter().sum::<usize>() <= APPENDS);
    }
}

#[tokio::test]
async fn a_tail_of_nonsense_takes_nothing_with_it() {
    let left = left().await;
    let (_, all) = left.acknowledged.last().unwrap();
    for length in [1, 23, 24, 4096, 4096 + 24, 100_000] {
        let mut wal = left.wal.clone();
        wal.extend(places(256, length).into_iter().map(|byte| u8::try_from(byte).unwrap()));
        let (rig, store) = left.open(&wal);
        left.holds(&store, all, &format!("{length} bytes of nonsense")).await;
        // And it goes on.
        let state = store.load(left.threads[0]).await.unwrap().unwrap().state;
        let mut thread = rig.thread_of(state.clone());
        thread.state.thread_id = state.thread_id;
        thread.say(&store, &format!("{:08} on", all[0])).await.unwrap();
        drop(store);
        let more: Vec<usize> = std::iter::once(all[0] + 1).chain(all[1..].iter().copied()).collect();
        left.holds(&rig.open(), &more, "after one more").await;
    }
    drop(left.rig);
}
