//! Time zones: where people are when they read a time.

use jiff::tz::TimeZone;

use crate::clock::Timestamp;

/// A time zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// Greenwich.
    #[must_use]
    pub const fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// The machine's.
    #[must_use]
    pub fn system() -> Self {
        Self(TimeZone::system())
    }

    /// As `TZ` has it: `Europe/Berlin`, or a rule of POSIX such as `<+02>-2`. `None` for what names no zone.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim_start_matches(':');
        if text.is_empty() {
            return None;
        }
        TimeZone::get(text).or_else(|_| TimeZone::posix(text)).ok().map(Self)
    }

    /// A name that [`Self::parse`] reads; of a zone without one, its distance from Greenwich at `now`.
    #[must_use]
    pub fn name(&self, now: Timestamp) -> String {
        if let Some(name) = self.0.iana_name() {
            return name.to_owned();
        }
        let moment = jiff::Timestamp::from_millisecond(now.millis()).unwrap_or_default();
        let seconds = self.0.to_offset(moment).seconds();
        // POSIX counts westwards.
        let (sign, opposite) = if seconds < 0 { ('-', '+') } else { ('+', '-') };
        let (hours, minutes) = (seconds.abs() / 3600, seconds.abs() / 60 % 60);
        format!("<{sign}{hours:02}{minutes:02}>{opposite}{hours:02}:{minutes:02}")
    }

    /// The day of a moment: `2001-01-31`.
    #[must_use]
    pub fn date(&self, moment: Timestamp) -> String {
        match jiff::Timestamp::from_millisecond(moment.millis()) {
            Ok(moment) => moment.to_zoned_datetime(self.0.clone()).date().to_string(),
            Err(_) => moment.to_string(),
        }
    }

    /// The time of day for people; the date too unless it is the day of `now`.
    #[must_use]
    pub fn clock_text(&self, moment: Timestamp, now: Timestamp) -> String {
        match jiff::Timestamp::from_millisecond(moment.millis()) {
            Ok(there) => {
                let form = if self.date(moment) == self.date(now) { "%H:%M" } else { "%H:%M on %-d %B" };
                there.to_zoned_datetime(self.0.clone()).strftime(form).to_string()
            }
            Err(_) => moment.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(text: &str) -> Zone {
        Zone::parse(text).unwrap()
    }

    #[test]
    fn people_are_told_the_time_of_their_day() {
        // 2001-01-01T23:50:00Z.
        let now = Timestamp::from_millis(978_393_000_000);
        let soon = now.plus_millis(4 * 60_000);
        assert_eq!(zone("UTC").clock_text(soon, now), "23:54");
        assert_eq!(zone("UTC").clock_text(soon.plus_millis(600_000), now), "00:04 on 2 January");
        assert_eq!(zone(":Asia/Kolkata").clock_text(soon, now), "05:24");
        assert_eq!(zone("<+02>-2").clock_text(soon, now), "01:54");
        let never = Timestamp::from_millis(i64::MAX);
        assert_eq!(Zone::system().clock_text(never, now), format!("{} ms", i64::MAX));
        assert_eq!(
            (zone("UTC").date(soon), zone("Asia/Kolkata").date(soon)),
            ("2001-01-01".into(), "2001-01-02".into())
        );
        for nowhere in ["", ":", "Nowhere/Land", "not a zone"] {
            assert_eq!(Zone::parse(nowhere), None, "{nowhere}");
        }
    }

    #[test]
    fn names_are_read_back() {
        let now = Timestamp::from_millis(978_393_000_000);
        assert_eq!(zone("Asia/Kolkata").name(now), "Asia/Kolkata");
        for (posix, expected) in [("<+0545>-5:45", "<+0545>-05:45"), ("XST7", "<-0700>+07:00")] {
            let name = zone(posix).name(now);
            assert_eq!(name, expected);
            assert_eq!(zone(&name).date(now), zone(posix).date(now));
        }
    }
}
