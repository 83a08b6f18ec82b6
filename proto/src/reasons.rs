//! Every reason a daemon may give for refusing a call, in one table.
//!
//! A failed call carries `google.rpc.ErrorInfo { reason, domain: "mcode" }`. The table gives each reason the exit
//! status of a client that stops because of it, and what its user can do next. Reasons are never renamed.

/// `ErrorInfo.domain` of all of them.
pub const DOMAIN: &str = "mcode";

/// Key in `ErrorInfo.metadata` under which a more specific hint than the table's may stand.
pub const HINT_KEY: &str = "hint";

/// Key in `ErrorInfo.metadata` that joins an answer with the daemon's log.
pub const ERROR_ID_KEY: &str = "error_id";

macro_rules! reasons {
    ($(#[doc = $doc:literal] $name:ident, $text:literal, $exit:literal, $hint:literal;)*) => {
        /// Why a call was refused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Reason {
            $(#[doc = $doc] $name,)*
        }

        impl Reason {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The stable name, as it stands in `ErrorInfo.reason`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// Exit status of a command that ends because of it.
            #[must_use]
            pub const fn exit_code(self) -> i32 {
                match self {
                    $(Self::$name => $exit,)*
                }
            }

            /// What the user can do next.
            #[must_use]
            pub const fn hint(self) -> &'static str {
                match self {
                    $(Self::$name => $hint,)*
                }
            }

            /// What it means, for the documentation.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $doc.trim_ascii(),)*
                }
            }
        }
    };
}

