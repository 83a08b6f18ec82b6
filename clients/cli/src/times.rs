//! Times and durations as people write and read them.

use std::time::Duration;

use prost_types::Timestamp;

/// `10m`, `90s`, `1h30m`, `500ms`, or a plain number of seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => mcode_config::parse_duration(text).map_err(|error| format!("'{text}': {error}"))?,
    };
    if duration.is_zero() { Err(format!("'{text}' is no time at all")) } else { Ok(duration) }
}

/// A duration as the wire has it.
pub(crate) fn wire_duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}

/// `1 run`, `2 runs`.
pub(crate) fn count(number: u32, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// From when to when, or since when.
pub(crate) fn span(from: Option<&Timestamp>, to: Option<&Timestamp>) -> String {
    let (from, to) = (local(from), local(to));
    if to.is_empty() { format!("since {from}") } else { format!("{from} to {to}") }
}

/// A moment from now on (`2h`) or by itself (`2030-01-31T18:00Z`).
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    let at: jiff::Timestamp = match parse_duration(text) {
        Ok(duration) => {
            let now = mcode_env::Clock::now(&mcode_env::SystemClock).millis();
            let millis = i64::try_from(duration.as_millis()).ok().and_then(|millis| now.checked_add(millis));
            let at = millis.and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
            at.ok_or_else(|| format!("'{text}' is too far away"))?
        }
        Err(_) => text.parse().map_err(|_| format!("'{text}' is neither a span of time nor a moment"))?,
    };
    Ok(Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() })
}

/// A moment so long before now (`7d`), the beginning of a day here (`2030-01-31`), or one by itself (`2030-01-31T18:00Z`).
pub(crate) fn past(text: &str) -> Result<Timestamp, String> {
    let now = mcode_env::Clock::now(&mcode_env::SystemClock).millis();
    // Only a day has no colon.
    let day = text.parse::<jiff::civil::Date>().ok().filter(|_| !text.contains(':'));
    let at: jiff::Timestamp = if let Some(day) = day {
        day.to_zoned_datetime(jiff::tz::TimeZone::system()).map_err(|error| format!("'{text}': {error}"))?.timestamp()
    } else if let Ok(at) = text.parse() {
        at
    } else {
        let ago = parse_duration(text)
            .map_err(|_| format!("'{text}' is none of a span of time (7d), a day (2030-01-31), a moment"))?;
        let millis = i64::try_from(ago.as_millis()).ok().and_then(|millis| now.checked_sub(millis));
        let at = millis.and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
        at.ok_or_else(|| format!("'{text}' is too long ago"))?
    };
    Ok(Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() })
}

/// A moment in the local time zone; empty when there is none.
pub(crate) fn local(moment: Option<&Timestamp>) -> String {
    moment
        .and_then(|moment| jiff::Timestamp::new(moment.seconds, moment.nanos).ok())
        .map(|moment| moment.to_zoned_datetime(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many_and_no_end_is_no_to() {
        assert_eq!([count(0, "run"), count(1, "run"), count(2, "run")], ["0 runs", "1 run", "2 runs"]);
        let moment = Timestamp { seconds: 0, nanos: 0 };
        assert!(span(Some(&moment), None).starts_with("since 19"));
        assert!(span(Some(&moment), Some(&moment)).contains(" to 19"));
    }

    #[test]
    fn times_before_now_are_spans_days_and_moments() {
        let now = mcode_env::Clock::now(&mcode_env::SystemClock).millis() / 1000;
        let week = past("7d").unwrap().seconds;
        assert!((now - 604_801..=now - 604_799).contains(&week), "{week}");
        assert_eq!(past("1970-01-02T00:00:00Z").unwrap().seconds, 86_400);
        // Wherever this runs, a day begins within half a day and a bit of Greenwich's.
        assert!((past("1970-01-03").unwrap().seconds - 172_800).abs() <= 15 * 3600);
        for bad in ["", "soon", "2030-13-01", "-3d", "99999999999d"] {
            assert!(past(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in
            [("90s", 90_000), ("10m", 600_000), ("1h30m", 5_400_000), ("500ms", 500), ("7", 7_000), ("1d", 86_400_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "0", "0s", "m", "10x", "-1s", "1.5h", "99999999999999999999s", "10m5"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
