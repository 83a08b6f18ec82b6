//! What the agent knows of models: requests, streams, errors, catalogue entries, and the policy of retries.
//!
//! A [`ModelProvider`] makes exactly one attempt at a request and streams what comes. Whether to try again is decided
//! by [`retry`] and done by the agent, which records it; whose turn it is at a provider by [`governor`], and whether there
//! is money for it by [`budget`]. History is made fit for any wire by [`history`]; the wires
//! themselves live in `mcode-providers`. Absent on purpose: HTTP, keys at rest, prompts.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod budget;
pub mod catalog;
pub mod directory;
pub mod error;
pub mod governor;
pub mod history;
pub mod login;
pub mod packs;
pub mod registry;
pub mod request;
pub mod retry;
pub mod stream;

pub use catalog::{Catalogue, Efforts, ModelInfo, ModelRef, Pricing, ThinkingForm, Tier, Wire};
pub use directory::{CatalogueState, FoundModel, FoundServer, ListedProvider, ModelDirectory, Refreshed};
pub use error::{ModelError, ModelErrorKind};
pub use login::{
    GiveKey, GivenKey, KeySource, LoggedOut, LoginDesk, LoginError, LoginErrorKind, LoginFlow, LoginOffer, LoginStart,
    LoginStarted, Logins, StoredLogin,
};
pub use packs::{Assigned, Pack, Role, Wishes};
pub use registry::{ListedModel, ModelRegistry, ResolvedModel};
pub use request::{
    Access, KeyPlace, ModelRequest, PromptMessage, Secret, SystemPart, ToolAnswer, ToolDefinition, Withheld,
};
pub use stream::{ModelProvider, ModelStream, Response, StopReason, StreamEvent};
