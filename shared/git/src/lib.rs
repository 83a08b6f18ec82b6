//! Settings of git: read as git reads them, and which of them have it run something.
//!
//! The sandbox asks what the settings of a repository name, the permissions what `git -c` gives. Both ask the one table
//! in [`known`]. Reading order: [`settings`], [`runs`]. Absent on purpose: files, and what git does of itself.

mod known;
mod parse;

pub use known::{leads, runs};
pub use parse::settings;

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// In lower case: `core`.
    pub section: String,
    /// As it is written, in `[filter "Lfs"]` what stands in quotes; it may hold anything.
    pub subsection: Option<String>,
    /// In lower case: `hookspath`.
    pub name: String,
    /// Without quotes and comments; `true` where there is none.
    pub value: String,
}

impl Setting {
    /// The setting of a key as `git -c` takes it, `section.subsection.name`: the subsection lies between the first and
    /// the last full stop.
    #[must_use]
    pub fn of(key: &str, value: &str) -> Self {
        let (section, rest) = key.split_once('.').unwrap_or((key, ""));
        let (subsection, name) = rest.rsplit_once('.').map_or((None, rest), |(inner, name)| (Some(inner), name));
        Self {
            section: section.to_ascii_lowercase(),
            subsection: subsection.map(str::to_owned),
            name: name.to_ascii_lowercase(),
            value: value.to_owned(),
        }
    }

    /// Whether it is this one of a section without subsections, in lower case.
    #[must_use]
    pub fn is(&self, section: &str, name: &str) -> bool {
        self.section == section && self.subsection.is_none() && self.name == name
    }

    /// Whether its value is a switch that is on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        ["true", "yes", "on", "1"].iter().any(|on| self.value.eq_ignore_ascii_case(on))
    }
}
