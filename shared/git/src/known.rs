//! Which settings have git run something, or lead it to what it obeys.

use Does::{Leads, Runs};
use Under::{Any, Bare, Both};

use crate::Setting;

/// Where a setting stands in its section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Under {
    /// `core.pager`
    Bare,
    /// `filter.<any>.clean`
    Any,
    /// `credential.helper` and `credential.<any>.helper`
    Both,
}

/// What a value is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    /// It is run.
    Runs,
    /// It is run when it is no switch.
    RunsUnlessSwitch,
    /// It is run when it begins with `!`.
    RunsMarked,
    /// It names further settings, hooks, or another place to get them from.
    Leads,
}

/// Any name.
const ALL: &str = "*";

/// Section, subsection, name in lower case, and what the value is for.
const KNOWN: &[(&str, Under, &str, Does)] = &[
    ("alias", Bare, ALL, Runs),
    ("alias", Any, "command", Runs),
    ("browser", Any, "cmd", Runs),
    ("browser", Any, "path", Runs),
    ("core", Bare, "alternaterefscommand", Runs),
    ("core", Bare, "askpass", Runs),
    ("core", Bare, "editor", Runs),
    ("core", Bare, "fsmonitor", Does::RunsUnlessSwitch),
    ("core", Bare, "gitproxy", Runs),
    ("core", Bare, "hookspath", Leads),
    ("core", Bare, "pager", Runs),
    ("core", Bare, "sshcommand", Runs),
    ("credential", Both, "helper", Runs),
    ("diff", Bare, "external", Runs),
    ("diff", Any, "command", Runs),
    ("diff", Any, "textconv", Runs),
    ("difftool", Any, "cmd", Runs),
    ("difftool", Any, "path", Runs),
    ("filter", Any, "clean", Runs),
    ("filter", Any, "process", Runs),
    ("filter", Any, "smudge", Runs),
    ("gc", Bare, "recentobjectshook", Runs),
    ("gpg", Both, "program", Runs),
    ("gpg", Any, "defaultkeycommand", Runs),
    ("guitool", Any, "cmd", Runs),
    ("help", Bare, "browser", Runs),
    ("hook", Any, "command", Runs),
    ("imap", Both, "tunnel", Runs),
    ("include", Bare, "path", Leads),
    ("includeif", Any, "path", Leads),
    ("init", Bare, "templatedir", Leads),
    ("instaweb", Bare, "browser", Runs),
    ("instaweb", Bare, "httpd", Runs),
    ("interactive", Bare, "difffilter", Runs),
    ("lfs", Any, "clean", Runs),
    ("lfs", Any, "path", Runs),
    ("lfs", Any, "smudge", Runs),
    ("man", Any, "cmd", Runs),
    ("man", Any, "path", Runs),
    ("merge", Any, "driver", Runs),
    ("mergetool", Any, "cmd", Runs),
    ("mergetool", Any, "path", Runs),
    ("pager", Both, ALL, Does::RunsUnlessSwitch),
    ("protocol", Both, "allow", Leads),
    ("remote", Any, "receivepack", Runs),
    ("remote", Any, "uploadpack", Runs),
    ("remote", Any, "vcs", Runs),
    ("sendemail", Both, "cccmd", Runs),
    ("sendemail", Both, "headercmd", Runs),
    ("sendemail", Both, "sendmailcmd", Runs),
    ("sendemail", Both, "smtpserver", Runs),
    ("sendemail", Both, "tocmd", Runs),
    ("sequence", Bare, "editor", Runs),
    ("submodule", Any, "update", Does::RunsMarked),
    ("svn", Both, "authorsprog", Runs),
    ("tar", Any, "command", Runs),
    ("trailer", Any, "cmd", Runs),
    ("trailer", Any, "command", Runs),
    ("uploadpack", Bare, "packobjectshook", Runs),
    ("url", Any, "insteadof", Leads),
    ("url", Any, "pushinsteadof", Leads),
    ("web", Bare, "browser", Runs),
];

/// What its value is for.
fn does(setting: &Setting) -> Option<Does> {
    let stands = |under: Under| match under {
        Bare => setting.subsection.is_none(),
        Any => setting.subsection.is_some(),
        Both => true,
    };
    let fits = |(section, under, name, _): &&(&str, Under, &str, Does)| {
        setting.section == *section && stands(*under) && (*name == ALL || setting.name == *name)
    };
    KNOWN.iter().find(fits).map(|(.., does)| *does)
}

/// Whether git runs the value.
#[must_use]
pub fn runs(setting: &Setting) -> bool {
    let off = ["false", "no", "off", "0", ""].iter().any(|off| setting.value.eq_ignore_ascii_case(off));
    match does(setting) {
        Some(Runs) => true,
        Some(Does::RunsUnlessSwitch) => !off && !setting.is_on(),
        Some(Does::RunsMarked) => setting.value.starts_with('!'),
        Some(Leads) | None => false,
    }
}

/// Whether the value leads git to further settings, to hooks, or to another place to get them from.
#[must_use]
pub fn leads(setting: &Setting) -> bool {
    does(setting) == Some(Leads)
}
