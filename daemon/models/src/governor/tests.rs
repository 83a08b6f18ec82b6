//! What happens at a gate, moment by moment.

use super::*;

const PATIENT: u64 = 300_000;

fn gate(model: &str) -> Gate {
    Gate { account: Account { provider: "p".into(), mark: 1 }, model: model.into() }
}

fn enter(governor: &mut Governor, now: u64, priority: Priority) -> Ticket {
    governor.enter(now, gate("m"), priority, PATIENT, 10).unwrap()
}

fn rate(server_ms: Option<u64>) -> Limited {
    Limited { server_ms, by_number: true, whole_account: false }
}

fn own(strikes: u32) -> u64 {
    1000 << (strikes - 1)
}

/// Those of the tickets that may go now.
fn going(governor: &mut Governor, now: u64, tickets: &[Ticket]) -> Vec<Ticket> {
    tickets.iter().copied().filter(|ticket| governor.poll(now, *ticket) == Turn::Go).collect()
}

#[test]
fn a_gate_without_limits_holds_nobody_up() {
    let mut governor = Governor::default();
    let tickets: Vec<Ticket> = (0..20).map(|_| enter(&mut governor, 0, Priority::Interactive)).collect();
    assert_eq!(going(&mut governor, 0, &tickets), tickets);
    tickets.iter().for_each(|ticket| governor.leave(1, *ticket));
    assert_eq!((governor.places(), governor.remembered()), (0, 0));
}

#[test]
fn one_probes_after_a_pause_and_the_others_follow_in_order() {
    let mut governor = Governor::default();
    let first = enter(&mut governor, 0, Priority::Interactive);
    assert_eq!(governor.poll(0, first), Turn::Go);
    assert_eq!(governor.limited(0, first, rate(Some(3000)), own), 3000);
    let rest: Vec<Ticket> = (0..19).map(|_| enter(&mut governor, 1, Priority::Interactive)).collect();
    for ticket in rest.iter().chain([&first]) {
        assert_eq!(governor.poll(2999, *ticket), Turn::Wait { until_ms: Some(3000) }, "in the pause nobody asks");
    }
    assert!(going(&mut governor, 3000, &rest).is_empty(), "the one that met the limit comes first");
    assert_eq!(governor.poll(3000, first), Turn::Go);
    assert!(going(&mut governor, 3001, &rest).is_empty(), "until it is taken nobody follows");
    governor.taken(first);
    assert_eq!(going(&mut governor, 3002, &rest), rest[..2], "then more and more of them");
    governor.taken(rest[0]);
    governor.taken(rest[1]);
    assert_eq!(going(&mut governor, 3003, &rest), rest[..6]);
    governor.leave(3004, rest[0]);
    assert_eq!(going(&mut governor, 3005, &rest[1..]), rest[1..7]);
}

#[test]
fn many_refusals_of_one_moment_are_one_and_own_pauses_grow_with_each() {
    let mut governor = Governor::default();
    let tickets: Vec<Ticket> = (0..20).map(|_| enter(&mut governor, 0, Priority::Interactive)).collect();
    going(&mut governor, 0, &tickets);
    for ticket in &tickets {
        assert_eq!(governor.limited(5, *ticket, rate(None), own), 1005);
    }
    // Each probe that is refused makes the next pause longer.
    for (now, until) in [(1005, 3005), (3005, 7005), (7005, 15_005)] {
        assert_eq!(going(&mut governor, now, &tickets), tickets[..1]);
        assert_eq!(governor.limited(now, tickets[0], rate(None), own), until);
    }
    // A pause that the provider names is the pause, and an earlier one is never shortened.
    assert_eq!(going(&mut governor, 15_005, &tickets), tickets[..1]);
    assert_eq!(governor.limited(15_005, tickets[0], rate(Some(50)), own), 15_055);
}

