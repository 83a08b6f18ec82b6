//! What people see and renew of what the daemon knows of models: the catalogue, the providers, packs, servers on this
//! machine.

use std::collections::BTreeMap;
use std::fmt;

use futures::future::BoxFuture;

use crate::error::ModelError;
use crate::packs::Pack;

/// Where the catalogue in force is from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CatalogueState {
    /// The address or file that it was fetched from; empty for the one that is part of the program.
    pub source: String,
    /// When it was fetched, in milliseconds since 1970-01-01 UTC.
    pub fetched_at_ms: Option<i64>,
    /// How many models it knows.
    pub models: usize,
    /// Why what was fetched before is not used; empty when nothing is wrong.
    pub problem: String,
}

/// What a renewed catalogue brought.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Refreshed {
    /// The catalogue now.
    pub state: CatalogueState,
    /// Models that were not known before.
    pub added: usize,
    /// Models of which something else is known than before.
    pub changed: usize,
    /// Models of the new list that are left out, since what it says of them can not be.
    pub left_out: usize,
}

/// A provider as it stands for one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedProvider {
    /// The part of a model's full name before the slash.
    pub name: String,
    /// Wire name.
    pub wire: String,
    /// Where it is asked; empty for one within the daemon, or where that is missing.
    pub base_url: String,
    /// Whether the configuration names it.
    pub configured: bool,
    /// Whether this program knows it by itself.
    pub known: bool,
    /// Whether a key was found, or none is needed.
    pub usable: bool,
    /// Where the key comes from, or what to set.
    pub key_source: String,
    /// How many of its models are known.
    pub models: usize,
}

/// A model that a server on this machine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundModel {
    /// Its id there.
    pub id: String,
    /// Its context window in tokens, where the server tells it.
    pub context_tokens: Option<u32>,
}

/// A server that was looked for on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundServer {
    /// The provider's name.
    pub provider: String,
    /// Where it was looked for.
    pub base_url: String,
    /// Whether something answers there as such a server does.
    pub answers: bool,
    /// Why it counts as not there; empty when it answers.
    pub problem: String,
    /// What it has.
    pub models: Vec<FoundModel>,
}

/// Shows and renews what is known. `env` is the client's environment: its keys, base URLs, proxies and certificates.
pub trait ModelDirectory: Send + Sync + fmt::Debug {
    /// The catalogue in force.
    fn catalogue(&self) -> CatalogueState;
    /// Fetches a catalogue from a URL or an absolute path (the usual address when empty), checks it, keeps it and puts it
    /// in force. Nothing changes when that fails.
    fn refresh_catalogue<'a>(
        &'a self,
        from: &'a str,
        env: &'a BTreeMap<String, String>,
    ) -> BoxFuture<'a, Result<Refreshed, ModelError>>;
    /// All providers that are known or configured, by preference and name.
    fn providers(&self, env: &BTreeMap<String, String>) -> Vec<ListedProvider>;
    /// Why no provider of this name can be declared; `None` when one can.
    fn reserved(&self, name: &str) -> Option<String>;
    /// The packs of what this client can reach, and the user's own.
    fn packs(&self, env: &BTreeMap<String, String>) -> Vec<Pack>;
    /// Whether there is a way to a model; it is not tried.
    fn is_usable(&self, model: &str, env: &BTreeMap<String, String>) -> bool;
    /// Looks for servers at the addresses of this machine where they usually are.
    fn scan<'a>(&'a self, env: &'a BTreeMap<String, String>) -> BoxFuture<'a, Vec<FoundServer>>;
}