reasons! {
    /// There is no thread with this id.
    ThreadNotFound, "THREAD_NOT_FOUND", 2, "list the threads with: mcode threads list";
    /// There is no run with this id.
    RunNotFound, "RUN_NOT_FOUND", 2, "list the runs with: mcode runs list";
    /// The thread already has a run at work.
    RunActive, "RUN_ACTIVE", 2, "wait for it, steer it with: mcode runs steer RUN TEXT, or cancel it with: mcode runs cancel RUN";
    /// The thread has no run at work.
    NoActiveRun, "NO_ACTIVE_RUN", 2, "start one with: mcode ask --thread THREAD PROMPT";
    /// The run has already ended.
    RunEnded, "RUN_ENDED", 2, "go on in its thread with: mcode ask --thread THREAD PROMPT";
    /// The thread has too many commands waiting.
    ThreadBusy, "THREAD_BUSY", 6, "try again in a moment";
    /// The thread has moved on since it was looked at.
    ThreadMovedOn, "THREAD_MOVED_ON", 2, "look at it again with: mcode threads show THREAD";
    /// The thread's log can not be read to its end; it is read-only.
    ThreadDamaged, "THREAD_DAMAGED", 70, "see what is wrong with: mcode doctor --db, and have it mended with: mcode doctor --db --mend";
    /// The file or history can not be read as a thread; nothing of it was kept.
    ImportRefused, "IMPORT_REFUSED", 2, "give a file that mcode threads export has written, whole and unchanged";
    /// There is no such conversation of another agent.
    HistoryNotFound, "HISTORY_NOT_FOUND", 2, "see what there is with: mcode threads import --from AGENT --list";
    /// So many stored bodies are missing that their folder is most likely not mounted.
    BodiesAbsent, "BODIES_ABSENT", 70, "mount the disk or bring the folder back, then restart the daemon; if they are lost for good: mcode doctor --db --mend --force";
    /// The request id was used before for another request.
    RequestIdReused, "REQUEST_ID_REUSED", 2, "use a fresh request id for every new request";
    /// No approval or question with this id is known.
    ApprovalNotFound, "APPROVAL_NOT_FOUND", 2, "list what waits with: mcode approvals list";
    /// The approval or question was settled before.
    AlreadyResolved, "ALREADY_RESOLVED", 2, "the first answer counts; nothing is left to do";
    /// The user's file holds no such permission rule.
    RuleNotFound, "RULE_NOT_FOUND", 2, "list the rules with: mcode permissions list";
    /// There is no such grant.
    GrantNotFound, "GRANT_NOT_FOUND", 2, "list the rules with: mcode permissions list";
    /// Whoever asks was started by a tool call, and this is for people.
    NotForTools, "NOT_FOR_TOOLS", 4, "do it yourself in a terminal that no tool call has started";
    /// A field of the request does not make sense.
    InvalidArgument, "INVALID_ARGUMENT", 2, "correct the value that the message names";
    /// The model is neither in the catalogue nor in the configuration.
    ModelUnknown, "MODEL_UNKNOWN", 3, "list the models with: mcode models list";
    /// No model is configured and none was given.
    ModelNotSet, "MODEL_NOT_SET", 3, "log in with: mcode login; or set a key such as ANTHROPIC_API_KEY or OPENAI_API_KEY; or find a model on this machine with: mcode providers scan, and name it with --model; to see mcode work without any: mcode demo";
    /// There is no key for the model's provider.
    ModelNoKey, "MODEL_NO_KEY", 5, "log in with: mcode login PROVIDER, or set the provider's key in the environment";
    /// The provider does not take the key.
    ModelAuth, "MODEL_AUTH", 5, "correct the key, or give another with: mcode login PROVIDER";
    /// The stored login has run out and can not be renewed.
    LoginExpired, "LOGIN_EXPIRED", 5, "log in again with: mcode login PROVIDER";
    /// The issuer does not take the stored login any more.
    LoginRevoked, "LOGIN_REVOKED", 5, "log in again with: mcode login PROVIDER";
    /// The provider can not be logged in to this way.
    LoginUnsupported, "LOGIN_UNSUPPORTED", 2, "see what each provider takes with: mcode login";
    /// No login with this id is at work.
    LoginNotFound, "LOGIN_NOT_FOUND", 2, "begin anew with: mcode login PROVIDER";
    /// As many logins as may be are at work.
    TooManyLogins, "TOO_MANY_LOGINS", 2, "finish or cancel one of them; each ends by itself within 15 minutes";
    /// The time for the login ran out.
    LoginTimedOut, "LOGIN_TIMED_OUT", 5, "begin anew with: mcode login PROVIDER";
    /// The user or the provider refused the login.
    LoginDenied, "LOGIN_DENIED", 5, "begin anew with: mcode login PROVIDER";
    /// The login was cancelled, or another one of the same provider was begun.
    LoginCancelled, "LOGIN_CANCELLED", 5, "begin anew with: mcode login PROVIDER";
    /// The daemon ended while the login was at work.
    LoginCut, "LOGIN_CUT", 6, "begin anew with: mcode login PROVIDER";
    /// The code belongs to another login.
    LoginWrongState, "LOGIN_WRONG_STATE", 5, "open the address that was shown last, and paste what it leads to";
    /// The provider's issuer failed, or gave no login.
    LoginFailed, "LOGIN_FAILED", 5, "begin anew with: mcode login PROVIDER";
    /// The place where logins are kept does not work.
    LoginStoreBroken, "LOGIN_STORE_BROKEN", 3, "mend or move away the file that the message names";
    /// There is no pack of this name.
    PackNotFound, "PACK_NOT_FOUND", 2, "list the packs with: mcode packs list";
    /// There is a pack of this name already.
    PackExists, "PACK_EXISTS", 2, "choose another name, or delete it with: mcode packs delete NAME";
    /// There is no provider of this name, or the user's file does not name it.
    ProviderNotFound, "PROVIDER_NOT_FOUND", 2, "list the providers with: mcode providers list";
    /// The user's file names this provider already.
    ProviderExists, "PROVIDER_EXISTS", 2, "change it with: mcode config set providers.NAME.…, or remove it first with: mcode providers remove NAME";
    /// A newer list of models was not taken.
    CatalogueRefused, "CATALOGUE_REFUSED", 5, "the catalogue stays as it is; name another source with --from";
    /// The configuration file does not parse, or holds a value that does not fit.
    ConfigBroken, "CONFIG_BROKEN", 3, "mend the file and line that the message names";
    /// The project's folder is missing or can not be used.
    CwdUnusable, "CWD_UNUSABLE", 2, "give a folder that exists with --cwd";
    /// Runs are at work, so the daemon does not end.
    RunsActive, "RUNS_ACTIVE", 2, "wait for them, or use --force to interrupt them";
    /// The thread has as many subscribers as it may have.
    TooManySubscribers, "TOO_MANY_SUBSCRIBERS", 6, "close some of the clients that watch the thread";
    /// The daemon is ending.
    ShuttingDown, "SHUTTING_DOWN", 6, "try again: a new daemon is started by the next command";
    /// The disk that holds the database is full.
    DiskFull, "DISK_FULL", 70, "free space on the disk that holds the database, then try again";
    /// The database can not be read or written.
    StoreUnavailable, "STORE_UNAVAILABLE", 70, "look at the daemon's log with: mcode daemon logs";
    /// The peer is not the user who owns the daemon.
    PeerRefused, "PEER_REFUSED", 6, "talk to a daemon of your own user";
    /// A budget is used up.
    LimitReached, "LIMIT_REACHED", 7, "raise the limit under [limits] in config.toml, or wait";
    /// A fault of the daemon itself.
    Internal, "INTERNAL", 70, "look at the daemon's log with: mcode daemon logs";
}

impl Reason {
    /// The reason with this name; `None` for one of a newer daemon.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == text)
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_named_once_and_documented() {
        let mut names = std::collections::BTreeSet::new();
        for reason in Reason::ALL {
            let name = reason.as_str();
            assert!(names.insert(name), "{name} stands twice");
            assert!(name.chars().all(|c| c.is_ascii_uppercase() || c == '_'), "{name} is not UPPER_SNAKE");
            assert_eq!(Reason::parse(name), Some(*reason));
            assert!(reason.meaning().len() > 10 && reason.meaning().ends_with('.'), "{name} is not documented");
            assert!(reason.hint().len() > 10, "{name} has no hint");
            assert!([2, 3, 4, 5, 6, 7, 70].contains(&reason.exit_code()), "{name} has an exit status of no error kind");
        }
        assert_eq!(Reason::parse("OF_A_NEWER_DAEMON"), None);
    }
}