#[test]
fn all_give_up_when_the_provider_has_refused_often_enough() {
    let mut governor = Governor::default();
    let (first, second) =
        (enter(&mut governor, 0, Priority::Interactive), enter(&mut governor, 0, Priority::Interactive));
    let mut now = 0;
    for _ in 0..10 {
        assert_eq!(governor.poll(now, first), Turn::Go);
        now = governor.limited(now, first, rate(Some(10)), own);
    }
    assert_eq!((governor.poll(now, first), governor.poll(now, second)), (Turn::Exhausted, Turn::Exhausted));
    // Who comes later tries for itself.
    let third = enter(&mut governor, now, Priority::Interactive);
    governor.leave(now, first);
    governor.leave(now, second);
    assert_eq!(governor.poll(now, third), Turn::Go);
}

#[test]
fn what_was_sent_before_a_pause_does_not_end_it() {
    let mut governor = Governor::default();
    let (early, late) =
        (enter(&mut governor, 0, Priority::Interactive), enter(&mut governor, 0, Priority::Interactive));
    going(&mut governor, 0, &[early, late]);
    governor.limited(1, late, rate(Some(1000)), own);
    governor.taken(early);
    assert_eq!(governor.poll(2, late), Turn::Wait { until_ms: Some(1001) });
}

#[test]
fn how_many_at_once_is_learned_and_forgotten() {
    let mut governor = Governor::default();
    let tickets: Vec<Ticket> = (0..4).map(|_| enter(&mut governor, 0, Priority::Interactive)).collect();
    going(&mut governor, 0, &tickets[..3]);
    governor.taken(tickets[0]);
    governor.taken(tickets[1]);
    assert_eq!(governor.limited(1, tickets[2], rate(Some(10)), own), 11, "two are answered, the third is refused");
    assert!(going(&mut governor, 12, &tickets[2..]).is_empty(), "two are under way");
    governor.leave(13, tickets[0]);
    assert!(going(&mut governor, 13, &tickets[2..]).is_empty(), "the probe goes alone");
    governor.leave(14, tickets[1]);
    assert_eq!(going(&mut governor, 14, &tickets[2..]), [tickets[2]]);
    governor.taken(tickets[2]);
    assert_eq!(governor.poll(15, tickets[3]), Turn::Go, "two at once again");
    let fifth = enter(&mut governor, 16, Priority::Interactive);
    assert_eq!(governor.poll(16, fifth), Turn::Wait { until_ms: None }, "and not three");
    assert_eq!(governor.poll(1 + CEILING_KEPT_MS, fifth), Turn::Go, "until that is old");
}

#[test]
fn interactive_goes_first_and_background_does_not_starve() {
    let mut governor = Governor::default();
    let probe = enter(&mut governor, 0, Priority::Background);
    governor.poll(0, probe);
    governor.limited(0, probe, rate(Some(100)), own);
    let people: Vec<Ticket> = (0..6).map(|_| enter(&mut governor, 1, Priority::Interactive)).collect();
    let mut order = Vec::new();
    for now in 100..107 {
        let all: Vec<Ticket> = std::iter::once(probe).chain(people.iter().copied()).collect();
        let left: Vec<Ticket> = all.into_iter().filter(|ticket| !order.contains(ticket)).collect();
        let went = going(&mut governor, now, &left);
        // One at a time: each ends as a failure of its own, which teaches nothing.
        assert_eq!(went.len(), 1, "at {now}");
        order.push(went[0]);
        governor.leave(now, went[0]);
    }
    assert_eq!(order[..4], people[..4]);
    assert_eq!(order[4], probe, "after {PASSED_OVER_MAX} others");
    assert_eq!(order[5..], people[4..]);
}

#[test]
fn a_long_pause_is_slept_through_by_the_patient_and_tried_by_the_others() {
    let mut governor = Governor::default();
    let quota = Limited { server_ms: Some(3_600_000), by_number: false, whole_account: true };
    let probe = governor.enter(0, gate("m"), Priority::Background, PARK_MAX_MS, 10).unwrap();
    governor.poll(0, probe);
    assert_eq!(governor.limited(0, probe, quota, own), 3_600_000);
    assert_eq!(governor.poll(1, probe), Turn::Wait { until_ms: Some(3_600_000) });
    // A quota is the account's: another model waits too, another account does not.
    let other = governor.enter(1, gate("n"), Priority::Background, PARK_MAX_MS, 10).unwrap();
    assert_eq!(governor.poll(1, other), Turn::Wait { until_ms: Some(3_600_000) });
    let theirs = Gate { account: Account { provider: "p".into(), mark: 2 }, model: "m".into() };
    let theirs = governor.enter(1, theirs, Priority::Background, PARK_MAX_MS, 10).unwrap();
    assert_eq!(governor.poll(1, theirs), Turn::Go);
    // Somebody who sits there asks the provider, which may have changed its mind; then all go on.
    let person = enter(&mut governor, 2, Priority::Interactive);
    let next = enter(&mut governor, 2, Priority::Interactive);
    assert_eq!(governor.poll(2, person), Turn::Go);
    assert_eq!(governor.poll(2, next), Turn::Wait { until_ms: None });
    governor.taken(person);
    for ticket in [next, probe, other] {
        assert_eq!(governor.poll(3, ticket), Turn::Go);
    }
}

/// Nothing was learned yet of another model of an account whose quota is used up.
#[test]
fn the_impatient_ask_a_model_of_a_closed_account_one_at_a_time() {
    let mut governor = Governor::default();
    let probe = enter(&mut governor, 0, Priority::Interactive);
    governor.poll(0, probe);
    governor.limited(0, probe, Limited { server_ms: Some(3_600_000), by_number: false, whole_account: true }, own);
    let people: Vec<Ticket> =
        (0..5).map(|_| governor.enter(1, gate("n"), Priority::Interactive, PATIENT, 10).unwrap()).collect();
    assert_eq!(going(&mut governor, 1, &people), people[..1]);
    governor.leave(2, people[0]);
    assert_eq!(going(&mut governor, 2, &people[1..]), people[1..2]);
    governor.taken(people[1]);
    assert_eq!(going(&mut governor, 3, &people[1..]), people[1..], "it is open again");
}

#[test]
fn who_has_another_model_takes_it_while_this_one_is_out_of_reach() {
    let mut governor = Governor::default();
    let first = enter(&mut governor, 0, Priority::Interactive);
    governor.poll(0, first);
    governor.limited(0, first, rate(Some(PATIENCE_WITH_FALLBACK_MS)), own);
    assert_eq!(governor.avoided_until(0, &gate("m")), None, "a short pause is waited for");
    governor.limited(0, first, rate(Some(60_000)), own);
    assert_eq!(governor.avoided_until(0, &gate("m")), Some(60_000));
    assert_eq!(governor.avoided_until(0, &gate("n")), None);
    assert_eq!(governor.avoided_until(60_000, &gate("m")), None, "it comes back");
    governor.avoid(60_000, &gate("n"), 30_000);
    assert_eq!(governor.avoided_until(60_001, &gate("n")), Some(90_000));
    let other = governor.enter(60_001, gate("n"), Priority::Interactive, PATIENT, 10).unwrap();
    assert_eq!(governor.poll(60_001, other), Turn::Go, "who has no other asks it all the same");
    governor.taken(other);
    assert_eq!(governor.avoided_until(60_002, &gate("n")), None, "and when it answers it is back for all");
}

#[test]
fn places_and_memory_are_bounded_and_swept() {
    let mut governor = Governor::default();
    let tickets: Vec<Ticket> = (0..PLACES_MAX).map(|_| enter(&mut governor, 0, Priority::Interactive)).collect();
    assert_eq!(governor.enter(0, gate("m"), Priority::Interactive, PATIENT, 10), Err(Full));
    tickets.iter().for_each(|ticket| governor.leave(0, *ticket));
    for number in 0..GATES_MAX + 9 {
        let account = Account { provider: "p".into(), mark: number as u64 };
        let gate = Gate { account, model: format!("m{number}") };
        let ticket = governor.enter(0, gate, Priority::Interactive, PATIENT, 10).unwrap();
        governor.poll(0, ticket);
        let quota = Limited { server_ms: Some(1000 + number as u64), by_number: false, whole_account: true };
        governor.limited(0, ticket, quota, own);
        governor.leave(0, ticket);
    }
    assert_eq!(governor.remembered(), 2 * GATES_MAX);
    // What cooled down is remembered for a while, then not at all.
    let last = enter(&mut governor, 2_000 + FORGET_MS, Priority::Interactive);
    governor.leave(2_000 + FORGET_MS, last);
    assert_eq!((governor.places(), governor.remembered()), (0, 0));
}
